"""What came of a form, kept until its browser loads the page that says so. It is told once, and it
is in no address: a secret may be among it.
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
class Done:
    """What was done, and which page says so."""

    path: str
    said: str
    secret: str | None = None
    """Shown with it, and never again."""


class Notes:
    """What browsers, told apart by their words, have yet to be told. Safe to use from several
    threads."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._left: OrderedDict[str, tuple[float, Done]] = OrderedDict()
        self._lock = threading.Lock()

    def leave(self, word: str, done: Done) -> None:
        """Remember it for the page that it leads to; what was left before is forgotten."""
        with self._lock:
            self._left.pop(word, None)
            while len(self._left) >= _MOST:
                self._left.popitem(last=False)
            self._left[word] = (self._now() + SECONDS, done)

    def take(self, word: str, path: str) -> Done | None:
        """What is to be told on a page, unless its time is over. The next time, it is gone."""
        with self._lock:
            until, done = self._left.get(word, (0.0, None))
            if done is None or urlsplit(done.path).path != path:
                return None
            del self._left[word]
            return done if until > self._now() else None
