"""Traces: a search over whole traces, newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakebed.errors import BadInput
from lakebed.lake import Lake
from lakebed.model.time import format_instant, parse_duration, to_instant
from lakebed.query.output.plain import to_objects
from lakebed.web.times import read_number, read_range

DEFAULT = "1h"
_TRACES = 100
_MOST_TRACES = 1_000
_LASTS = """max(coalesce(end_time_unix_nano, CAST(time AS BIGINT) * 1000))
    - min(coalesce(start_time_unix_nano, CAST(time AS BIGINT) * 1000))"""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One trace, as far as its spans began in the range."""

    trace_id: str
    time: str
    name: str
    """The name of the span without a parent, or of the first."""
    service: str | None
    services: int
    spans: int
    errors: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class TracesPage:
    """The data of the page."""

    asked: Mapping[str, str]
    begin: str
    end: str
    traces: Sequence[TraceRow]
    is_cut: bool
    older: Mapping[str, str] | None
    """The parameters of an address for the traces that began before these."""
    longest_ns: int
    services: Sequence[str]
    newest: str | None
    """The time of the newest span, if the range has none."""
    is_empty: bool
    """True if the lake has none at all."""
    warnings: Sequence[str]


def read_traces(
    lake: Lake, query: Mapping[str, str], now: int, seconds: float | None
) -> TracesPage:
    """Return traces with a span that fits, and that took long enough as a whole."""
    names = ("service", "name", "status", "longer", "begin", "end", "traces", "until", "after")
    fields = {name: query[name] for name in names if query.get(name)}
    within = read_range(fields, now, DEFAULT)
    limit = read_number(fields, "traces", _TRACES, _MOST_TRACES)
    having, parameters = _plan_search(fields)
    result = lake.query(
        f"""SELECT trace_id, min(time) AS time,
            first_value(name ORDER BY parent_span_id IS NOT NULL, time, span_id) AS name,
            first_value(service_name ORDER BY parent_span_id IS NOT NULL, time, span_id) AS service,
            count(DISTINCT service_name) AS services, count(*) AS spans,
            sum(CASE WHEN status_code = 'error' THEN 1 ELSE 0 END) AS errors,
            {_LASTS} AS duration_ns
            FROM spans WHERE trace_id IS NOT NULL GROUP BY trace_id HAVING {having}
            ORDER BY time DESC, trace_id LIMIT {limit + 1}""",
        within.begin,
        within.end,
        parameters=parameters or None,
        timeout=seconds,
        admin=False,
    )
    table = result.to_arrow()
    rows = [
        TraceRow(**row)
        for batch in table.to_batches()
        for row in to_objects(batch, table.column_names)
    ]
    services = lake.query(
        "SELECT DISTINCT service_name AS service FROM spans",
        within.begin,
        within.end,
        timeout=seconds,
        admin=False,
    ).to_arrow()["service"]
    newest = None
    if not len(services):
        latest = lake.query("SELECT max(time) AS latest FROM spans", timeout=seconds, admin=False)
        value = latest.to_arrow()["latest"][0].as_py()
        newest = None if value is None else format_instant(to_instant(value))
    page_rows = rows[:limit]
    return TracesPage(
        fields,
        format_instant(within.begin),
        format_instant(within.end),
        page_rows,
        len(rows) > limit,
        {"until": page_rows[-1].time, "after": page_rows[-1].trace_id}
        if len(rows) > limit
        else None,
        max((trace.duration_ns for trace in page_rows), default=0),
        sorted(service for service in services.to_pylist() if service),
        newest,
        not len(services) and newest is None and not result.warnings,
        result.warnings,
    )


def _plan_search(query: Mapping[str, str]) -> tuple[str, list[Any]]:
    """Return the conditions of an address: of one and the same span, and of the whole trace. Later
    pages begin below a trace, not at an earlier end: that would cut those which were still
    running."""
    conditions: list[str] = []
    parameters: list[Any] = []
    if query.get("service"):
        conditions.append("service_name = ?")
        parameters.append(query["service"])
    if query.get("name"):
        conditions.append("strpos(lower(name), lower(?)) > 0")
        parameters.append(query["name"])
    if query.get("status"):
        if query["status"] not in ("ok", "error", "unset"):
            raise BadInput(f"{query['status']!r} is no status", hint="use ok, error or unset")
        conditions.append("status_code = ?")
        parameters.append(query["status"])
    having = "TRUE"
    if conditions:
        having = f"sum(CASE WHEN {' AND '.join(conditions)} THEN 1 ELSE 0 END) > 0"
    if query.get("longer"):
        having += f" AND {_LASTS} >= ?"
        parameters.append(parse_duration(query["longer"]) * 1000)
    if query.get("until"):
        having += " AND (CAST(min(time) AS BIGINT) < ? OR"
        having += " (CAST(min(time) AS BIGINT) = ? AND trace_id > ?))"
        until = to_instant(query["until"])
        parameters += [until, until, query.get("after", "")]
    return having, parameters
