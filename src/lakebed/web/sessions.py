"""Sessions of browsers, and tokens that prove that a form is one of ours. A browser keeps a random
session id; the key that it stands for stays in this process. Sessions end with the process, with
their time, or with the key, which is checked again for every page.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

COOKIE = "lakebed_session"
SECONDS = 12 * 3600.0
_MOST = 10_000


class Sessions:
    """Session ids of browsers and their keys. Safe to use from several threads."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        new_session_id: Callable[[], str] = lambda: secrets.token_urlsafe(32),
    ) -> None:
        self._now = now
        self._new_session_id = new_session_id
        self._secret = secrets.token_bytes(32)
        self._keys: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._lock = threading.Lock()

    def new_session_id(self) -> str:
        """Return a session id for a browser that has none; it stands for no key yet."""
        return self._new_session_id()

    def begin(self, key: str) -> str:
        """Return a new session id that stands for a key, so that an id planted by an attacker
        stands for nothing."""
        session_id = self._new_session_id()
        self.sign_in(session_id, key)
        return session_id

    def sign_in(self, session_id: str, key: str) -> None:
        """Let a session id stand for a key from now on."""
        with self._lock:
            while len(self._keys) >= _MOST:
                self._keys.popitem(last=False)
            self._keys[session_id] = (self._now() + SECONDS, key)

    def find_key(self, session_id: str) -> str | None:
        """Return the key of a session, unless it has expired."""
        with self._lock:
            until, key = self._keys.get(session_id, (0.0, ""))
            if not key or until <= self._now():
                self._keys.pop(session_id, None)
                return None
            return key

    def end(self, session_id: str) -> None:
        """End a session."""
        with self._lock:
            self._keys.pop(session_id, None)

    def make_token(self, session_id: str) -> str:
        """Return the token that forms sent to this browser carry."""
        return hmac.digest(self._secret, session_id.encode(), "sha256").hex()

    def is_token(self, session_id: str, token: str) -> bool:
        """Return True if a form was sent to this browser by this process."""
        return bool(session_id) and hmac.compare_digest(
            self.make_token(session_id).encode(), token.encode(errors="replace")
        )
