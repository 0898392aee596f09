"""What records are known by, so that an insert that is repeated under its key is recognised: the
same digest for the same records, however they lie in memory.
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
"""Rows are looked at in pieces of so many, whatever pieces they came in."""


def digest(given: list[Any] | pa.Table) -> bytes:
    """The same for the same records, however they are cut into pieces."""
    if not isinstance(given, list):
        return _digest_table(given)
    try:  # not JSON, in which NULL, NaN and what is infinite are the same
        data = msgspec.msgpack.encode(given, enc_hook=repr, order="deterministic")
    except (TypeError, ValueError, OverflowError, RecursionError):
        data = msgspec.json.encode([_spell(each) for each in given])
    return hashlib.sha256(data).digest()


def _spell(record: Any) -> str:
    """All of a record that no encoding takes; it is among the rejects at best."""
    try:
        return ascii(record)
    except (RecursionError, ValueError):  # deeper, or of more digits, than Python spells
        return show(record)


# ---- Arrow --------------------------------------------------------------------------------------


def _digest_table(table: pa.Table) -> bytes:
    """Of the values alone: Arrow leaves to chance what is in memory behind NULL and after the last
    value, and its own format of messages carries that too."""
    told = hashlib.sha256()
    fields = [(each.name, str(each.type)) for each in table.schema]
    told.update(ascii((table.num_rows, fields)).encode())
    whole = table.unify_dictionaries()
    for begin in range(0, table.num_rows, _ROWS):
        for column in whole.slice(begin, _ROWS).columns:
            _add(told, column.combine_chunks())
    return told.digest()


def _add(told: _Hash, values: pa.Array) -> None:
    """Tell which values are there, and then those, part by part if they have any."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    values = unwrap(values)
    kind = values.type
    if types.is_map(kind) or types.is_union(kind):
        told.update(ascii(as_values(values)).encode())
        return
    told.update(b"%d %d;" % (len(values), values.null_count))
    if types.is_null(kind):
        return
    if values.null_count:
        _add_numbers(told, values.is_valid().cast(pa.uint8()))
    if types.is_struct(kind):
        for each in values.flatten():
            _add(told, each)
    elif is_list(kind):
        _add_numbers(told, pc.list_value_length(values).cast(pa.int64()).fill_null(0))
        _add(told, values.flatten())
    elif types.is_boolean(kind):
        _add_numbers(told, values.drop_null().cast(pa.uint8()))
    elif is_text(kind) or _is_bytes(kind):
        _add_bytes(told, values.cast(pa.large_binary()).drop_null())
    else:
        _add_numbers(told, values.drop_null())


def _add_numbers(told: _Hash, values: pa.Array) -> None:
    """Values of one width, of which none is NULL."""
    width = values.type.bit_width // 8
    begin, end = values.offset * width, (values.offset + len(values)) * width
    if end > begin:
        told.update(memoryview(values.buffers()[1])[begin:end])


def _add_bytes(told: _Hash, values: pa.LargeBinaryArray) -> None:
    """The length of each, and all of them together."""
    import pyarrow.compute as pc

    _add_numbers(told, pc.binary_length(values))
    _, offsets, data = values.buffers()
    if len(values) and data is not None:
        bounds = memoryview(offsets)[values.offset * 8 : (values.offset + len(values) + 1) * 8]
        each = bounds.cast("B").cast("q")
        told.update(memoryview(data)[each[0] : each[-1]])


def _is_bytes(kind: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))
