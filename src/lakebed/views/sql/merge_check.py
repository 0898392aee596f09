"""A test whether partial results add up: a view set's partitions are made range by range and merged
in any grouping, so both ways must give the same rows. It runs on sample rows when a view set is
declared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pyarrow as pa

from lakebed.errors import BadInput
from lakebed.model.source import SqlSource
from lakebed.model.view_set import ViewSet
from lakebed.views.sql import rules as sql
from lakebed.views.sql.rules import Parsed
from lakebed.views.sql.sample_rows import make_rows

Run = Callable[[str, Mapping[str, pa.Table]], pa.Table]
"""Runs a SELECT over tables; `BadInput` if it cannot."""

_SIZES = [(20, 0), (20, 20), (24, 12), (8, 30), (90, 90), (250, 200)]
"""The numbers of rows in the two parts: few, in which mistakes show, and many, so that counts pass
limits that the SQL may have.
"""


def find_merge_problem(view_set: ViewSet, merged: Parsed, run: Run) -> str | None:
    """Return the reason why ``merge_sql`` does not add up, or None: nothing must merge to nothing,
    and merging two parts that were merged before must be like merging everything at once."""

    def merge(rows: pa.Table) -> pa.Table:
        return _merge(view_set, rows, run)

    try:
        if merge(view_set.schema.empty_table()).num_rows:
            return "gives rows where there are none; group by a column"
        for seed, (first_rows, second_rows) in enumerate(_SIZES):
            first = make_rows(view_set.schema, first_rows, 2 * seed, merged.picked)
            second = make_rows(view_set.schema, second_rows, 2 * seed + 1, merged.picked)
            at_once = merge(pa.concat_tables([first, second]))
            in_parts = merge(pa.concat_tables([merge(first), merge(second)]))
            difference = _compare(at_once, in_parts)
            if difference:
                return (
                    f"does not add up: merging two parts that were merged before gives other rows "
                    f"than merging everything at once ({difference})"
                )
    except (BadInput, pa.ArrowException) as error:
        return f"fails on made-up rows: {str(error).splitlines()[0]}"
    return None


def find_sql_problem(
    view_set: ViewSet, source: ViewSet, parsed_sql: Parsed, merged: Parsed, run: Run
) -> str | None:
    """Return the reason why the results of ``sql`` for parts do not add up to its result for
    everything, or None. None also where the embedded engine cannot run it: then the answer is
    unknown."""
    assert isinstance(view_set.source, SqlSource)  # noqa: S101
    text = view_set.source.sql
    picked, used = parsed_sql.picked, parsed_sql.columns
    if isinstance(source.source, SqlSource):
        below = sql.parse(source.source.merge_sql)
        picked, used = picked | below.picked, used | below.columns

    def query(rows: pa.Table) -> pa.Table:
        read = _merge(source, rows, run) if isinstance(source.source, SqlSource) else rows
        return _as_declared(run(text, {source.name: read}), view_set.schema)

    try:
        if query(source.schema.empty_table()).num_rows:
            return "gives rows where there are none; group by a column"
        for seed, (first_rows, second_rows) in enumerate(_SIZES):
            first = make_rows(source.schema, first_rows, 2 * seed, picked, used)
            second = make_rows(source.schema, second_rows, 2 * seed + 1, picked, used)
            whole = _merge(view_set, query(pa.concat_tables([first, second])), run)
            parts = pa.concat_tables([query(first), query(second)])
            difference = _compare(whole, _merge(view_set, parts, run), merged.picked)
            if difference:
                return (
                    f"does not add up with merge_sql: two ranges merged give other rows than one "
                    f"range with the same records ({difference})"
                )
    except (BadInput, pa.ArrowException):
        return None
    return None


def _merge(view_set: ViewSet, rows: pa.Table, run: Run) -> pa.Table:
    assert isinstance(view_set.source, SqlSource)  # noqa: S101
    return _as_declared(run(view_set.source.merge_sql, {view_set.name: rows}), view_set.schema)


def _as_declared(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    missing = [name for name in schema.names if name not in rows.column_names]
    if missing:
        raise BadInput(f"it gives no column {missing[0]}")
    return pa.table([_cast(rows[field.name], field.type) for field in schema], schema=schema)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> Any:
    try:
        return column.cast(kind)
    except pa.ArrowException:  # nested types of other field names
        return pa.array(column.to_pylist(), kind)


def _compare(at_once: pa.Table, in_parts: pa.Table, ignored: Collection[str] = ()) -> str | None:
    """Return the first difference of two sets of rows, or None; sums of floats may differ by their
    last digits."""
    if at_once.num_rows != in_parts.num_rows:
        return f"{in_parts.num_rows} rows, not {at_once.num_rows}"
    names = [name for name in at_once.column_names if name.lower() not in ignored]
    for one, other in zip(_rows(at_once, names), _rows(in_parts, names), strict=True):
        for name, expected, actual in zip(names, one, other, strict=True):
            if not _is_same(expected, actual):
                return f"{name} {_show(actual)}, not {_show(expected)}"
    return None


def _rows(table: pa.Table, names: list[str]) -> list[tuple[Any, ...]]:
    columns = [table[name].to_pylist() for name in names]
    return sorted(zip(*columns, strict=True), key=lambda row: [_sort_key(value) for value in row])


def _sort_key(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _is_same(expected: Any, actual: Any) -> bool:
    if isinstance(expected, float) and isinstance(actual, float):
        both_nan = math.isnan(expected) and math.isnan(actual)
        return both_nan or math.isclose(expected, actual, rel_tol=1e-6)
    return bool(expected == actual)


def _show(value: Any) -> str:
    return str(value) if len(str(value)) <= 40 else f"{str(value)[:40]}…"
