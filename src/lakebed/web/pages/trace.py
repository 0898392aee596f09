"""One trace: its spans as a waterfall, each with events, links and its logs; and the same for
Perfetto, as Chrome's trace events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakebed.errors import NotFound
from lakebed.lake import Lake
from lakebed.model.time import SECOND, format_instant
from lakebed.query.output.plain import to_objects
from lakebed.web.pages.logs import Line, read_line

_MOST_SPANS = 5_000
_MOST_LINES = 1_000
_AROUND = 3600 * SECOND
"""The distance from its spans within which lines of a trace are searched, in microseconds."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened during a span."""

    offset_ns: int
    name: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Link:
    """Another span that a span names."""

    trace_id: str
    span_id: str
    properties: Mapping[str, str]


@dataclass(slots=True)
class Span:
    """One bar of the waterfall."""

    span_id: str
    parent_span_id: str | None
    name: str
    service: str | None
    kind: str
    status: str
    status_message: str | None
    time: str
    offset_ns: int
    """From the begin of the trace."""
    duration_ns: int
    properties: Mapping[str, str]
    events: Sequence[Event]
    links: Sequence[Link]
    depth: int = 0
    is_orphan: bool = False
    """True if its parent is not in the trace."""
    lines: list[Line] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TracePage:
    """The data of the page."""

    trace_id: str
    time: str
    end: str
    begin_ns: int
    duration_ns: int
    spans: Sequence[Span]
    """In the order of the waterfall: each below its parent."""
    services: Sequence[str]
    errors: int
    is_cut: bool
    lines: Sequence[Line]
    """Lines of the trace that name none of its spans."""
    has_more_lines: bool
    """True if there are lines after those that are shown."""
    chosen: str | None
    """The span that is open."""
    warnings: Sequence[str]


