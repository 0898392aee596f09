"""The classes of files that the catalog does not know, by path, size, and first and last bytes."""

from __future__ import annotations

import enum

from lakebed.errors import Damage, UnknownObject
from lakebed.storage import footer, layout, parquet
from lakebed.storage.objects import Listed, Store

_MAGIC = b"PAR1"


class StrayKind(enum.StrEnum):
    """The classes that `check` sorts strays into."""

    EMPTY_DIRECTORY = "empty directory"
    ZERO_BYTES = "zero bytes"
    TRUNCATED = "truncated"  # begins like Parquet, but its footer is cut off or broken
    NOT_PARQUET = "not Parquet"
    FOREIGN_LAYOUT = "foreign layout"  # Parquet, or beside segments, where Lakebed never writes
    LEFTOVER = "leftover"  # the journal knows it, the catalog no longer does
    UNKNOWN = "unknown but valid"  # at a path of Lakebed's, readable, never recorded
    UNKNOWN_SEGMENT = "unknown segment"  # at a segment's path; its bytes do not say what they are


def classify(store: Store, file: Listed, *, in_journal: bool) -> StrayKind | None:
    """Return the class of a stray; None if it was deleted meanwhile."""
    if file.empty_folder:
        return StrayKind.EMPTY_DIRECTORY
    try:
        size = store.size(file.path)
        if size == 0:
            return StrayKind.ZERO_BYTES
        if file.path.startswith("probe-"):
            return StrayKind.LEFTOVER
        if layout.is_segment(file.path):
            return StrayKind.LEFTOVER if in_journal else StrayKind.UNKNOWN_SEGMENT
        if file.path.startswith(layout.SEGMENTS):
            return StrayKind.FOREIGN_LAYOUT
        if store.read(file.path, 0, len(_MAGIC)) != _MAGIC:
            return StrayKind.NOT_PARQUET
        footer.parse(parquet.read_footer(store, file.path, size), path=file.path)
    except UnknownObject:
        return None
    except Damage:
        return StrayKind.TRUNCATED
    if not layout.is_ours(file.path):
        return StrayKind.FOREIGN_LAYOUT
    return StrayKind.LEFTOVER if in_journal else StrayKind.UNKNOWN
