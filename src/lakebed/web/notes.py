"""Results of forms, stored until the browser loads the page that shows them. Each is shown once,
and is in no address: a secret may be among it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

SECONDS = 600.0
_MOST = 1_000


@dataclass(frozen=True, slots=True)
class FormResult:
    """The result of a form, and the path of the page that shows it."""

    path: str
    said: str
    secret: str | None = None
    """Shown once together with the message."""


class Notes:
    """Results that browsers, identified by their sessions, have not loaded yet. Safe to use from
    several threads."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._left: OrderedDict[str, tuple[float, FormResult]] = OrderedDict()
        self._lock = threading.Lock()

    def leave(self, session_id: str, done: FormResult) -> None:
        """Store a result for the page of its path; the browser's previous one is dropped."""
        with self._lock:
            self._left.pop(session_id, None)
            while len(self._left) >= _MOST:
                self._left.popitem(last=False)
            self._left[session_id] = (self._now() + SECONDS, done)

    def take(self, session_id: str, path: str) -> FormResult | None:
        """Remove and return the result to show on a page, unless it has expired."""
        with self._lock:
            until, done = self._left.get(session_id, (0.0, None))
            if done is None or urlsplit(done.path).path != path:
                return None
            del self._left[session_id]
            return done if until > self._now() else None
