"""Derive a view set from a declaration, with the engines: Spark gives the columns of the SQL,
both engines check the merge SQL, and the embedded one tests whether results add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.errors import BadDefinition, BadInput
from lakebed.model.source import SqlSource
from lakebed.model.view_set import ViewSet
from lakebed.views.sql import merge_check as additive
from lakebed.views.sql import rules as sql
from lakebed.views.sql.declaration import SqlView
from lakebed.views.sql.type_fit import fits

if TYPE_CHECKING:
    import pyarrow as pa

SPARK, EMBEDDED = "spark", "the embedded engine"


@dataclass(frozen=True, slots=True)
class Engines:
    """The analyses of SQL that the engines offer; each raises `BadInput` with its reason."""

    spark_columns: Callable[[str, Mapping[str, ViewSet]], pa.Schema]
    embedded_columns: Callable[[str, Mapping[str, pa.Schema]], pa.Schema]
    embedded_rows: additive.Run


def analyse(
    view: SqlView, version: int, sources: Mapping[str, ViewSet], engines: Engines
) -> ViewSet:
    """Return the view set for a declaration. `BadDefinition` has a line for each problem,
    without the declaration's name."""
    try:
        schema = engines.spark_columns(view.sql, sources)
    except BadInput as error:
        raise BadDefinition([f"{SPARK} refuses sql: {error}"]) from error
    problems = list(_find_column_problems(view, schema))
    if problems:
        raise BadDefinition(problems)
    view_set = as_view_set(view, version, schema, sources)
    problems = list(_find_merge_problems(view_set, view, engines))
    problems = problems or list(_find_sums(view_set, view, sources, engines))
    if problems:
        raise BadDefinition(problems)
    return view_set


def as_view_set(
    view: SqlView, version: int, schema: pa.Schema, sources: Mapping[str, ViewSet]
) -> ViewSet:
    """Return the declaration as a view set with the columns of its SQL."""
    reads = tuple(sorted((name, source.schema_hash) for name, source in sources.items()))
    return ViewSet(
        view.name,
        version,
        schema,
        view.time_column,
        view.sort_order,
        view.retention_us,
        SqlSource(view.sql, view.merge_sql, reads),
        view.target_bytes,
        view.description,
    )


def _find_column_problems(view: SqlView, schema: pa.Schema) -> Iterator[str]:
    from pyarrow import types

    lowered = [name.lower() for name in schema.names]
    for name in sorted({name for name in lowered if lowered.count(name) > 1}):
        yield f"sql gives the column {name} twice"
    gives = f"sql gives {', '.join(schema.names)}"
    if view.time_column not in schema.names:
        yield f"time_column is {view.time_column}, but {gives}"
    else:
        kind = schema.field(view.time_column).type
        if not (types.is_timestamp(kind) and kind.tz):
            yield f"time_column {view.time_column} is {kind}, not a timestamp with a zone"
    for column in view.sort_order:
        if column not in schema.names:
            yield f"sort_order has {column}, but {gives}"
        elif types.is_nested(schema.field(column).type):
            yield f"sort_order has {column}, which is {schema.field(column).type} and has no order"


def _find_merge_problems(view_set: ViewSet, view: SqlView, engines: Engines) -> Iterator[str]:
    """Yield the problems of `merge_sql`: both engines must give the declared columns."""
    engine_columns: dict[str, Callable[[], pa.Schema]] = {
        SPARK: lambda: engines.spark_columns(view.merge_sql, {view.name: view_set}),
        EMBEDDED: lambda: engines.embedded_columns(view.merge_sql, {view.name: view_set.schema}),
    }
    for engine, ask in engine_columns.items():
        try:
            got = ask()
        except BadInput as error:
            yield f"{engine} refuses merge_sql: {error}"
            continue
        if sorted(got.names) != sorted(view_set.schema.names):
            want = ", ".join(view_set.schema.names)
            yield f"merge_sql gives {', '.join(got.names)} on {engine}, but sql gives {want}"
            continue
        for column in view_set.schema:
            kind = got.field(column.name).type
            if not fits(kind, column.type):
                yield (
                    f"merge_sql gives {column.name} as {kind} on {engine}, "
                    f"but sql gives {column.type}"
                )


def _find_sums(
    view_set: ViewSet, view: SqlView, sources: Mapping[str, ViewSet], engines: Engines
) -> Iterator[str]:
    """Yield a problem if partial results do not add up. SQL over several view sets is not tested:
    independent sample rows of two view sets would not match each other as landed rows do."""
    parsed_sql, merged = sql.parse(view.sql), sql.parse(view.merge_sql)
    problem = additive.find_merge_problem(view_set, merged, engines.embedded_rows)
    if problem:
        yield f"merge_sql {problem}"
    elif len(sources) == 1:
        (source,) = sources.values()
        rows = engines.embedded_rows
        problem = additive.find_sql_problem(view_set, source, parsed_sql, merged, rows)
        if problem:
            yield f"sql {problem}"
