"""What holds for every signal: all fields come out, the slow way agrees, and rows can be stored."""

from __future__ import annotations

import pytest
from benchmarks import otlp_loops

from lakebed.decode import logs, metrics, spans
from lakebed.model.view_set import ViewSet
from lakebed.samples.generator import Generator
from lakebed.samples.otlp_json import to_json
from lakebed.storage.parquet import conform
from tests.decode import sdk
from tests.decode.hostile import field
from tests.decode.parts import assert_same, block, blocks

SIGNALS = {
    "logs": (logs, otlp_loops.decode_logs, "log_entries"),
    "metrics": (metrics, otlp_loops.decode_metrics, "measures"),
    "traces": (spans, otlp_loops.decode_spans, "spans"),
}
every_signal = pytest.mark.parametrize("signal", SIGNALS)


@every_signal
@pytest.mark.parametrize(("requests", "size", "services"), [(40, 100, 1), (3, 700, 3), (2, 0, 1)])
def test_every_field_is_what_opentelemetry_reads(
    signal: str, requests: int, size: int, services: int
) -> None:
    module, loops, _ = SIGNALS[signal]
    stream = Generator(11).stream(signal, requests=requests, size=size, services=services)
    landed = blocks(stream, signal)
    decoded = module.decode(landed)
    assert (decoded.failures, decoded.fallbacks) == ((), 0)
    assert decoded.table.num_rows == requests * size
    assert_same(decoded.table, loops(landed))


@every_signal
def test_the_slow_way_gives_the_same_rows(signal: str) -> None:
    module, _, _ = SIGNALS[signal]
    landed = blocks(Generator(12).stream(signal, requests=4, size=150), signal)
    slow = module.decode(landed, slowly=True)
    assert (slow.failures, slow.fallbacks) == ((), 4)
    assert_same(slow.table, module.decode(landed).table)


@every_signal
def test_rows_are_stored_without_a_cast(signal: str) -> None:
    module, _, name = SIGNALS[signal]
    view_set = ViewSet(name, 1, module.SCHEMA, "time", ("time",))
    assert view_set.schema.equals(module.SCHEMA)
    decoded = module.decode(blocks(Generator(13).stream(signal, requests=2, size=50), signal))
    assert conform(decoded.table, view_set).num_rows == 100


@every_signal
def test_every_column_is_documented(signal: str) -> None:
    module, _, _ = SIGNALS[signal]
    assert list(module.COLUMNS) == module.SCHEMA.names
    assert all(module.COLUMNS.values())


@every_signal
def test_nothing_gives_no_rows(signal: str) -> None:
    module, _, _ = SIGNALS[signal]
    decoded = module.decode([])
    assert (decoded.table.num_rows, decoded.failures, decoded.fallbacks) == (0, (), 0)
    assert decoded.table.schema == module.SCHEMA
    decoded = module.decode(blocks([b"", b"\x0a\x00"], signal))
    assert (decoded.table.num_rows, decoded.failures, decoded.fallbacks) == (0, (), 0)
    assert decoded.table.schema == module.SCHEMA


@every_signal
def test_json_gives_the_same_rows(signal: str) -> None:
    module, _, _ = SIGNALS[signal]
    request = Generator(14).make(signal, 60, services=3)
    ((_, groups),) = request.ListFields()
    protobuf = [field(1, group.SerializeToString()) for group in groups]
    as_json = [block(to_json(group), signal, number, "json") for number, group in enumerate(groups)]
    decoded = module.decode(as_json)
    assert (decoded.failures, decoded.fallbacks) == ((), 0)
    assert_same(decoded.table, module.decode(blocks(protobuf, signal)).table)


@every_signal
def test_what_the_opentelemetry_sdk_sends_comes_out(signal: str) -> None:
    module, loops, _ = SIGNALS[signal]
    made = {
        "logs": sdk.logs_request,
        "metrics": sdk.metrics_request,
        "traces": sdk.traces_request,
    }
    landed = blocks([made[signal]()], signal)
    decoded = module.decode(landed)
    assert (decoded.failures, decoded.fallbacks) == ((), 0)
    assert decoded.table.num_rows > 0
    assert set(decoded.table["exe"].to_pylist()) == {"lakebed/tests"}
    assert_same(decoded.table, loops(landed))
