"""Durable Parquet files: written once under a unique name, synced, reopened and validated before
the catalog refers to them.
"""

from __future__ import annotations

import base64
import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lakebed.errors import BadInput, Damage, DamagedFile
from lakebed.model.partition import EventRange
from lakebed.model.source import SqlSource, fingerprint
from lakebed.model.view_set import ViewSet, canonical, hash_schema
from lakebed.storage import checksums
from lakebed.storage import footer as footers
from lakebed.storage.objects import Store

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

SEE_DAMAGE = "see the damage with: lakebed check --level pages"

_VERSION_KEY = b"lakebed.version"
_SOURCE_KEY = b"lakebed.source"
_ARROW_KEY = b"ARROW:schema"
_FARTHEST = 1 << 60
_ROW_GROUP_ROWS = 128 * 1024
_LONGEST_STATISTIC = 64
_VERIFIED_SCHEMAS: dict[bytes, tuple[dict[bytes, bytes], pq.ParquetSchema]] = {}
"""Metadata and schema that were verified for a schema hash: most files of a hash have the same."""
_MAX_VERIFIED_SCHEMAS = 256
_log = logging.getLogger(__name__)
_SMALL_BYTES = 8 << 20
_TINY_BYTES = 64 << 10
"""Smaller files are not compressed, because that takes longer than writing them; folds and merges
compress the larger files that replace them."""
_TAIL_BYTES = 16 << 10
"""The number of bytes read from a file's end at first; small footers are within them."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written and validated."""

    path: str
    size: int
    num_rows: int
    footer: bytes
    events: EventRange
    statistics: dict[str, Any]


def conform(table: pa.Table, view_set: ViewSet) -> pa.Table:
    """Return the rows as the view set stores them: its columns, its sort order; or `BadInput`.

    Texts may be dictionary arrays, which take less memory and are written faster; in the file they
    are what the view set declares.
    """
    import pyarrow as pa

    declared = view_set.schema
    as_declared = table.schema.equals(declared)
    if not as_declared:
        table = table.select(_match_names(table.column_names, view_set))
        _check_types(table.schema, view_set)
    for column, field in zip(table.columns, declared, strict=True):
        if not field.nullable and column.null_count:
            raise BadInput(f"column {field.name} of view set {view_set.name} must not be null")
    if table[view_set.time_column].null_count:
        raise BadInput(f"the time column {view_set.time_column} must not be null")
    try:
        if not as_declared:
            table = table.cast(_compact_schema(table.schema, view_set)).unify_dictionaries()
        table.validate(full=True)
        if view_set.sort_order:
            table = table.sort_by([(column, "ascending") for column in view_set.sort_order])
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"the rows do not fit view set {view_set.name}: {reason}") from error
    _events(table[view_set.time_column])
    return table


def _match_names(column_names: Sequence[str], view_set: ViewSet) -> list[str]:
    """Return the names of the view set's columns; raise `BadInput` if the rows' differ."""
    expected: list[str] = view_set.schema.names
    if len(set(column_names)) != len(column_names):
        raise BadInput(f"the rows have a column twice: {', '.join(column_names)}")
    missing = [name for name in expected if name not in column_names]
    extra = [name for name in column_names if name not in expected]
    if missing or extra:
        raise BadInput(
            f"the rows do not fit view set {view_set.name}: "
            + "; ".join(
                f"{what} {', '.join(names)}"
                for what, names in (("missing", missing), ("unexpected", extra))
                if names
            )
        )
    return expected


def _check_types(schema: pa.Schema, view_set: ViewSet) -> None:
    for data_type, field in zip(schema.types, view_set.schema, strict=True):
        if not _is_compact(data_type, field.type) and canonical(data_type) != field.type:
            raise BadInput(
                f"column {field.name} of view set {view_set.name} is {field.type}, not {data_type}"
            )


def _compact_schema(schema: pa.Schema, view_set: ViewSet) -> pa.Schema:
    """Return the view set's schema, with dictionaries where the rows have them, except in sort
    columns."""
    import pyarrow as pa

    return pa.schema(
        actual
        if _is_compact(actual.type, field.type) and field.name not in view_set.sort_order
        else field
        for actual, field in zip(schema, view_set.schema, strict=True)
    )


def _is_compact(actual: pa.DataType, declared: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_dictionary(actual)
        and actual.value_type == declared
        and not pa.types.is_dictionary(declared)
    )


