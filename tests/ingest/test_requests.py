"""The ids of what a request lands never change: a request that is sent again is stored once."""

from __future__ import annotations

import uuid

import pytest

from lakebed.errors import BadInput
from lakebed.ingest.requests import NewBlock, check_id, read_request
from lakebed.samples.generator import Generator

BODY = (
    b'{"resourceLogs": [{"resource": {"attributes": [{"key": "service.name", "value": %b}]}, %b}]}'
)
LOGS = b'"scopeLogs": [{"logRecords": [{"timeUnixNano": "1767225600000000000"}]}]'


def read(service: bytes = b'{"stringValue": "shop"}', **options: object) -> NewBlock:
    (block,) = read_request("logs", BODY % (service, LOGS), content="json", **options)  # type: ignore[arg-type]
    return block


def test_ids_are_those_of_earlier_releases() -> None:
    block = read()
    assert block.process.process_id == "f4b1cada-892a-89d8-b082-3f04d01a1bc7"
    assert block.stream.stream_id == "ae974f0f-3f6c-8235-a57e-9cc0a9564817"
    assert block.block_id == "c558358e-8ac8-8737-b99d-278469d040f9"
    assert read(request_id="r-1").block_id == "1f1b44f7-e747-84a9-bb66-57cde13781e8"
    assert read(request_id="r-1", number=0).block_id == "88211ee8-a1b2-8d9c-a074-43a4d50a0a45"


def test_ids_are_uuids_of_version_8() -> None:
    for block in read_request("traces", Generator(3).serialized("traces", 50)):
        for text in (block.block_id, block.process.process_id, block.stream.stream_id):
            parsed = uuid.UUID(text)
            assert (parsed.version, parsed.variant) == (8, uuid.RFC_4122)


def test_equal_bytes_have_equal_ids_and_other_resources_other_processes() -> None:
    assert read() == read()
    other = read(b'{"stringValue": "store"}')
    assert other.process.process_id != read().process.process_id
    assert other.stream.stream_id != read().stream.stream_id
    assert other.block_id != read().block_id
    assert read(request_id="a").block_id != read(request_id="b").block_id
    assert read(request_id="a", number=0).block_id != read(request_id="a", number=1).block_id


def test_resources_without_records_land_nothing() -> None:
    assert read_request("logs", b'{"resourceLogs": [{"resource": {}}]}', content="json") == []


@pytest.mark.parametrize("request_id", [None, "a", "a" * 200, "ü – 日本"])
def test_request_id_of_1_to_200_printable_characters_is_taken(request_id: str | None) -> None:
    check_id(request_id)


@pytest.mark.parametrize("request_id", ["", "a" * 201, "a\n", "\x00"])
def test_request_id_of_another_length_or_kind_is_refused(request_id: str) -> None:
    with pytest.raises(BadInput, match="1 to 200 printable characters"):
        read(request_id=request_id)


def test_unknown_signals_and_contents_are_refused() -> None:
    with pytest.raises(BadInput, match="is not a signal"):
        read_request("events", b"")
    with pytest.raises(BadInput, match="requests are protobuf or json"):
        read_request("logs", b"", content="xml")
