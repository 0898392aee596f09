"""The door for records: whatever a caller has, as a list of values or as an Arrow table.

Nothing is judged here but whether it can be read at all; `validation` says which records fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lakebed.errors import BadInput, BadPayload

if TYPE_CHECKING:
    import pyarrow as pa

_BYTE = re.compile(r"\(byte (\d+)\)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_records(records: Any) -> list[Any] | pa.Table:
    """The records of a JSON array, JSON lines or one JSON object as text or bytes, of one dict, of
    an iterable of dicts, or of anything that speaks Arrow. `BadPayload` if the JSON is broken."""
    if isinstance(records, str | bytes | bytearray | memoryview):
        return _read_json(records)
    if isinstance(records, Mapping):
        return [records]
    if isinstance(records, list):
        return records
    if hasattr(records, "__arrow_c_stream__") or hasattr(records, "__arrow_c_array__"):
        return _read_arrow(records)
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
        raise BadPayload(f"the records are not JSON: {_describe(error, data)}") from None
    is_array = len(values) == 1 and isinstance(values[0], list)
    return values[0] if is_array else values


def _describe(error: Exception, data: bytes) -> str:
    """What is wrong and where, in words of the text and not of the library."""
    try:
        data.decode()
    except UnicodeDecodeError as wrong:
        return f"the bytes are not UTF-8{_place(data, wrong.start)}"
    if isinstance(error, RecursionError):
        return "values are nested too deeply"
    reason = str(error).removeprefix("JSON is malformed: ").split(" - at ")[0]
    if found := _BYTE.search(reason):
        return _BYTE.sub("", reason).strip() + _place(data, int(found[1]))
    if "truncated" in reason:
        return "the text ends too early" + _place(data, _find_truncated(data))
    if reason[1:2].islower():  # JSON stays JSON
        reason = reason[:1].lower() + reason[1:]
    return reason + _place(data, _find_truncated(data))


def _find_truncated(data: bytes) -> int:
    """Where the first value begins that cannot be read, if every line is a value; else the end."""
    import msgspec

    begin = 0
    for line in data.splitlines(keepends=True):
        if line.strip():
            try:
                msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return begin
        begin += len(line)
    return len(data)


def _place(data: bytes, byte: int) -> str:
    line = data.count(b"\n", 0, byte) + 1
    column = byte - (data.rfind(b"\n", 0, byte) + 1) + 1
    return f" at line {line}, byte {column}"
