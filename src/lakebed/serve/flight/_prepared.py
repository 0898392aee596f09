"""Prepared statements that a server keeps for its clients, with the values that were bound last.
Their number and bytes are limited; the handle of a forgotten statement still has its text.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from lakebed.query.request.parameters import Prepared

MOST_BOUND_BYTES = 16 << 20
"""The limit of one binding."""
_MOST = 1000
_MOST_BYTES = 64 << 20


class PreparedStatements:
    """The statements used last. Not safe to use from several threads."""

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
        """Return a statement with its values, if it is remembered."""
        entry = self._kept.get(handle)
        if entry is None:
            return None
        self._kept.move_to_end(handle)
        return entry[:2]

    def pop(self, handle: bytes) -> None:
        """Forget a statement."""
        entry = self._kept.pop(handle, None)
        if entry is not None:
            self._bytes -= entry[2]
