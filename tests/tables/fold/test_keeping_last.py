"""Of the rows of a key the last one stays, in its place."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakebed.tables.fold.fold_rows import keep_last
from tests.tables.insert.validating import TIMES

KEYED = pa.schema([("n", pa.int64()), ("s", pa.string()), ("b", pa.bool_()), ("t", TIMES)])


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("xyz"), st.booleans())),
    st.sampled_from([["n"], ["s"], ["n", "s"], ["b", "n", "s"], ["t"], []]),
    st.booleans(),
    st.sampled_from([0, 600]),
)
def test_the_last_row_of_each_key_stays_in_its_place(
    parts: list[tuple[int, str, bool]], key: list[str], chunked: bool, before: int
) -> None:
    """Few are looked at in another way than many."""
    every = [(i % 599, "x", False) for i in range(before)] + parts
    rows = [{"n": n, "s": s, "b": b, "t": n, "place": i} for i, (n, s, b) in enumerate(every)]
    table = pa.Table.from_pylist(rows, KEYED.append(pa.field("place", pa.int64())))
    if chunked:
        table = pa.concat_tables([table[:2], table[2:]])
    last = {tuple(row[name] for name in key): row["place"] for row in rows}
    expected = sorted(last.values()) if key else list(range(len(rows)))
    assert keep_last(table, key)["place"].to_pylist() == expected


def test_rows_without_duplicates_are_the_same_rows() -> None:
    table = pa.table({"n": [3, 1, 2], "s": ["a", "a", "a"]})
    assert keep_last(table, ["n"]) is table
    assert keep_last(table, ["s", "n"]) is table
