"""A partition: the published result of one view-set instance over one insert-time range, which is
a Parquet file or the record that the range is empty.
"""

from __future__ import annotations

import enum
import hashlib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lakebed.model.time import TimeRange, format_instant


class FileState(enum.StrEnum):
    """The reasons why a file is in the store without being part of the lake."""

    STAGED = "staged"  # reserved by a living writer
    RETIRED = "retired"  # its partition was retired
    DELETING = "deleting"  # claimed by a sweep, or given up by its writer
    QUARANTINED = "quarantined"  # set aside by an operator; never expires


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """The five fields that name one live partition. Four are not enough: while a schema evolves,
    two schema hashes may cover the same range."""

    view_set: str
    instance: str
    insert_range: TimeRange
    schema_hash: bytes

    def __str__(self) -> str:
        return f"{self.view_set}/{self.instance} {self.insert_range} {self.schema_hash.hex()[:12]}"


@dataclass(frozen=True, slots=True)
class EventRange:
    """The earliest and the latest event in a file, both included."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Partition:
    """One row of the catalog's partitions, with everything a reader needs but the footer."""

    partition_id: str
    identity: Identity
    events: EventRange | None
    file_path: str | None
    file_size: int
    num_rows: int
    source_hash: bytes
    sort_order: tuple[str, ...]
    format_version: int
    statistics: dict[str, Any]
    published_at: int
    retired_at: int | None = None
    expiration: int | None = None
    held: bool = False
    replaced: bool = False
    """Retired, because other partitions with its rows replaced it."""

    @property
    def view_set(self) -> str:
        return self.identity.view_set

    @property
    def instance(self) -> str:
        return self.identity.instance

    @property
    def insert_range(self) -> TimeRange:
        return self.identity.insert_range

    @property
    def schema_hash(self) -> bytes:
        return self.identity.schema_hash

    @property
    def is_empty(self) -> bool:
        """Return True for a partition without a file, which records that its range gave no rows."""
        return self.file_path is None

    @property
    def is_live(self) -> bool:
        return self.retired_at is None

    @property
    def retire_command(self) -> str:
        """The command that retires exactly this partition, for hints."""
        words = [
            *("lakebed", "partitions", "retire", self.view_set, "--exact"),
            *("--instance", self.instance),
            *("--begin", format_instant(self.insert_range.begin)),
            *("--end", format_instant(self.insert_range.end)),
            *("--schema-hash", self.schema_hash.hex()),
            *(
                ()
                if self.is_empty or self.source_hash != NO_SOURCE
                else ("--confirm", self.view_set)
            ),
            "--yes",
        ]
        return shlex.join(words)

    def describe(self) -> str:
        """Return the partition in words for messages; empty ones are easy to tell from others."""
        what = "empty" if self.is_empty else f"{self.num_rows} rows in {self.file_path}"
        return f"{self.identity} ({what})"


SOURCE_HASH_BYTES = 32
NO_SOURCE = bytes(SOURCE_HASH_BYTES)


def add_source_hashes(hashes: Iterable[bytes]) -> bytes:
    """Return the set hash of a union of disjoint sources: sums of SHA-256, so that merges add
    up."""
    total = sum(int.from_bytes(digest, "big") for digest in hashes)
    return (total % (1 << 8 * SOURCE_HASH_BYTES)).to_bytes(SOURCE_HASH_BYTES, "big")


def hash_sources(names: Iterable[str]) -> bytes:
    """Return the set hash of named source blocks; their order does not matter."""
    return add_source_hashes(hashlib.sha256(name.encode()).digest() for name in names)
