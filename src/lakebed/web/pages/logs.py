"""Log records: a search with a histogram of what it finds, the newest lines first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakebed.errors import BadInput
from lakebed.lake import Lake
from lakebed.model.time import TimeRange, format_instant, to_instant
from lakebed.query.output.plain import to_objects
from lakebed.web.times import plan_bins, read_number, read_range

LEVELS = {1: "fatal", 2: "error", 3: "warn", 4: "info", 5: "debug", 6: "trace"}
DEFAULT = "1h"
_BINS = 80
_LINES = 200
_MOST_LINES = 2_000
_MOST_TEXT = 4_000
_COLUMNS = """time, level, service_name AS service, target, msg, properties, trace_id, span_id,
    exe, computer"""


@dataclass(frozen=True, slots=True)
class Line:
    """One record."""

    time: str
    level: str
    service: str | None
    target: str | None
    msg: str
    is_cut: bool
    properties: Mapping[str, str]
    trace_id: str | None
    span_id: str | None


@dataclass(frozen=True, slots=True)
class Bin:
    """Numbers of records of each level in a stretch of time."""

    begin: str
    end: str
    total: int
    levels: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LogsPage:
    """The data of the page."""

    asked: Mapping[str, str]
    begin: str
    end: str
    total: int
    levels: Mapping[str, int]
    services: Sequence[str]
    """Every service that sent something in the range."""
    bins: Sequence[Bin]
    lines: Sequence[Line]
    older: str | None
    """The end of the next page, if there are more lines."""
    newest: str | None
    """The time of the newest record of all, if nothing was found."""
    is_empty: bool
    """True if the lake has none at all."""
    warnings: Sequence[str]
    mark: str
    """Changes when there is something new to see."""


@dataclass(frozen=True, slots=True)
class Search:
    """A condition on records, as SQL with its parameters."""

    where: str
    parameters: tuple[Any, ...]


def plan_search(query: Mapping[str, str]) -> Search:
    """Return the conditions of an address. ``level`` means that level and all that are worse."""
    conditions: list[str] = []
    parameters: list[Any] = []
    if query.get("level"):
        numbers = {name: number for number, name in LEVELS.items()}
        if query["level"] not in numbers:
            raise BadInput(
                f"{query['level']!r} is no level", hint=f"use one of {', '.join(numbers)}"
            )
        conditions.append("level <= ?")
        parameters.append(numbers[query["level"]])
    for name, condition in (
        ("service", "service_name = ?"),
        ("text", "strpos(lower(msg), lower(?)) > 0"),
        ("trace", "trace_id = ?"),
    ):
        if query.get(name):
            conditions.append(condition)
            parameters.append(query[name])
    return Search(" AND ".join(conditions) or "TRUE", tuple(parameters))


def read_logs(lake: Lake, query: Mapping[str, str], now: int, seconds: float | None) -> LogsPage:
    """Return a search of a range of event time; its three statements run one after the other, so
    that the lines may be a moment newer than the counts."""
    names = ("level", "service", "text", "trace", "begin", "end", "lines", "live")
    fields = {name: query[name] for name in names if query.get(name)}
    within = read_range(fields, now, DEFAULT)
    limit = read_number(fields, "lines", _LINES, _MOST_LINES)
    search = plan_search(fields)
    bins = plan_bins(within, _BINS)

    def ask(sql: str, parameters: Sequence[Any], within_range: TimeRange | None) -> Any:
        begin, end = (
            (None, None) if within_range is None else (within_range.begin, within_range.end)
        )
        return lake.query(
            sql, begin, end, parameters=parameters or None, timeout=seconds, admin=False
        )

    counts_result = ask(
        f"""SELECT (CAST(time AS BIGINT) - {bins.first}) / {bins.width} AS bin, level,
            service_name AS service, count(*) AS n,
            sum(CASE WHEN {search.where} THEN 1 ELSE 0 END) AS found
            FROM log_entries GROUP BY 1, 2, 3""",
        search.parameters,
        within,
    )
    rows = counts_result.to_arrow().to_pylist()
    levels = dict.fromkeys(LEVELS.values(), 0)
    by_bin: list[dict[str, int]] = [{} for _ in range(bins.count)]
    for row in rows:
        if row["found"]:
            name = LEVELS[row["level"]]
            levels[name] += row["found"]
            by_bin[row["bin"]][name] = by_bin[row["bin"]].get(name, 0) + row["found"]
    total = sum(levels.values())
    lines = []
    if total:
        page_rows = ask(
            f"""SELECT {_COLUMNS} FROM log_entries WHERE {search.where}
                ORDER BY time DESC, msg, span_id LIMIT {limit + 1}""",
            search.parameters,
            within,
        ).to_arrow()
        lines = [
            read_line(row)
            for batch in page_rows.to_batches()
            for row in to_objects(batch, page_rows.column_names)
        ]
    lines, older = _cut(lines, limit)
    newest = None
    if not rows:
        latest = ask("SELECT max(time) AS latest FROM log_entries", (), None).to_arrow()
        value = latest["latest"][0].as_py()
        newest = None if value is None else format_instant(to_instant(value))
    return LogsPage(
        fields,
        format_instant(within.begin),
        format_instant(within.end),
        total,
        {name: count for name, count in levels.items() if count},
        sorted({row["service"] for row in rows if row["service"]}),
        [
            Bin(
                format_instant(bins.begin_of(number)),
                format_instant(bins.begin_of(number + 1)),
                sum(counts.values()),
                counts,
            )
            for number, counts in enumerate(by_bin)
        ],
        lines,
        older,
        newest,
        not rows and newest is None and not counts_result.warnings,
        counts_result.warnings,
        f"{total}:{lines[0].time if lines else ''}",
    )


def _cut(lines: Sequence[Line], limit: int) -> tuple[list[Line], str | None]:
    """Return the lines of one page, and where the next one ends. Lines of one instant stay
    together, so that none is lost between two pages; only more than a page of them are split."""
    if len(lines) <= limit:
        return list(lines), None
    cut_time = lines[limit].time
    whole_instants = [line for line in lines[:limit] if line.time != cut_time]
    if not whole_instants:
        return list(lines[:limit]), cut_time
    return whole_instants, format_instant(to_instant(cut_time) + 1)


def read_line(row: Mapping[str, Any]) -> Line:
    message = row["msg"] or ""
    return Line(
        row["time"],
        LEVELS[row["level"]],
        row["service"],
        row["target"],
        message[:_MOST_TEXT],
        len(message) > _MOST_TEXT,
        row["properties"] or {},
        row["trace_id"],
        row["span_id"],
    )