def read_trace(
    lake: Lake, trace_id: str, query: Mapping[str, str], seconds: float | None
) -> TracePage:
    """Return a whole trace; `NotFound` if the lake has no span of it."""
    result = lake.query(
        f"""SELECT span_id, parent_span_id, name, service_name AS service, kind,
            status_code AS status, status_message, time, properties, events, links,
            coalesce(start_time_unix_nano, CAST(time AS BIGINT) * 1000) AS begin_ns, duration_ns
            FROM spans WHERE trace_id = ? ORDER BY begin_ns, span_id LIMIT {_MOST_SPANS + 1}""",
        parameters=[trace_id],
        timeout=seconds,
        admin=False,
    )
    table = result.to_arrow()
    rows = [row for batch in table.to_batches() for row in to_objects(batch, table.column_names)]
    if not rows:
        raise NotFound(
            f"no span of trace {trace_id!r} is in the lake",
            hint="; ".join(result.warnings)
            or "its lines may be there, and its spans may come later",
        )
    is_cut = len(rows) > _MOST_SPANS
    rows = rows[:_MOST_SPANS]
    begin_ns = min(row["begin_ns"] for row in rows)
    end_ns = max(row["begin_ns"] + max(0, row["duration_ns"] or 0) for row in rows)
    spans = arrange([_read_span(row, begin_ns) for row in rows])
    by_id = {span.span_id: span for span in spans}
    unassigned_lines: list[Line] = []
    begin, end = begin_ns // 1000 - _AROUND, end_ns // 1000 + _AROUND
    span_lines, warnings = _read_lines(lake, trace_id, begin, end, seconds)
    for span_id, line in span_lines[:_MOST_LINES]:
        (by_id[span_id].lines if span_id in by_id else unassigned_lines).append(line)
    return TracePage(
        trace_id,
        format_instant(begin_ns // 1000),
        format_instant(end_ns // 1000),
        begin_ns,
        end_ns - begin_ns,
        spans,
        sorted({span.service for span in spans if span.service}),
        sum(span.status == "error" for span in spans),
        is_cut,
        unassigned_lines,
        len(span_lines) > _MOST_LINES,
        query.get("span") if query.get("span") in by_id else None,
        [*result.warnings, *warnings],
    )


def _read_lines(
    lake: Lake, trace_id: str, begin: int, end: int, seconds: float | None
) -> tuple[list[tuple[str | None, Line]], Sequence[str]]:
    """Return the first lines, and one more if there is one, with the spans that they name; and
    warnings."""
    result = lake.query(
        f"""SELECT time, level, service_name AS service, target, msg, properties, trace_id, span_id
            FROM log_entries WHERE trace_id = ? ORDER BY time, msg LIMIT {_MOST_LINES + 1}""",
        begin,
        end,
        parameters=[trace_id],
        timeout=seconds,
        admin=False,
    )
    table = result.to_arrow()
    lines = [
        (row["span_id"], read_line(row))
        for batch in table.to_batches()
        for row in to_objects(batch, table.column_names)
    ]
    return lines, result.warnings


def _read_span(row: Mapping[str, Any], begin_ns: int) -> Span:
    return Span(
        row["span_id"] or "",
        row["parent_span_id"],
        row["name"] or "",
        row["service"],
        row["kind"],
        row["status"],
        row["status_message"],
        row["time"],
        row["begin_ns"] - begin_ns,
        row["duration_ns"] or 0,
        row["properties"] or {},
        [
            Event(
                (event["time_unix_nano"] or row["begin_ns"]) - begin_ns,
                event["name"] or "",
                event["properties"] or {},
            )
            for event in row["events"] or ()
        ],
        [
            Link(link["trace_id"] or "", link["span_id"] or "", link["properties"] or {})
            for link in row["links"] or ()
        ],
    )


def arrange(spans: Sequence[Span]) -> list[Span]:
    """Return each span below its parent, siblings by their begin. Spans whose parents are missing,
    or are each other's, stand at the top."""
    span_ids = {span.span_id for span in spans}
    children: dict[str | None, list[Span]] = {}
    for span in spans:
        parent = span.parent_span_id
        if parent is not None and (parent not in span_ids or parent == span.span_id):
            span.is_orphan = True
            parent = None
        children.setdefault(parent, []).append(span)
    arranged: list[Span] = []
    placed: set[int] = set()

    def place(roots: Iterable[Span]) -> None:
        waiting = [(root, 0) for root in reversed(list(roots))]
        while waiting:
            span, depth = waiting.pop()
            if id(span) in placed:
                continue
            placed.add(id(span))
            span.depth = depth
            arranged.append(span)
            children_of_span = children.get(span.span_id, [])
            waiting += [(child, depth + 1) for child in reversed(children_of_span)]

    place(children.get(None, []))
    for span in spans:
        if id(span) not in placed:
            span.is_orphan = True
            place([span])
    return arranged


def export(page: TracePage) -> dict[str, Any]:
    """Return the trace as Chrome's trace events: a process for each service, and as many threads as
    it takes for spans to lie inside each other or side by side."""
    events: list[dict[str, Any]] = []
    services = (
        [*page.services, None] if any(s.service is None for s in page.spans) else page.services
    )
    for number, service in enumerate(services, start=1):
        name = service or "unknown service"
        events.append({"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}})
        service_spans = [span for span in page.spans if span.service == service]
        for lane, span in assign_lanes(service_spans):
            track = {"pid": number, "tid": lane}
            begin = (page.begin_ns + span.offset_ns) / 1000
            events.append(
                {
                    **track,
                    "ph": "X",
                    "name": span.name,
                    "cat": span.kind,
                    "ts": begin,
                    "dur": max(0, span.duration_ns) / 1000,
                    "args": {
                        "span_id": span.span_id,
                        "parent_span_id": span.parent_span_id,
                        "status": span.status,
                        **span.properties,
                    },
                }
            )
            events += [
                {
                    **track,
                    "ph": "i",
                    "s": "t",
                    "name": event.name,
                    "ts": (page.begin_ns + event.offset_ns) / 1000,
                    "args": dict(event.properties),
                }
                for event in span.events
            ]
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def assign_lanes(spans: Sequence[Span]) -> list[tuple[int, Span]]:
    """Return a lane from 1 for each span, so that two spans of one lane never overlap without one
    of them lying inside the other."""
    lanes: list[list[int]] = []
    assigned = []
    for span in sorted(spans, key=lambda span: (span.offset_ns, -span.duration_ns)):
        begin, end = span.offset_ns, span.offset_ns + max(0, span.duration_ns)
        number = next(
            (lane for lane, ends in enumerate(lanes) if _fits(ends, begin, end)), len(lanes)
        )
        if number == len(lanes):
            lanes.append([])
        lanes[number].append(end)
        assigned.append((number + 1, span))
    return assigned


def _fits(ends: list[int], begin: int, end: int) -> bool:
    """Return True if a span fits into the innermost one of a lane that is still open when it
    begins."""
    while ends and ends[-1] <= begin:
        ends.pop()
    return not ends or end <= ends[-1]
