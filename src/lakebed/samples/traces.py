"""Trace trees: requests that walk through several services, with events, links, errors and a few
spans that are much slower than the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from lakebed.samples import words
from lakebed.samples.attributes import odd_attributes, put, request_attributes
from lakebed.samples.chance import Chance, Skewed

_MEAN_GAP_NS = 20_000_000
_TREE_SIZES = Skewed((5, 3, 9, 1, 14, 2, 30, 60), 0.7)


@dataclass(slots=True)
class SpanTarget:
    """The destination of one instance's spans: its service's operations and one list per scope."""

    operations: tuple[str, ...]
    scopes: list[Any]


@dataclass(frozen=True, slots=True)
class _Parent:
    trace_id: bytes
    span_id: bytes
    begin_ns: int
    end_ns: int
    kind: int
    target: SpanTarget


def fill_traces(targets: list[SpanTarget], chance: Chance, spans: int) -> None:
    """Makes so many spans in trees, each tree spread over the given targets."""
    while spans > 0:
        size = min(spans, _TREE_SIZES.pick(chance))
        _fill_tree(targets, chance, size)
        spans -= size


def _fill_tree(targets: list[SpanTarget], chance: Chance, size: int) -> None:
    begin = chance.pass_time(_MEAN_GAP_NS)
    lasts = int(chance.heavy(3_000_000)) * (40 if chance.happens(0.01) else 1)
    trace_id = chance.trace_id()
    root = _Parent(trace_id, b"", begin, begin + lasts, Span.SPAN_KIND_UNSPECIFIED, targets[0])
    parents = [_add_span(root, chance, chance.choice(targets))]
    for _ in range(size - 1):
        # Mostly below the latest span, so that trees are deep as well as broad.
        parent = parents[-1] if chance.happens(0.5) else chance.choice(parents)
        calls = parent.kind == Span.SPAN_KIND_CLIENT
        parents.append(
            _add_span(parent, chance, chance.choice(targets) if calls else parent.target)
        )


def _add_span(parent: _Parent, chance: Chance, target: SpanTarget) -> _Parent:
    span = chance.choice(target.scopes).spans.add()
    lasts = parent.end_ns - parent.begin_ns
    begin = (
        parent.begin_ns + int(lasts * 0.3 * chance.random()) if parent.span_id else parent.begin_ns
    )
    end = begin + int((parent.end_ns - begin) * chance.between(0.4, 1.0))
    operation = chance.choice(target.operations)
    span.trace_id = parent.trace_id
    span.span_id = chance.span_id()
    span.parent_span_id = parent.span_id
    span.name = operation
    span.kind = _pick_kind(parent, chance)
    span.start_time_unix_nano = begin
    span.end_time_unix_nano = end
    span.flags = 0x301 if parent.kind == Span.SPAN_KIND_CLIENT else 0x101
    put(span.attributes, request_attributes(chance, operation))
    if chance.happens(0.05):
        span.attributes.extend(odd_attributes(chance))
    if chance.happens(0.05):
        span.trace_state = "vendor=t61rcWkgMzE,rojo=00f067aa0ba902b7"
    _fill_outcome(span, chance, begin, end)
    if chance.happens(0.04):
        _add_links(span, chance)
    chance.remember(span.trace_id, span.span_id)
    return _Parent(span.trace_id, span.span_id, begin, end, span.kind, target)


def _pick_kind(parent: _Parent, chance: Chance) -> Any:
    if not parent.span_id:
        return Span.SPAN_KIND_SERVER if chance.happens(0.8) else Span.SPAN_KIND_CONSUMER
    if parent.kind == Span.SPAN_KIND_CLIENT:
        return Span.SPAN_KIND_SERVER
    return chance.choice(
        (
            Span.SPAN_KIND_CLIENT,
            Span.SPAN_KIND_CLIENT,
            Span.SPAN_KIND_INTERNAL,
            Span.SPAN_KIND_INTERNAL,
            Span.SPAN_KIND_PRODUCER,
            Span.SPAN_KIND_UNSPECIFIED,
        )
    )


def _fill_outcome(span: Span, chance: Chance, begin: int, end: int) -> None:
    luck = chance.random()
    if luck < 0.05:
        kind, message, trace = chance.choice(words.EXCEPTIONS)
        span.status.code = Status.STATUS_CODE_ERROR
        span.status.message = message
        event = span.events.add(name="exception", time_unix_nano=end)
        put(
            event.attributes,
            (
                ("exception.type", kind),
                ("exception.message", message),
                ("exception.stacktrace", trace),
            ),
        )
    elif luck < 0.2:
        span.status.code = Status.STATUS_CODE_OK
    while chance.happens(0.15):
        when = begin + int((end - begin) * chance.random())
        event = span.events.add(name=chance.choice(("cache.miss", "retry", "消息")))
        event.time_unix_nano = when
        put(event.attributes, (("attempt", chance.below(4)), ("key", chance.request_id())))
    if chance.happens(0.01):
        span.dropped_attributes_count = chance.below(9)
        span.dropped_events_count = chance.below(9)
        span.dropped_links_count = chance.below(9)


def _add_links(span: Span, chance: Chance) -> None:
    for _ in range(1 + chance.below(3)):
        link = span.links.add(flags=0x101)
        link.trace_id, link.span_id = chance.context()
        if chance.happens(0.5):
            link.trace_state = "rojo=1"
            link.dropped_attributes_count = 2
        put(link.attributes, (("link.reason", "batch"), ("position", chance.below(100))))
