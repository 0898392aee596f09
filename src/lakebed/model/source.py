"""The source of a view set's rows: landed blocks through a decoder, or SQL over other view sets.
View sets without a source hold the rows that programs publish themselves.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from lakebed.errors import BadInput
from lakebed.model.signal import Signal

DECODERS = (*Signal, "blocks")


@dataclass(frozen=True, slots=True)
class BlockSource:
    """Rows that a decoder makes of landed blocks. The decoder ``blocks`` makes one row of each
    block of any kind; the others read the payloads of their signal."""

    decoder: str

    def __post_init__(self) -> None:
        if self.decoder not in DECODERS:
            raise BadInput(
                f"{self.decoder!r} is not a decoder", hint=f"one of {', '.join(DECODERS)}"
            )


@dataclass(frozen=True, slots=True)
class SqlSource:
    """Rows that Spark SQL makes of other view sets. Each partition holds what the SQL gives for
    its own range; ``merge_sql``, which reads the view set itself, adds partial results up."""

    sql: str
    merge_sql: str
    reads: tuple[tuple[str, bytes], ...]
    """The view sets it reads, each with the schema hash that it was declared against."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.reads)


Source = BlockSource | SqlSource


def describe_source(source: Source | None) -> str:
    """Return the source in words: ``blocks: logs``, ``sql over log_entries``, ``none``."""
    if source is None:
        return "none"
    if isinstance(source, BlockSource):
        return "blocks" if source.decoder == "blocks" else f"blocks: {source.decoder}"
    return f"sql over {', '.join(source.names)}"


def fingerprint(source: Source | None) -> str:
    """Return the part of a source that belongs to the schema hash: other SQL gives other rows."""
    if not isinstance(source, SqlSource):
        return ""
    text = json.dumps(encode_source(source), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def encode_source(source: Source | None) -> dict[str, Any] | None:
    """Return the source as plain values."""
    if source is None:
        return None
    if isinstance(source, BlockSource):
        return {"blocks": source.decoder}
    reads = {name: schema_hash.hex() for name, schema_hash in source.reads}
    return {"sql": source.sql, "merge_sql": source.merge_sql, "reads": reads}


def decode_source(value: Any) -> Source | None:
    """Return the source that `encode_source` described."""
    match value:
        case None:
            return None
        case {"blocks": str(decoder)}:
            return BlockSource(decoder)
        case {"sql": str(sql), "merge_sql": str(merge_sql), "reads": dict(reads)}:
            read_hashes = tuple(sorted((name, bytes.fromhex(text)) for name, text in reads.items()))
            return SqlSource(sql, merge_sql, read_hashes)
    raise BadInput(f"{value!r} is not a source of a view set")
