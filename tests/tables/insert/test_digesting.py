"""Equal records have equal digests, wherever they came from and however they lie in memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakebed.tables.insert.record_digest import digest

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [5, None, -1, 7]),
    "small": (pa.int8(), [5, None, -1, 7]),
    "float": (pa.float64(), [0.5, None, float("nan"), -0.0]),
    "bool": (pa.bool_(), [True, None, False, True]),
    "text": (pa.string(), ["x", None, "", "üü"]),
    "large": (pa.large_string(), ["x", None, "", "üü"]),
    "text view": (pa.string_view(), ["x", None, "", "longer than twelve bytes"]),
    "bytes": (pa.binary(), [b"x", None, b"", b"\xff"]),
    "bytes view": (pa.binary_view(), [b"x", None, b"", b"longer than twelve bytes"]),
    "fixed": (pa.binary(2), [b"xy", None, b"\0\0", b"zz"]),
    "time": (pa.timestamp("us", "UTC"), [datetime(2026, 3, 2, tzinfo=UTC), None] * 2),
    "date": (pa.date32(), [date(2026, 3, 2), None] * 2),
    "decimal": (pa.decimal128(5, 2), [Decimal("1.25"), None] * 2),
    "words": (pa.dictionary(pa.int32(), pa.string()), ["x", None, "y", "x"]),
    "list": (pa.list_(pa.int64()), [[1, None], None, [], [3]]),
    "list view": (pa.list_view(pa.int64()), [[1, None], None, [], [3]]),
    "pair": (pa.list_(pa.int64(), 2), [[1, None], None, [2, 3], [4, 5]]),
    "texts": (pa.list_(pa.string()), [["x", None], None, [], ["y"]]),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
        [{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}, {"a": 2, "b": []}],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, [], [("b", None)]]),
    "nothing": (pa.null(), [None] * 4),
}


def _column(name: str) -> pa.Table:
    kind, values = COLUMNS[name]
    return pa.table({"c": pa.array(values, kind)})


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_have_one_digest_in_whatever_pieces(name: str) -> None:
    table = _column(name)
    within = pa.concat_tables([table.slice(2), table, table.slice(0, 1)]).combine_chunks()
    pieces = [
        pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1)]),
        within.slice(2, 4),
        pa.table({"c": table["c"]}, metadata={"made": "elsewhere"}),
    ]
    assert {digest(piece) for piece in pieces} == {digest(table)}


@pytest.mark.parametrize(
    "name", [column_name for column_name in COLUMNS if column_name != "nothing"]
)
def test_other_rows_have_other_digests(name: str) -> None:
    table = _column(name)
    other_tables = [
        table.slice(1),
        table.slice(0, 3),
        pa.concat_tables([table.slice(1), table.slice(0, 1)]),
        pa.concat_tables([table.slice(0, 2), table.slice(1, 1), table.slice(3)]),
        table.rename_columns(["d"]),
        table.append_column("d", table["c"]),
    ]
    assert len({digest(distinct) for distinct in [table, *other_tables]}) == 1 + len(other_tables)


def test_what_is_in_memory_behind_null_does_not_count() -> None:
    validity = np.packbits([1, 0, 1, 0], bitorder="little").tobytes()
    clean = pa.array([1, None, 3, None], pa.int64())
    for noise in (5, 6):
        numbers = np.array([1, noise, 3, noise], np.int64)
        buffers = [pa.py_buffer(validity), pa.py_buffer(numbers)]
        dirty = pa.Array.from_buffers(pa.int64(), 4, buffers)
        assert dirty.equals(clean)
        assert digest(pa.table({"c": dirty})) == digest(pa.table({"c": clean}))


def test_a_text_behind_null_does_not_count() -> None:
    clean = pa.array(["a", None, "b"])
    for noise in ("x", "longer"):
        buffers = pa.array(["a", noise, "b"]).buffers()
        validity = pa.py_buffer(np.packbits([1, 0, 1], bitorder="little").tobytes())
        dirty = pa.Array.from_buffers(pa.string(), 3, [validity, *buffers[1:]])
        assert dirty.equals(clean)
        assert digest(pa.table({"c": dirty})) == digest(pa.table({"c": clean}))


@pytest.mark.parametrize(
    "cut", [lambda rows: rows.slice(0, 3), lambda rows: rows.take(pa.array([0, 1, 2]))]
)
def test_what_is_in_memory_after_the_last_row_does_not_count(
    cut: Callable[[pa.Table], pa.Table],
) -> None:
    for last in (False, True):
        rows = pa.table({"b": [True, None, False, last], "i": [1, 2, None, int(last)]})
        short = pa.table({"b": [True, None, False], "i": [1, 2, None]})
        assert digest(cut(rows)) == digest(short)


def test_many_rows_have_one_digest_in_whatever_pieces() -> None:
    table = pa.table({"i": range(200_000), "t": [str(number) for number in range(200_000)]})
    pieces = pa.concat_tables([table.slice(0, 99_999), table.slice(99_999)])
    assert digest(pieces) == digest(table)
    assert digest(table.slice(0, 199_999)) != digest(table)


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "nothing"])
def test_other_values_and_another_order_have_another_digest(name: str) -> None:
    kind, values = COLUMNS[name]
    changed = [
        [None, *values[1:]],
        values[:-1],
        [*values, None],
        [values[1], values[0], *values[2:]],
    ]
    changed += [[values[0]] * 4, [values[2]] * 4, [None] * 4, []]
    digests = [digest(pa.table({"c": pa.array(column, kind)})) for column in [values, *changed]]
    assert len(set(digests)) == len({str(column) for column in [values, *changed]})


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.string(), ["ab", "c"], ["a", "bc"]),
        (pa.binary(), [b"", b"ab"], [b"ab", b""]),
        (pa.list_(pa.int64()), [[1], [2, 3]], [[1, 2], [3]]),
        (pa.list_(pa.int64()), [[], None], [None, []]),
        (pa.list_(pa.string()), [["a", "b"]], [["a", "c"]]),
        (pa.bool_(), [True, False], [False, True]),
        (pa.int64(), [1, None], [None, 1]),
        (pa.float64(), [0.0], [-0.0]),
        (pa.struct([("a", pa.int64())]), [{"a": None}], [None]),
    ],
)
def test_values_that_lie_alike_in_memory_have_different_digests(
    kind: pa.DataType, one: list[Any], other: list[Any]
) -> None:
    tables = [pa.table({"c": pa.array(values, kind)}) for values in (one, other)]
    assert digest(tables[0]) != digest(tables[1])
