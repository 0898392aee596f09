"""How much of what callers send is in memory at once, over all ports: bytes are counted as they
come, before a body is whole, so that many half ones cannot fill it either.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lakebed.serve.answers import Busy


class Budget:
    """So many bytes for everybody together. Safe to use from several threads."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._taken = 0
        self._lock = threading.Lock()

    @contextmanager
    def share(self) -> Iterator[Share]:
        """The part of one request; it is given back when the block is left."""
        share = Share(self)
        try:
            yield share
        finally:
            self._give_back(share.bytes)

    def take(self, size: int) -> None:
        """`Busy` if there is no room."""
        with self._lock:
            if self._taken + size > self.most_bytes:
                raise Busy("the server has too much to do", hint="send it again a little later")
            self._taken += size

    def _give_back(self, size: int) -> None:
        with self._lock:
            self._taken -= size


class Share:
    """What one request has taken."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.bytes = 0

    def add(self, size: int) -> None:
        """Count bytes that came; `Busy` if there are too many, of whomever."""
        self._budget.take(size)
        self.bytes += size