def write(store: Store, path: str, rows: pa.Table, view_set: ViewSet) -> WrittenFile:
    """Write conforming rows durably, read the file back and verify every byte and page of it.

    The path must be reserved and unused. After any error the file may exist in any condition:
    it is lost, and the caller starts over under a new name.
    """
    import pyarrow as pa

    started_at = time.perf_counter()
    metadata = _metadata(view_set)
    in_memory = rows.nbytes
    compression = "none" if in_memory < _TINY_BYTES else "zstd"
    with store.create(path) as sink:
        summed = checksums.SummedSink(sink)
        if in_memory > _SMALL_BYTES:
            _write_rows(summed, rows, view_set, metadata, compression)
        else:  # in one piece: calling Python for every page takes longer than writing them
            whole = pa.BufferOutputStream()
            _write_rows(whole, rows, view_set, metadata, compression)
            summed.write(whole.getvalue())
    size = summed.size
    footer = _read_back(store, path, size, summed.checksum)
    parsed = footers.parse(footer, path=path, trusted=True)
    validate(parsed, path=path, num_rows=rows.num_rows, expected_hash=view_set.schema_hash)
    if _log.isEnabledFor(logging.DEBUG):
        figures = {"rows": rows.num_rows, "bytes": size, "path": path, "table": view_set.name}
        seconds = round(time.perf_counter() - started_at, 6)
        _log.debug("file written", extra=figures | {"seconds": seconds})
    return WrittenFile(
        path=path,
        size=size,
        num_rows=rows.num_rows,
        footer=footer,
        events=_events(rows[view_set.time_column]),
        statistics=_statistics(parsed),
    )


@lru_cache(maxsize=64)
def _metadata(view_set: ViewSet) -> dict[bytes, bytes]:
    """Return the Parquet key-value metadata that identifies the view set version."""
    metadata = {
        _VERSION_KEY: str(view_set.version).encode(),
        _ARROW_KEY: base64.b64encode(view_set.schema.serialize()),
    }
    if isinstance(view_set.source, SqlSource):
        metadata[_SOURCE_KEY] = fingerprint(view_set.source).encode()
    return metadata


def _write_rows(
    sink: Any, rows: pa.Table, view_set: ViewSet, metadata: dict[bytes, bytes], compression: str
) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(
        sink,
        rows.schema.remove_metadata(),
        compression=compression,
        store_schema=False,  # the declared one is in the metadata; rows may be more compact
        write_statistics=_trustworthy(rows),
        write_page_index=True,
        write_page_checksum=True,
        sorting_columns=_sorting(view_set),
    ) as writer:
        writer.write_table(rows.replace_schema_metadata(None), row_group_size=_ROW_GROUP_ROWS)
        writer.add_key_value_metadata(metadata)


def _read_back(store: Store, path: str, size: int, checksum: int) -> bytes:
    """Return the footer of a file that was just written, or raise `DamagedFile` unless the store
    holds the bytes with this checksum and the checksum of every page matches."""
    stored_bytes = store.size(path)
    begin = max(0, size - _SMALL_BYTES)  # the tail is all of most files
    tail = store.read(path, begin, size - begin)
    try:
        if stored_bytes != size:
            raise DamagedFile(f"it has {stored_bytes} bytes instead of {size}")
        length = footers.footer_length(tail[-footers.TRAILER_BYTES :], path=path, file_size=size)
        if length + footers.TRAILER_BYTES > len(tail):
            footer = store.read(path, size - footers.TRAILER_BYTES - length, length)
        else:
            footer = footers.split_footer(tail, path=path, file_size=size)

        def read(offset: int, count: int) -> bytes:
            if offset < begin:
                return store.read(path, offset, count)
            return tail[offset - begin : offset - begin + count]

        checksums.verify_file(read, footer, path=path, size=size, checksum=checksum)
    except Damage as error:
        raise DamagedFile(
            f"cannot publish {path}: it differs from what was written: {error}",
            hint="repeat; if it happens again, check the memory and the disks of this machine",
        ) from error
    return footer


def is_ours(footer: bytes) -> bool:
    """Return whether Lakebed wrote the file of a footer: then its pages have checksums."""
    return _VERSION_KEY in footer


def read_footer(store: Store, path: str, file_size: int) -> bytes:
    """Return the footer bytes exactly as at the end of the file."""
    begin = max(0, file_size - _TAIL_BYTES)
    tail = store.read(path, begin, file_size - begin)
    trailer = tail[-footers.TRAILER_BYTES :]
    length = footers.footer_length(trailer, path=path, file_size=file_size)
    if length + footers.TRAILER_BYTES <= len(tail):
        return footers.split_footer(tail, path=path, file_size=file_size)
    return store.read(path, file_size - footers.TRAILER_BYTES - length, length)


