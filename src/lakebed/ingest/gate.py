"""How much is parsed at once. A request takes many times its size while it is parsed (a hostile one
of tiny messages up to 75 times), so threads wait here until there is room for theirs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

PARSED_AT_ONCE_BYTES = 16 << 20


class ByteGate:
    """Lets in so many bytes at once, first come first served; what is larger goes in alone."""

    def __init__(self, most_bytes: int = PARSED_AT_ONCE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._line: deque[object] = deque()
        self._inside_bytes = 0

    @contextmanager
    def room_for(self, size_bytes: int) -> Iterator[None]:
        """Wait for room; it is given back when the block is left."""
        size = min(size_bytes, self._most_bytes)
        me = object()
        with self._changed:
            self._line.append(me)
            try:
                self._changed.wait_for(
                    lambda: self._line[0] is me and self._inside_bytes + size <= self._most_bytes
                )
                self._inside_bytes += size
            finally:  # also when interrupted: whoever comes next must not wait for us
                self._line.remove(me)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._inside_bytes -= size
                self._changed.notify_all()
