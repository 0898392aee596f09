"""Read the records of a caller, in any supported form, as a list of values or as an Arrow table.

Only readability is checked; `validation` decides which records fit a table.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lakebed.errors import BadInput, BadPayload
from lakebed.tables.insert.convert_values import HugeNumber
from lakebed.tables.insert.pandas_index import without_row_numbers

if TYPE_CHECKING:
    import pyarrow as pa

_BYTE = re.compile(r"\(byte (\d+)\)")
_CONSTANTS = (b"NaN", b"Infinity")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SPACE = re.compile(r"[ \t\n\r]*")
_MOST_DIGITS = 4000
"""Python's own limit is hardly larger; it prevents denial of service by one long number."""
_TOO_DEEP = "values are nested too deeply"


def read_records(records: Any) -> list[Any] | pa.Table:
    """Return the records of a JSON array, JSON lines or one JSON object as text or bytes, of one
    dict, of an iterable of dicts, or of any Arrow object. Raise `BadPayload` if the JSON is
    malformed."""
    if isinstance(records, str | bytes | bytearray | memoryview):
        return _read_json(records)
    if isinstance(records, Mapping):
        return [records]
    if isinstance(records, list):
        return records
    if hasattr(records, "__arrow_c_stream__") or hasattr(records, "__arrow_c_array__"):
        return without_row_numbers(_read_arrow(records))
    if isinstance(records, Iterable):
        return list(records)
    raise BadInput(
        f"expected records, not {type(records).__name__}",
        hint="pass JSON text, dicts, or an Arrow table",
    )


def _read_arrow(records: Any) -> pa.Table:
    import pyarrow as pa

    if isinstance(records, pa.Table):
        return records
    try:
        if isinstance(records, pa.RecordBatch):
            return pa.Table.from_batches([records])
        return pa.table(records)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise BadInput(f"cannot read {type(records).__name__} as a table: {error}") from None


def _read_json(text: str | bytes | bytearray | memoryview) -> list[Any]:
    import msgspec

    try:
        data = text.encode() if isinstance(text, str) else bytes(text)
    except UnicodeEncodeError as error:
        raise BadPayload(f"the records are not valid unicode at character {error.start}") from None
    data = data.removeprefix(_BYTE_ORDER_MARK)
    try:
        values = msgspec.json.Decoder().decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            values = _read_exactly(data, error)
        except _NotJson as wrong:
            raise BadPayload(f"the records are not JSON: {wrong}") from None
    is_array = len(values) == 1 and isinstance(values[0], list)
    return values[0] if is_array else values


# ---- what the quick reader refuses --------------------------------------------------------------


class _NotJson(Exception):
    """The text is not JSON. The message gives the problem and its position in our own words."""


def _read_exactly(data: bytes, error: Exception) -> list[Any]:
    """Return the values of a text that the quick reader refused; `_NotJson` if it is not JSON.
    The quick reader refuses the whole text for a number, an escape, ``NaN`` or ``Infinity`` that
    concerns one record only."""
    try:
        text = data.decode()
    except UnicodeDecodeError as wrong:
        raise _NotJson(f"the bytes are not UTF-8{_place(data, wrong.start)}") from None
    if isinstance(error, RecursionError):
        raise _NotJson(_TOO_DEEP)
    reason = str(error).removeprefix("JSON is malformed: ")
    position = _BYTE.search(reason)
    if position and "surrogate" not in reason:
        at = int(position[1])
        if not data.startswith(_CONSTANTS, at):
            raise _NotJson(_BYTE.sub("", reason).strip() + _place(data, at))
    decoder = json.JSONDecoder(
        parse_float=_read_float, parse_int=_read_int, parse_constant=_read_constant
    )
    values = []
    begin = _skip_space(text, 0)
    try:
        while begin < len(text):
            value, end = decoder.raw_decode(text, begin)
            values.append(value)
            begin = _skip_space(text, end)
    except RecursionError:
        raise _NotJson(_TOO_DEEP) from None
    except json.JSONDecodeError as wrong:
        if wrong.pos >= len(text.rstrip()) or wrong.msg.startswith("Unterminated"):
            at = len(text) if text[begin] == "[" else begin
            raise _NotJson("the text ends too early" + _place(data, _count(text, at))) from None
        problem = (wrong.msg[:1].lower() + wrong.msg[1:]).removesuffix(" at")
        raise _NotJson(problem + _place(data, _count(text, wrong.pos))) from None
    return values


def _read_float(digits: str) -> float | HugeNumber:
    number = float(digits)
    return HugeNumber(digits) if math.isinf(number) else number


def _read_int(digits: str) -> int | HugeNumber:
    return int(digits) if len(digits) <= _MOST_DIGITS else HugeNumber(digits)


def _read_constant(name: str) -> HugeNumber | None:
    """Return NULL for ``NaN``, as JSON.stringify writes it, and a value that no column takes for
    ``Infinity`` and ``-Infinity``: they are not JSON, but Python's json module writes them."""
    return None if name == "NaN" else HugeNumber(name)


def _skip_space(text: str, begin: int) -> int:
    space = _SPACE.match(text, begin)
    return space.end() if space else begin


def _count(text: str, characters: int) -> int:
    """Return the number of UTF-8 bytes of the first ``characters`` characters."""
    return len(text[:characters].encode())


def _place(data: bytes, byte: int) -> str:
    line = data.count(b"\n", 0, byte) + 1
    column = byte - (data.rfind(b"\n", 0, byte) + 1) + 1
    return f" at line {line}, byte {column}"
