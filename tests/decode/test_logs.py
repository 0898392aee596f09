"""Log records come out as `log_entries` with every field that went in."""

from __future__ import annotations

import pytest
from benchmarks.otlp_loops import decode_logs
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from lakebed.decode import logs
from lakebed.model.view_set import ViewSet
from lakebed.samples.generator import Generator
from lakebed.storage.parquet import conform
from tests.decode.parts import LANDED, assert_same, block, blocks


def request(*records: LogRecord, **resource: str) -> ExportLogsServiceRequest:
    made = ExportLogsServiceRequest()
    group = made.resource_logs.add()
    for key, value in resource.items():
        group.resource.attributes.add(key=key.replace("_", ".")).value.string_value = value
    group.scope_logs.add().log_records.extend(records)
    return made


def rows(*records: LogRecord, **resource: str) -> list[dict[str, object]]:
    decoded = logs.decode([block(request(*records, **resource), "logs")])
    assert decoded.failures == ()
    return decoded.table.to_pylist()


@pytest.mark.parametrize(("requests", "size", "services"), [(40, 100, 1), (3, 700, 3), (5, 0, 1)])
def test_every_field_is_what_opentelemetry_reads(requests: int, size: int, services: int) -> None:
    stream = Generator(11).stream("logs", requests=requests, size=size, services=services)
    landed = blocks(stream, "logs")
    decoded = logs.decode(landed)
    assert (decoded.failures, decoded.fallbacks) == ((), 0)
    assert decoded.table.num_rows == requests * size
    assert_same(decoded.table, decode_logs(landed))


def test_the_slow_way_gives_the_same_rows() -> None:
    landed = blocks(Generator(12).stream("logs", requests=4, size=150), "logs")
    slow = logs.decode(landed, slowly=True)
    assert (slow.failures, slow.fallbacks) == ((), 4)
    assert_same(slow.table, logs.decode(landed).table)


def test_rows_are_stored_without_a_cast() -> None:
    view_set = ViewSet("log_entries", 1, logs.SCHEMA, "time", ("time",))
    assert view_set.schema.equals(logs.SCHEMA)
    decoded = logs.decode(blocks(Generator(13).stream("logs", requests=2, size=50), "logs"))
    assert conform(decoded.table, view_set).num_rows == 100


def test_every_column_is_documented() -> None:
    assert list(logs.COLUMNS) == logs.SCHEMA.names


def test_time_is_the_first_that_is_known() -> None:
    times = [
        (row["time"].timestamp(), row["time_unix_nano"], row["problems"])
        for row in rows(
            LogRecord(time_unix_nano=5_000_000_999, observed_time_unix_nano=7_000_000_000),
            LogRecord(observed_time_unix_nano=7_000_000_000),
            LogRecord(),
            LogRecord(time_unix_nano=2**63, observed_time_unix_nano=7_000_000_000),
            LogRecord(time_unix_nano=2**63 - 1),
        )
    ]
    assert times == [
        (5.000000, 5_000_000_999, None),
        (7.0, None, None),
        (LANDED / 1e6, None, None),
        (7.0, None, "absurd_time"),
        (9223372036.854775, 2**63 - 1, None),
    ]


def test_levels_follow_severity() -> None:
    numbers = [0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, -1]
    found = rows(*(LogRecord(severity_number=number) for number in numbers))
    assert [row["level"] for row in found] == [4, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 4, 4]
    assert [row["severity_number"] for row in found] == numbers


def test_who_sent_it_comes_from_the_resource() -> None:
    (row,) = rows(LogRecord(), service_name="shop", host_name="h1", process_owner="ann")
    assert (row["exe"], row["computer"], row["username"]) == ("shop", "h1", "ann")
    (row,) = rows(LogRecord(), service_name="shop", service_namespace="eu")
    assert (row["exe"], row["service_name"], row["username"]) == ("eu/shop", "shop", None)
    (row,) = rows(LogRecord(), service_namespace="eu")
    assert (row["exe"], row["service_name"]) == (None, None)


def test_ids_of_a_wrong_length_are_kept_and_marked() -> None:
    found = rows(
        LogRecord(trace_id=bytes(range(16)), span_id=bytes(range(8))),
        LogRecord(trace_id=b"\xab\xcd", span_id=bytes(8)),
        LogRecord(span_id=bytes(9)),
    )
    assert [(row["trace_id"], row["span_id"], row["problems"]) for row in found] == [
        ("000102030405060708090a0b0c0d0e0f", "0001020304050607", None),
        ("abcd", "00" * 8, "bad_id_length"),
        (None, "00" * 9, "bad_id_length"),
    ]


def test_the_last_of_several_equal_keys_counts() -> None:
    record = LogRecord()
    for key, value in (("a", "1"), ("b", "2"), ("a", "3")):
        record.attributes.add(key=key).value.string_value = value
    first, second = rows(LogRecord(), record)
    assert (first["properties"], first["problems"]) == ([], None)
    assert (second["properties"], second["problems"]) == (
        [("b", "2"), ("a", "3")],
        "duplicate_key",
    )