def read_rows(
    store: Store,
    path: str,
    *,
    metadata: pq.FileMetaData | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Return a file's rows, verified by the checksums of its pages; `DamagedFile` if they differ.

    ``metadata`` is used instead of the file's own footer.
    """
    with store.open(path) as source, _reading(path):
        file = _open_verified(source, metadata)
        return file.read(columns=None if columns is None else list(columns))


def read_batches(store: Store, path: str, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows, verified like those of `read_rows`."""
    with store.open(path) as source:
        with _reading(path):
            batches = _open_verified(source).iter_batches(batch_rows)
        while True:
            with _reading(path):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


def _open_verified(source: Any, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    import pyarrow.parquet as pq

    return pq.ParquetFile(source, metadata=metadata, page_checksum_verification=True)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Raise pyarrow's errors as `DamagedFile`, with the name of the file."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise DamagedFile(f"cannot read {path}: {reason}", hint=SEE_DAMAGE) from error


def validate(
    parsed: pq.FileMetaData, *, path: str, num_rows: int, expected_hash: bytes | None
) -> None:
    """Raise `DamagedFile` unless the footer has this number of rows and this schema.

    Without an expected hash (files that another system wrote) only the rows are compared.
    """
    if parsed.num_rows != num_rows:
        raise DamagedFile(f"{path} holds {parsed.num_rows} rows, the catalog says {num_rows}")
    grouped = sum(parsed.row_group(group).num_rows for group in range(parsed.num_row_groups))
    if grouped != num_rows:  # readers use these counts
        raise DamagedFile(f"{path} holds {grouped} rows in its row groups, not {num_rows}")
    if expected_hash is None:
        return
    metadata = parsed.metadata or {}
    version, source = metadata.get(_VERSION_KEY), metadata.get(_SOURCE_KEY, b"")
    if version is None or not version.isdigit():
        raise DamagedFile(f"{path} does not say which version of its view set wrote it")
    verified = _VERIFIED_SCHEMAS.get(expected_hash)
    if verified is not None and verified[0] == metadata and verified[1].equals(parsed.schema):
        return
    try:
        schema_hash = hash_schema(
            parsed.schema.to_arrow_schema(), int(version), source.decode("ascii", "replace")
        )
    except (BadInput, ValueError, OSError) as error:
        raise DamagedFile(f"{path} has a schema that cannot be read: {error}") from error
    if schema_hash != expected_hash:
        raise DamagedFile(
            f"{path} has schema hash {schema_hash.hex()[:12]}, expected {expected_hash.hex()[:12]}"
        )
    if len(_VERIFIED_SCHEMAS) >= _MAX_VERIFIED_SCHEMAS:
        _VERIFIED_SCHEMAS.clear()
    _VERIFIED_SCHEMAS[expected_hash] = (metadata, parsed.schema)


@lru_cache(maxsize=64)
def _sorting(view_set: ViewSet) -> Any:
    import pyarrow.parquet as pq

    if not view_set.sort_order:
        return None
    order = [(column, "ascending") for column in view_set.sort_order]
    return pq.SortingColumn.from_ordering(view_set.schema, order)


def _events(times: pa.ChunkedArray) -> EventRange:
    """Return the first and last event in microseconds, widened where the column is finer."""
    import pyarrow as pa
    import pyarrow.compute as pc

    bounds = pc.min_max(times.cast(pa.int64())).as_py()
    if times.type.unit == "ns":
        earliest, latest = bounds["min"] // 1000, -(-bounds["max"] // 1000)
    else:
        scale = {"ms": 1_000, "us": 1}[times.type.unit]
        earliest, latest = bounds["min"] * scale, bounds["max"] * scale
    if earliest <= -_FARTHEST or latest >= _FARTHEST:
        raise BadInput("the rows have times more than 36,000 years from 1970")
    return EventRange(earliest, latest)


def _trustworthy(rows: pa.Table) -> bool | list[str]:
    """Return the columns that get bounds for pruning. Parquet's bounds leave NaN out, so that an
    engine would skip rows with NaN: a column with NaN gets no bounds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    doubtful = {
        field.name
        for field in rows.schema
        if pa.types.is_floating(field.type) and pc.any(pc.is_nan(rows[field.name])).as_py()
    }
    if not doubtful:
        return True
    return [
        field.name
        for field in rows.schema
        if field.name not in doubtful and not pa.types.is_nested(field.type)
    ]


def _statistics(parsed: pq.FileMetaData) -> dict[str, Any]:
    """Return the minimum and maximum of every plain column as JSON values, for pruning in the
    catalog.

    A column whose bounds are unknown, long, or not plain JSON is left out: absent means anything.
    """
    bounds_by_column: dict[str, Any] = {}
    for index in range(parsed.num_columns):
        column = parsed.schema.column(index)
        if column.max_repetition_level or "." in column.path:
            continue
        bounds = [
            parsed.row_group(group).column(index).statistics
            for group in range(parsed.num_row_groups)
        ]
        if any(statistics is None or not statistics.has_min_max for statistics in bounds):
            continue
        if column.logical_type.type in ("TIMESTAMP", "DATE"):  # Python's calendar is too short
            low = min(statistics.min_raw for statistics in bounds)
            high = max(statistics.max_raw for statistics in bounds)
        else:
            low = min(statistics.min for statistics in bounds)
            high = max(statistics.max for statistics in bounds)
        if all(_is_short_json(value) for value in (low, high)):
            bounds_by_column[column.path] = [low, high]
    return bounds_by_column


def _is_short_json(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST_STATISTIC
    return isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))
