"""Log records come out as `log_entries` with every field that went in."""

from __future__ import annotations

import json

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from lakebed.decode import logs
from lakebed.decode.requests import split
from lakebed.model.block import Block
from lakebed.model.signal import Signal
from lakebed.views.blocks import make_rows
from tests.decode.parts import LANDED, block


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


@pytest.mark.parametrize(
    ("service", "namespace", "exe"),
    [
        ("shop", "eu", "eu/shop"),
        ("shop", "", "shop"),
        ("shop", None, "shop"),
        ("", "eu", None),
        ("", "", None),
        ("", None, None),
        (None, "eu", None),
        (None, "", None),
        (None, None, None),
    ],
)
def test_a_service_is_called_the_same_everywhere(
    service: str | None, namespace: str | None, exe: str | None
) -> None:
    given = {"service.name": service, "service.namespace": namespace}
    known = {key: value for key, value in given.items() if value is not None}
    sent = request(LogRecord(), **{key.replace(".", "_"): value for key, value in known.items()})
    (row,) = logs.decode([block(sent, "logs")]).table.to_pylist()
    assert row["exe"] == exe
    (part,) = split(Signal.LOGS, sent.SerializeToString(), content="protobuf")
    assert part.resource.exe == (exe or "")
    landed = Block("b", "s", "p", 7, None, None, 1, "otlp/logs+protobuf", b"", "segment", 0, 1)
    made = make_rows([landed], {"p": (7, json.dumps(known))}, {"s": (7, "{}")})
    assert made["processes.exe"].to_pylist() == [exe or ""]


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
