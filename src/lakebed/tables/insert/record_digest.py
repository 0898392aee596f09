"""Digest of records, by which an insert that is repeated under its key is recognised. Equal records
have equal digests, independent of their memory layout.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from lakebed.tables.insert.convert_columns import as_values, is_list, is_text, unwrap
from lakebed.tables.insert.validation import show

if TYPE_CHECKING:
    from hashlib import _Hash

    import pyarrow as pa

_ROWS = 65_536
"""Rows are hashed in chunks of this size, independent of the chunks of the table."""


def digest(records: list[Any] | pa.Table) -> bytes:
    """Return the digest of records. It does not depend on the chunks of a table."""
    if not isinstance(records, list):
        return _digest_table(records)
    try:  # not JSON, in which NULL, NaN and what is infinite are the same
        data = msgspec.msgpack.encode(records, enc_hook=repr, order="deterministic")
    except (TypeError, ValueError, OverflowError, RecursionError):
        data = msgspec.json.encode([_spell(record) for record in records])
    return hashlib.sha256(data).digest()


def _spell(record: Any) -> str:
    """Return a text of a record that no encoding accepts; it can only become a reject."""
    try:
        return ascii(record)
    except (RecursionError, ValueError):  # deeper, or of more digits, than Python spells
        return show(record)


# ---- Arrow --------------------------------------------------------------------------------------


def _digest_table(table: pa.Table) -> bytes:
    """Return the digest of the values alone: the memory behind NULL and after the last value is
    undefined in Arrow, and Arrow IPC messages carry it."""
    sha256 = hashlib.sha256()
    fields = [(field.name, str(field.type)) for field in table.schema]
    sha256.update(ascii((table.num_rows, fields)).encode())
    whole = table.unify_dictionaries()
    for begin in range(0, table.num_rows, _ROWS):
        for column in whole.slice(begin, _ROWS).columns:
            _add(sha256, column.combine_chunks())
    return sha256.digest()


def _add(sha256: _Hash, values: pa.Array) -> None:
    """Add the validity of the values, then the values, recursively for nested types."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    values = unwrap(values)
    kind = values.type
    if types.is_map(kind) or types.is_union(kind):
        sha256.update(ascii(as_values(values)).encode())
        return
    sha256.update(b"%d %d;" % (len(values), values.null_count))
    if types.is_null(kind):
        return
    if values.null_count:
        _add_numbers(sha256, values.is_valid().cast(pa.uint8()))
    if types.is_struct(kind):
        for child in values.flatten():
            _add(sha256, child)
    elif is_list(kind):
        _add_numbers(sha256, pc.list_value_length(values).cast(pa.int64()).fill_null(0))
        _add(sha256, values.flatten())
    elif types.is_boolean(kind):
        _add_numbers(sha256, values.drop_null().cast(pa.uint8()))
    elif is_text(kind) or _is_bytes(kind):
        _add_bytes(sha256, values.cast(pa.large_binary()).drop_null())
    else:
        _add_numbers(sha256, values.drop_null())


def _add_numbers(sha256: _Hash, values: pa.Array) -> None:
    """Add values of a fixed width. None may be NULL."""
    width = values.type.bit_width // 8
    begin, end = values.offset * width, (values.offset + len(values)) * width
    if end > begin:
        sha256.update(memoryview(values.buffers()[1])[begin:end])


def _add_bytes(sha256: _Hash, values: pa.LargeBinaryArray) -> None:
    """Add the length of every value, then the bytes of all values."""
    import pyarrow.compute as pc

    _add_numbers(sha256, pc.binary_length(values))
    _, offsets, data = values.buffers()
    if len(values) and data is not None:
        bounds = memoryview(offsets)[values.offset * 8 : (values.offset + len(values) + 1) * 8]
        offset_values = bounds.cast("B").cast("q")
        sha256.update(memoryview(data)[offset_values[0] : offset_values[-1]])


def _is_bytes(kind: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))
