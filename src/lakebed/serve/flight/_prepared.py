"""Prepared statements that a server keeps for its clients, with the values that were bound last: so
many, and of values so many bytes. What it has forgotten, a statement's handle still says.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from lakebed.query.request.parameters import Prepared

MOST_BOUND_BYTES = 16 << 20
"""What is bound at a time at most."""
_MOST = 1000
_MOST_BYTES = 64 << 20


class PreparedStatements:
    """The ones used last. Not safe to use from several threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, tuple[Prepared, list[Any], int]] = OrderedDict()
        self._bytes = 0

    def keep(self, handle: bytes, prepared: Prepared, values: list[Any], size: int) -> None:
        """Remember a statement and values that were bound to it, of so many bytes."""
        self.pop(handle)
        size += len(handle)
        self._kept[handle] = (prepared, values, size)
        self._bytes += size
        while len(self._kept) > _MOST or self._bytes > _MOST_BYTES:
            self.pop(next(iter(self._kept)))

    def find(self, handle: bytes) -> tuple[Prepared, list[Any]] | None:
        """A statement, if it is remembered."""
        known = self._kept.get(handle)
        if known is None:
            return None
        self._kept.move_to_end(handle)
        return known[:2]

    def pop(self, handle: bytes) -> None:
        """Forget a statement."""
        known = self._kept.pop(handle, None)
        if known is not None:
            self._bytes -= known[2]
