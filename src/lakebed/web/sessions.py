"""Sessions of browsers, and tokens that prove that a form is one of ours. A browser keeps a random
word; the key that it stands for stays in this process. The words end with the process, with their
time, or with the key, which is checked again for every page.
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
    """Words of browsers and the keys behind them. Safe to use from several threads."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        new_word: Callable[[], str] = lambda: secrets.token_urlsafe(32),
    ) -> None:
        self._now = now
        self._new_word = new_word
        self._secret = secrets.token_bytes(32)
        self._keys: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._lock = threading.Lock()

    def new_word(self) -> str:
        """Return a word for a browser that has none; it stands for no key yet."""
        return self._new_word()

    def begin(self, key: str) -> str:
        """Return a new word that stands for a key, so that a word planted by an attacker stands for
        nothing."""
        word = self._new_word()
        self.sign_in(word, key)
        return word

    def sign_in(self, word: str, key: str) -> None:
        """Let a browser's word stand for a key from now on."""
        with self._lock:
            while len(self._keys) >= _MOST:
                self._keys.popitem(last=False)
            self._keys[word] = (self._now() + SECONDS, key)

    def find_key(self, word: str) -> str | None:
        """Return the key that a word stands for, unless it has expired."""
        with self._lock:
            until, key = self._keys.get(word, (0.0, ""))
            if not key or until <= self._now():
                self._keys.pop(word, None)
                return None
            return key

    def end(self, word: str) -> None:
        """Remove the key behind a word."""
        with self._lock:
            self._keys.pop(word, None)

    def make_token(self, word: str) -> str:
        """Return the token that forms sent to this browser carry."""
        return hmac.digest(self._secret, word.encode(), "sha256").hex()

    def is_token(self, word: str, token: str) -> bool:
        """Return True if a form was sent to this browser by this process."""
        return bool(word) and hmac.compare_digest(
            self.make_token(word).encode(), token.encode(errors="replace")
        )
