"""Whatever bytes a block holds, it ends as rows or as a failure with a reason, and its neighbours
do not notice. A failing case prints its seed; ``LAKEBED_FUZZ_SEED=…`` repeats it.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import textwrap
from types import ModuleType
from typing import Any

import pytest
from benchmarks import otlp_loops
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakebed.decode import logs, metrics, spans
from lakebed.decode.blocks import LandedBlock
from lakebed.samples.generator import Generator
from tests.conftest import CAMPAIGN
from tests.decode.hostile import damage_bytes, damage_fields, field, nested_value, varint
from tests.decode.parts import assert_same, block, blocks

SIGNALS: dict[str, tuple[ModuleType, Any, Any]] = {
    "logs": (logs, otlp_loops.decode_logs, ExportLogsServiceRequest),
    "metrics": (metrics, otlp_loops.decode_metrics, ExportMetricsServiceRequest),
    "traces": (spans, otlp_loops.decode_spans, ExportTraceServiceRequest),
}
every_signal = pytest.mark.parametrize("signal", SIGNALS)
CASES = 4000 if CAMPAIGN else 70


def record(*fields: bytes) -> bytes:
    """A request with one log record made of these fields."""
    return field(1, field(2, field(2, b"".join(fields))))


def value_of(value: bytes) -> bytes:
    """A request with one log record whose one attribute has these bytes for a value."""
    return record(field(6, field(1, b"key") + field(2, value)))


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("LAKEBED_FUZZ_SEED") or random.SystemRandom().getrandbits(32))
    print(f"repeat with LAKEBED_FUZZ_SEED={seed}")  # noqa: T201
    return random.Random(seed)


def check(signal: str, payload: bytes) -> str:
    """Decode damaged bytes both ways and, if OpenTelemetry can read them, compare with it."""
    module, loops, message = SIGNALS[signal]
    landed = block(payload, signal)
    fast, slow = module.decode([landed]), module.decode([landed], slowly=True)
    if slow.failures:
        # The fast way may be more lenient, never the other way round.
        assert fast.table.num_rows == 0 or not fast.failures
        return "failed"
    assert not fast.failures
    assert_same(fast.table, slow.table)
    try:
        message.FromString(payload)
    except DecodeError:
        return "read"
    assert_same(fast.table, loops([landed]))
    return "compared"


@every_signal
def test_damaged_bytes_end_as_rows_or_as_a_failure(signal: str, rng: random.Random) -> None:
    samples = [Generator(5).serialized(signal, size, services=1) for size in (1, 3, 8)]
    for _ in range(CASES):
        check(signal, damage_bytes(rng.choice(samples), rng))


@every_signal
def test_damaged_fields_are_read_as_opentelemetry_reads_them(
    signal: str, rng: random.Random
) -> None:
    samples = [Generator(6).serialized(signal, size, services=1) for size in (1, 3, 8)]
    descriptor = SIGNALS[signal][2].DESCRIPTOR
    found = [
        check(signal, damage_fields(rng.choice(samples), descriptor, rng)) for _ in range(CASES)
    ]
    assert found.count("compared") > CASES // 3


@every_signal
def test_one_bad_block_costs_only_its_own_rows(signal: str) -> None:
    module, loops, _ = SIGNALS[signal]
    good = blocks(Generator(7).stream(signal, requests=31, size=20), signal)
    bad = block(good[3].payload[:-7], signal, number=99)
    alien = LandedBlock("block-98", "s", "p", 1, "otlp/profiles+protobuf", b"")
    decoded = module.decode([*good[:11], bad, *good[11:20], alien, *good[20:]])
    assert [failure.block_id for failure in decoded.failures] == ["block-99", "block-98"]
    assert all(failure.reason for failure in decoded.failures)
    assert_same(decoded.table, loops(good))


@every_signal
def test_every_truncation_is_a_failure_or_shorter(signal: str) -> None:
    payload = Generator(8).serialized(signal, 2, services=1)
    module, _, _ = SIGNALS[signal]
    cuts = [block(payload[:size], signal, size) for size in range(0, len(payload), 9)]
    decoded = module.decode(cuts)
    # Only a cut before the first byte leaves a whole message, an empty one.
    assert [failure.block_id for failure in decoded.failures] == [
        each.block_id for each in cuts if each.payload
    ]
    assert decoded.table.num_rows == 0


def test_values_nested_beyond_reason_fail() -> None:
    decoded = logs.decode(blocks([value_of(nested_value(n)) for n in (10, 10_000)], "logs"))
    (failure,) = decoded.failures
    assert failure.block_id == "block-1"
    assert "more than 100 deep" in failure.reason
    (row,) = decoded.table.to_pylist()
    assert row["properties"] == [("key", "[" * 10 + '"x"' + "]" * 10)]


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(record(varint(6 << 3 | 2) + b"\xff" * 9 + b"\x01"), id="absurd length"),
        pytest.param(record(varint(6 << 3 | 2) + b"\xff\xff\xff\xff\x07"), id="2 GB length"),
        pytest.param(record(varint(99 << 3 | 2) + b"\xff" * 9 + b"\x01x"), id="unknown, absurd"),
        pytest.param(record(b"\x02\x01x"), id="field number 0"),
        pytest.param(record(b"\x0e"), id="wire type 6"),
        pytest.param(record(b"\x4c"), id="end of no group"),
        pytest.param(record(b"\x4b"), id="group without end"),
        pytest.param(value_of(b"\x0a\x05abc"), id="value cut short"),
        pytest.param(value_of(b"\x2a\x02\x0a\x05"), id="array cut short"),
        pytest.param(b"\x0a\xff\xff\xff\xff\x0f" + b"x" * 100, id="resource of 4 GB"),
    ],
)
def test_what_is_no_protobuf_fails_with_a_reason(payload: bytes) -> None:
    decoded = logs.decode(blocks([payload, record(field(3, b"INFO"))], "logs"))
    (failure,) = decoded.failures
    assert failure.block_id == "block-0"
    assert failure.reason
    assert decoded.table["severity_text"].to_pylist() == ["INFO"]


def test_unknown_fields_and_groups_are_ignored() -> None:
    group = b"\x9b\x06" + b"\x08\x05" + b"\x9c\x06"
    payload = record(group, field(3, b"INFO"), field(98, b"more"), varint(97 << 3) + b"\x01")
    (row,) = logs.decode([block(payload, "logs")]).table.to_pylist()
    assert (row["severity_text"], row["problems"]) == ("INFO", None)


def test_messages_given_in_parts_are_merged() -> None:
    resource = [field(1, field(1, field(1, key) + field(2, b"\x0a\x01v"))) for key in (b"a", b"b")]
    scope = field(2, field(1, field(1, b"first")) + field(1, field(2, b"2")) + field(2, b""))
    payload = field(1, resource[0] + scope + resource[1])
    landed = [block(payload, "logs")]
    decoded = logs.decode(landed)
    (row,) = decoded.table.to_pylist()
    assert row["process_properties"] == '{"a":"v","b":"v"}'
    assert (row["scope_name"], row["scope_version"]) == ("first", "2")
    assert_same(decoded.table, otlp_loops.decode_logs(landed))


def test_a_value_of_several_kinds_is_the_last_of_them() -> None:
    text, number = b"\x0a\x01x", b"\x18\x07"
    landed = blocks(
        [
            value_of(text + number),
            value_of(number + text),
            record(field(5, number + text)),
            record(field(5, text), field(5, number)),
        ],
        "logs",
    )
    decoded = logs.decode(landed)
    assert (decoded.failures, decoded.fallbacks) == ((), 4)
    rows = decoded.table.to_pylist()
    assert [row["properties"] for row in rows[:2]] == [[("key", "7")], [("key", "x")]]
    assert [(row["msg"], row["body_kind"]) for row in rows[2:]] == [("x", "string"), ("7", "int")]
    assert_same(decoded.table, otlp_loops.decode_logs(landed))


def test_a_metric_of_several_kinds_is_the_last_of_them() -> None:
    point = field(1, field(4, b"\0" * 8, 1))
    gauge, total = field(5, point), field(7, point)
    landed = blocks(
        [field(1, field(2, field(2, kinds))) for kinds in (gauge + total, total + gauge)],
        "metrics",
    )
    decoded = metrics.decode(landed)
    assert (decoded.failures, decoded.fallbacks) == ((), 2)
    assert decoded.table["kind"].to_pylist() == ["sum", "gauge"]


def test_bad_utf8_is_replaced_and_marked() -> None:
    bad = b"caf\xe9"
    landed = blocks(
        [
            record(field(3, bad)),
            record(field(5, field(1, bad))),
            record(field(6, field(1, bad) + field(2, field(1, b"v")))),
            value_of(field(1, bad)),
            value_of(field(5, field(1, field(1, bad)))),
            record(field(3, "café".encode())),
            field(1, field(1, field(1, field(1, b"host.name") + field(2, field(1, bad))))
                  + field(2, field(2, b""))),
            field(1, field(2, field(1, field(1, bad)) + field(2, b""))),
        ],
        "logs",
    )  # fmt: skip
    decoded = logs.decode(landed)
    assert (decoded.failures, decoded.fallbacks) == ((), 0)
    rows = decoded.table.to_pylist()
    assert [row["problems"] for row in rows] == ["bad_utf8"] * 5 + [None] + ["bad_utf8"] * 2
    shown = "caf\ufffd"
    assert rows[0]["severity_text"] == shown
    assert rows[1]["msg"] == shown
    assert rows[2]["properties"] == [(shown, "v")]
    assert rows[3]["properties"] == [("key", shown)]
    assert rows[4]["properties"] == [("key", f'["{shown}"]')]
    assert rows[6]["computer"] == shown
    assert rows[7]["target"] == shown
    assert_same(decoded.table, logs.decode(landed, slowly=True).table)


def test_keys_that_became_the_same_are_one() -> None:
    pairs = [field(6, field(1, key) + field(2, field(1, key[-1:].hex().encode())))
             for key in (b"k\xfe", b"k\xff")]  # fmt: skip
    (row,) = logs.decode([block(record(*pairs), "logs")]).table.to_pylist()
    assert row["properties"] == [("k\ufffd", "ff")]
    assert row["problems"] == "bad_utf8,duplicate_key"


def test_equal_keys_in_a_nested_list_mark_the_row() -> None:
    def pair(key: bytes, value: bytes) -> bytes:
        return field(1, field(1, key) + field(2, value))

    def text(value: bytes) -> bytes:
        return field(1, value)

    twins = field(6, pair(b"a", text(b"1")) + pair(b"b", text(b"2")) + pair(b"a", text(b"3")))
    deeper = field(5, field(1, field(6, pair(b"c", twins))))
    landed = [
        block(record(field(5, twins)), "logs", 0),
        block(record(field(6, field(1, b"key") + field(2, deeper))), "logs", 1),
        block(record(field(5, field(6, pair(b"a", text(b"1"))))), "logs", 2),
        block(
            field(
                1, field(1, field(1, field(1, b"k") + field(2, twins))) + field(2, field(2, b""))
            ),
            "logs",
            3,
        ),
    ]
    decoded = logs.decode(landed)
    rows = decoded.table.to_pylist()
    assert [row["problems"] for row in rows] == ["duplicate_key"] * 2 + [None, "duplicate_key"]
    assert rows[0]["msg"] == '{"a":"3","b":"2"}'
    assert rows[1]["properties"] == [("key", '[{"c":{"a":"3","b":"2"}}]')]
    assert_same(decoded.table, logs.decode(landed, slowly=True).table)


def test_a_resource_too_large_for_its_rows_fails() -> None:
    pair = field(1, field(1, b"key") + field(2, field(1, b"x" * 1_000_000)))
    payload = field(1, field(1, pair) + field(2, field(2, b"") * 5_000))
    decoded = logs.decode([block(payload, "logs"), block(record(), "logs", 1)])
    (failure,) = decoded.failures
    assert (failure.block_id, "bytes" in failure.reason) == ("block-0", True)
    assert decoded.table.num_rows == 1


def test_deep_groups_do_not_break_the_process() -> None:
    """`ptars` alone dies of these with a stack overflow."""
    program = """
        import resource
        from tests.decode.hostile import field
        from tests.decode.parts import block
        from lakebed.decode import logs, metrics, spans

        deep = b"\\x9b\\x06" * 2_000_000
        scope = field(1, field(2, deep))
        record = field(1, field(2, field(2, deep)))
        inside = [deep, field(1, deep), field(1, field(1, deep)), scope, record]
        attribute = field(1, field(2, field(2, field(6, deep))))
        for module, signal in ((logs, "logs"), (metrics, "metrics"), (spans, "traces")):
            decoded = module.decode([block(each, signal, n) for n, each in enumerate(inside)])
            assert len(decoded.failures) == len(inside)
            assert decoded.table.num_rows == 0
        assert logs.decode([block(attribute, "logs")]).failures
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2_000_000  # KiB


