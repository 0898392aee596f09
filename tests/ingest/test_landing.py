"""One request at a time: what a receipt says, what is stored, and what is refused. Both catalogs,
and an S3 store.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakebed.catalog import journal
from lakebed.decode.requests import MAX_BODY_BYTES
from lakebed.errors import BadInput, BadPayload, Conflict, PayloadTooLarge, ReadOnly, Unavailable
from lakebed.ingest.segments import Receipt
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.model.signal import Signal
from lakebed.opening import open_lake
from lakebed.samples.generator import Generator
from lakebed.samples.otlp_json import to_json
from tests.conftest import NewLake
from tests.ingest.parts import count_rows, landed, payload_of, request_of, unaccounted_files
from tests.parts.data import stored_files

TABLES = ("blocks", "segments", "processes", "streams")


def _nothing_landed(lake: Lake) -> bool:
    rows = sum(count_rows(lake, table) for table in TABLES)
    return rows == 0 and stored_files(lake) == set()


def _is_sound(lake: Lake) -> bool:
    return lake.checker.run(Level.PAGES).findings == [] and not unaccounted_files(lake)


@pytest.mark.parametrize("content", ["protobuf", "json"])
@pytest.mark.parametrize("signal", list(Signal))
def test_every_signal_lands_as_it_was_received(lake: Lake, signal: Signal, content: str) -> None:
    request = Generator(seed=3).make(signal.value, 60, services=3)
    body = request.SerializeToString() if content == "protobuf" else to_json(request)
    receipt = lake.telemetry.land(signal, body, content=content)
    blocks = landed(lake)
    assert receipt == Receipt(3, 60, sum(block.payload_size for block in blocks), 0)
    payloads = [payload_of(lake, block) for block in blocks]
    if content == "protobuf":
        assert b"".join(payloads) == body
    else:
        (array,) = json.loads(body).values()
        assert [json.loads(payload) for payload in payloads] == array
        assert all(payload in body for payload in payloads)
    assert {block.encoding for block in blocks} == {f"otlp/{signal}+{content}"}
    assert sum(block.nb_objects for block in blocks) == 60
    assert all(block.begin_time <= block.end_time for block in blocks)  # type: ignore[operator]
    assert (count_rows(lake, "processes"), count_rows(lake, "streams")) == (3, 3)
    assert count_rows(lake, "segments") == 1
    assert _is_sound(lake)


def test_every_block_has_a_tick_of_its_own_in_the_order_of_landing(lake: Lake) -> None:
    generator = Generator(seed=5)
    for size in (10, 20, 30):
        lake.telemetry.land("logs", generator.serialized("logs", size, services=3))
    times = [block.insert_time for block in landed(lake)]
    assert len({*times}) == 9
    with lake.catalog.read() as connection:
        entries = journal.list_entries(connection, operations=["land"])
    assert [entry.rows for entry in entries] == [30, 20, 10]
    assert [entry.tick for entry in reversed(entries)] == times[2::3]
    sizes = [block.nb_objects for block in landed(lake)]
    assert [sum(sizes[at : at + 3]) for at in (0, 3, 6)] == [10, 20, 30]


def test_a_request_that_is_sent_again_is_stored_once_and_counted(lake: Lake) -> None:
    body = Generator(seed=7).serialized("traces", 30, services=2)
    first = lake.telemetry.land("traces", body)
    before, files = landed(lake), stored_files(lake)
    again = lake.telemetry.land("traces", body)
    assert (first.blocks, first.duplicates) == (2, 0)
    assert again == Receipt(duplicates=2)
    assert landed(lake) == before
    assert stored_files(lake) == files


def test_what_is_new_in_a_request_lands_beside_what_is_known(lake: Lake) -> None:
    lake.telemetry.land("logs", request_of(("a", "one")))
    receipt = lake.telemetry.land("logs", request_of(("a", "one"), ("b", "two"), ("b", "two")))
    assert (receipt.blocks, receipt.records, receipt.duplicates) == (1, 1, 2)
    assert len(landed(lake)) == 2
    assert _is_sound(lake)


def test_senders_are_recorded_once(lake: Lake) -> None:
    for message in ("one", "two"):
        lake.telemetry.land("logs", request_of(("a", message), ("b", message)))
    with open_lake(lake.catalog.url) as other:  # which does not remember what this one has seen
        other.telemetry.land("logs", request_of(("a", "three"), ("c", "three")))
        metrics = Generator(seed=1).serialized("metrics", 5, services=1)
        other.telemetry.land("metrics", metrics)
    assert (count_rows(lake, "processes"), count_rows(lake, "streams")) == (4, 4)
    assert len({block.process_id for block in landed(lake)}) == 4
    assert _is_sound(lake)


def test_the_same_events_in_another_encoding_are_other_blocks(lake: Lake) -> None:
    request = Generator(seed=2).logs(5, services=1)
    lake.telemetry.land("logs", request.SerializeToString())
    receipt = lake.telemetry.land("logs", to_json(request), content="json")
    assert (receipt.blocks, receipt.duplicates) == (1, 0)
    assert count_rows(lake, "processes") == 1


def test_a_producers_id_tells_identical_requests_apart(lake: Lake) -> None:
    body = request_of(("a", "tick"))
    receipts = [
        lake.telemetry.land("logs", body, request_id=request_id)
        for request_id in ("monday", "tuesday", "monday")
    ]
    assert [receipt.blocks for receipt in receipts] == [1, 1, 0]
    assert [receipt.duplicates for receipt in receipts] == [0, 0, 1]
    assert lake.telemetry.land("logs", body).blocks == 1  # and without an id it is a third
    assert len(landed(lake)) == 3


def test_a_producers_id_with_other_bytes_is_a_conflict_and_nothing_of_it_lands(lake: Lake) -> None:
    lake.telemetry.land("logs", request_of(("a", "one")), request_id="r")
    before = landed(lake)
    with pytest.raises(Conflict, match="has landed before with other bytes") as refused:
        lake.telemetry.land("logs", request_of(("a", "two"), ("b", "two")), request_id="r")
    assert "id of its own" in (refused.value.hint or "")
    assert landed(lake) == before
    assert count_rows(lake, "processes") == 1
    # The refused request's sender was not recorded, and is when it really lands.
    lake.telemetry.land("logs", request_of(("b", "three")))
    assert _is_sound(lake)


@pytest.mark.parametrize("request_id", ["", "x" * 201, "line\nfeed", "\ud800"])
def test_ids_that_cannot_be_ids(lake: Lake, request_id: str) -> None:
    with pytest.raises(BadInput, match="a request's id has 1 to 200 printable characters"):
        lake.telemetry.land("logs", request_of(("a", "one")), request_id=request_id)
    assert _nothing_landed(lake)


def test_requests_without_records_are_acknowledged_and_leave_nothing(lake: Lake) -> None:
    assert lake.telemetry.land("logs", b"") == Receipt()
    assert lake.telemetry.land("logs", request_of(("idle", ""))) == Receipt()
    assert lake.telemetry.land("metrics", b"{}", content="json") == Receipt()
    assert _nothing_landed(lake)


def _deep(depth: int) -> bytes:
    request = ExportLogsServiceRequest()
    value = request.resource_logs.add().scope_logs.add().log_records.add().body
    for _ in range(depth):
        value = value.array_value.values.add()
    return request.SerializeToString()


def _deep_json(depth: int) -> bytes:
    value = '{"arrayValue":{"values":[' * depth + "]}}" * depth
    record = '{"body":' + value + "}"
    return f'{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{record}]}}]}}]}}'.encode()


_GOOD = request_of(("a", "one"), ("b", "two"))
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "truncated": (lambda: _GOOD[:-3], "protobuf"),
    "truncated in the middle of a tag": (lambda: _GOOD + b"\x0a", "protobuf"),
    "a bad resource after a good one": (lambda: _GOOD + b"\x0a\x02\x0a\x7f", "protobuf"),
    "text": (lambda: b"hello", "protobuf"),
    "gzip": (lambda: gzip.compress(_GOOD), "protobuf"),
    "nested too deeply": (lambda: _deep(200), "protobuf"),
    "truncated JSON": (lambda: b'{"resourceLogs":[{"resource":{}', "json"),
    "JSON nested too deeply": (lambda: _deep_json(200), "json"),
    "JSON nested absurdly": (lambda: _deep_json(100_000), "json"),
    "JSON of another shape": (lambda: b'{"resourceLogs":7}', "json"),
    "JSON with bad UTF-8": (lambda: b'{"resourceLogs":[{"schemaUrl":"\xff"}]}', "json"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_malformed_requests_are_refused_and_nothing_is_stored(lake: Lake, kind: str) -> None:
    make, content = HOSTILE[kind]
    with pytest.raises(BadPayload):
        lake.telemetry.land("logs", make(), content=content)
    assert _nothing_landed(lake)


def test_oversized_requests_are_refused_before_they_are_parsed(lake: Lake) -> None:
    with pytest.raises(PayloadTooLarge, match="more than 67,108,864") as refused:
        lake.telemetry.land("logs", bytes(MAX_BODY_BYTES + 1))
    assert "smaller requests" in (refused.value.hint or "")
    assert _nothing_landed(lake)


def test_wrong_calls_say_what_is_right(lake: Lake) -> None:
    with pytest.raises(BadInput, match="'profiles' is not a signal") as refused:
        lake.telemetry.land("profiles", b"")
    assert refused.value.hint == "one of logs, metrics, traces"
    with pytest.raises(BadInput, match="protobuf or json, not 'xml'"):
        lake.telemetry.land("logs", b"", content="xml")


def test_odd_but_legal_senders_are_recorded(lake: Lake) -> None:
    names: list[Any] = ["", "nul \x00 inside", "snow ☃ and 🎿", "x" * 100_000]
    for name in names:
        assert lake.telemetry.land("logs", request_of((name, "hello"))).blocks == 1
    bad = request_of(("BAD", "hello")).replace(b"BAD", b"\xff\xfe\xfd")
    assert lake.telemetry.land("logs", bad).blocks == 1
    assert count_rows(lake, "processes") == 5
    assert _is_sound(lake)


def test_a_lake_opened_for_reading_lands_nothing(lake: Lake) -> None:
    with open_lake(lake.catalog.url, read_only=True) as reading, pytest.raises(ReadOnly):
        reading.telemetry.land("logs", _GOOD)
    assert _nothing_landed(lake)


def test_a_closed_lake_lands_nothing(new_lake: NewLake) -> None:
    lake = new_lake()
    lake.telemetry.land("logs", _GOOD)
    lake.close()
    with pytest.raises(Unavailable, match="the lake is closed"):
        lake.telemetry.land("logs", _GOOD)


def test_landing_on_s3(new_lake: NewLake, s3_bucket: str) -> None:
    lake = new_lake(store=f"s3://{s3_bucket}/lake")
    bodies = [*Generator(seed=9).stream("logs", requests=5, size=40, services=2)]
    for body in bodies:
        assert lake.telemetry.land("logs", body).records == 40
    assert lake.telemetry.land("logs", bodies[0]).duplicates == 2
    blocks = landed(lake)
    assert b"".join(payload_of(lake, block) for block in blocks) == b"".join(bodies)
    with pytest.raises(BadPayload):
        lake.telemetry.land("logs", bodies[0][:-1])
    assert _is_sound(lake)
