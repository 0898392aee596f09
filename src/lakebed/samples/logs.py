"""Log records: all severities, texts in many languages, stack traces, every kind of body."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from lakebed.samples import words
from lakebed.samples.attributes import (
    any_value,
    odd_attributes,
    pick_method,
    pick_status,
    pick_user,
    put,
    request_attributes,
)
from lakebed.samples.chance import Chance, Skewed

_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
_SEVERITIES = Skewed((9, 5, 13, 17, 1, 10, 0, 21, *(n for n in range(1, 25) if n % 4 != 1), 10))
_MESSAGES = Skewed(words.MESSAGES, 0.9)
_EVENTS = Skewed(words.EVENT_NAMES, 2.2)
_MEAN_GAP_NS = 1_000_000


def fill_record(record: LogRecord, chance: Chance, operation: str) -> None:
    """Makes one record at the samples' next instant."""
    now = chance.pass_time(_MEAN_GAP_NS)
    severity = _SEVERITIES.pick(chance)
    record.severity_number = severity  # type: ignore[assignment]
    _fill_times(record, chance, now)
    if severity and not chance.happens(0.1):
        level = _LEVELS[(severity - 1) // 4]
        record.severity_text = level if chance.happens(0.8) else level.title()
    if chance.happens(0.4):
        record.trace_id, record.span_id = chance.context()
        record.flags = 1
    put(record.attributes, request_attributes(chance, operation))
    rare = chance.random()
    if rare < 0.04:
        _fill_odd_body(record, chance)
    elif rare < 0.07:
        record.body.string_value = words.LONG_PARAGRAPH * (1 + chance.below(8))
    else:
        record.body.string_value = make_message(chance, operation)
    if severity >= 17:
        kind, message, trace = chance.choice(words.EXCEPTIONS)
        put(
            record.attributes,
            (
                ("exception.type", kind),
                ("exception.message", message),
                ("exception.stacktrace", trace),
            ),
        )
    if chance.happens(0.06):
        record.attributes.extend(odd_attributes(chance))
    if chance.happens(0.02):
        record.dropped_attributes_count = 1 + chance.below(5)
    event = _EVENTS.pick(chance)
    if event:
        record.event_name = event


def make_message(chance: Chance, operation: str) -> str:
    """A log line; most have an id in them, so that few lines are the same."""
    return _MESSAGES.pick(chance).format(
        method=pick_method(chance),
        route=operation,
        status=pick_status(chance),
        millis=int(chance.heavy(12)),
        user=pick_user(chance),
        count=chance.below(50),
        count2=chance.below(50),
        money=f"{chance.heavy(20):.2f}",
        request=chance.request_id(),
    )


def _fill_times(record: LogRecord, chance: Chance, now: int) -> None:
    late = chance.random()
    if late < 0.95:
        record.time_unix_nano = now - int(chance.random() * 5e7)
    if late > 0.02:
        record.observed_time_unix_nano = now + int(chance.random() * 2e8)


def _fill_odd_body(record: LogRecord, chance: Chance) -> None:
    bodies: tuple[Any, ...] = (
        {"event": "ring.reading", "pulse": 61, "spo2": 0.97, "raw": b"\x01\x02\xfe", "ok": True},
        [1, "zwei", 3.0, None, {"vier": [4]}],
        42,
        -0.5,
        True,
        bytes(range(16)),
        {},
        [],
        None,
    )
    kind = chance.below(len(bodies) + 1)
    if kind < len(bodies):
        record.body.CopyFrom(any_value(bodies[kind]))