def test_many_empty_records_take_bounded_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = 500_000
    decoded = logs.decode([block(field(1, field(2, field(2, b"") * rows)), "logs")])
    assert decoded.table.num_rows == rows
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2_000_000  # KiB


@every_signal
def test_json_that_is_none_fails(signal: str) -> None:
    module, _, _ = SIGNALS[signal]
    decoded = module.decode([block(b"{", signal, encoding="json")])
    assert len(decoded.failures) == 1
    assert decoded.table.num_rows == 0


def test_nested_values_given_in_parts_are_merged() -> None:
    parts = [field(5, field(1, field(1, each))) for each in (b"a", b"b")]
    landed = blocks(
        [value_of(b"".join(parts)), record(field(5, parts[0]), field(5, parts[1]))], "logs"
    )
    decoded = logs.decode(landed)
    assert (decoded.failures, decoded.fallbacks) == ((), 2)
    assert decoded.table["properties"][0].as_py() == [("key", '["a","b"]')]
    assert decoded.table["msg"][1].as_py() == '["a","b"]'
    assert_same(decoded.table, otlp_loops.decode_logs(landed))


def test_a_number_of_several_kinds_is_the_last_of_them() -> None:
    double, whole = field(4, b"\0" * 8, 1), field(6, b"\7" + b"\0" * 7, 1)
    exemplar = field(5, field(3, b"\0" * 8, 1) + whole)
    points = (double + whole, whole + double, exemplar)
    landed = blocks(
        [field(1, field(2, field(2, field(5, field(1, point))))) for point in points], "metrics"
    )
    decoded = metrics.decode(landed)
    assert (decoded.failures, decoded.fallbacks) == ((), 3)
    assert decoded.table["value"].to_pylist() == [7.0, 0.0, None]
    assert decoded.table["int_value"].to_pylist() == [7, None, None]
    assert_same(decoded.table, otlp_loops.decode_metrics(landed))


def test_the_slow_way_marks_what_does_not_fit() -> None:
    absurd = field(4, b"\xff" * 8, 1)
    histogram = field(9, field(1, field(3, b"\xff" * 8, 1) + absurd))
    landed = [block(field(1, field(2, field(2, histogram))), "metrics")]
    slow = metrics.decode(landed, slowly=True)
    assert (slow.failures, slow.table["problems"].to_pylist()) == ((), ["absurd_time,absurd_count"])
    assert_same(slow.table, metrics.decode(landed).table)
