"""Files of requests: what they hold is recognised, damage names the file and the place."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from lakebed.decode.files import FileRequest, read_file, read_requests
from lakebed.decode.recognise import guess_signal
from lakebed.decode.requests import split
from lakebed.errors import BadInput, BadPayload, PayloadTooLarge
from lakebed.model.signal import Signal
from lakebed.samples.generator import Generator
from lakebed.samples.otlp_json import to_json
from tests.decode import sdk
from tests.decode.damage import mutations, replayable

COMPRESSED = pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])


def mixed() -> list[tuple[Signal, Any]]:
    generator = Generator(21)
    return [(signal, generator.make(signal.value, 30)) for signal in (*Signal, *Signal)]


def read(data: bytes, signal: Signal | None = None) -> list[FileRequest]:
    return list(read_requests(io.BytesIO(data), "name", signal))


def prefixed(bodies: list[bytes]) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@COMPRESSED
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\n\n  \n"])
def test_json_lines_of_the_file_exporter(compress: Any, ending: bytes, tmp_path: Path) -> None:
    requests = mixed()
    lines = [to_json(request) for _, request in requests]
    path = tmp_path / "telemetry.json"
    path.write_bytes(compress(ending.join(lines) + ending))
    found = list(read_file(path))
    assert [(each.signal, each.content, each.body) for each in found] == [
        (signal, "json", line) for (signal, _), line in zip(requests, lines, strict=True)
    ]
    step = ending.count(b"\n")
    assert [each.location for each in found] == [
        f"{path} line {1 + number * step}" for number in range(len(lines))
    ]
    for each in found:
        assert sum(p.nb_objects for p in split(each.signal, each.body, content="json")) == 30


@COMPRESSED
def test_length_prefixed_protobuf_of_the_file_exporter(compress: Any) -> None:
    requests = mixed()
    bodies = [request.SerializeToString() for _, request in requests]
    found = read(compress(prefixed(bodies)))
    assert [(each.signal, each.content, each.body) for each in found] == [
        (signal, "protobuf", body) for (signal, _), body in zip(requests, bodies, strict=True)
    ]
    assert found[1].location == f"name at byte {len(bodies[0]) + 4:,}"


@COMPRESSED
@pytest.mark.parametrize("signal", list(Signal))
def test_a_single_request(compress: Any, signal: Signal) -> None:
    request = Generator(22).make(signal.value, 40)
    binary, text = request.SerializeToString(), to_json(request)
    pretty = json.dumps(json.loads(text), indent=2).encode()
    for body, content in ((binary, "protobuf"), (text, "json"), (pretty, "json")):
        (found,) = read(compress(body))
        assert found == FileRequest(signal, content, body, found.location)  # type: ignore[arg-type]
        assert read(compress(body), signal) == [found]


def test_a_byte_order_mark_and_blank_lines_are_skipped() -> None:
    line = to_json(Generator(1).logs(2))
    assert [each.body for each in read(b"\xef\xbb\xbf\n\n" + line)] == [line]


def test_an_empty_file_holds_no_request() -> None:
    assert read(b"") == read(gzip.compress(b"")) == read(bytes(8)) == []


def test_a_stream_that_comes_in_drops_is_read() -> None:
    class Dripping(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 0, 3))

    data = gzip.compress(b"\n".join(to_json(request) for _, request in mixed()))
    assert len(list(read_requests(Dripping(data), "pipe"))) == 6


def test_requests_come_one_by_one() -> None:
    line = to_json(Generator(1).logs(50)) + b"\n"

    class Counting(io.BytesIO):
        taken = 0

        def readline(self, size: int | None = -1) -> bytes:
            got = super().readline(size)
            Counting.taken += len(got)
            return got

    requests = read_requests(Counting(line * 100), "name")
    next(requests)
    assert Counting.taken < 2 * len(line)


@pytest.mark.parametrize("signal", list(Signal))
@pytest.mark.parametrize("size", [1, 2, 30])
def test_the_signal_of_protobuf_is_told_from_its_records(signal: Signal, size: int) -> None:
    for seed in range(12):
        assert guess_signal(Generator(seed).serialized(signal.value, size)) is signal


def test_the_signal_of_the_sdk_is_told() -> None:
    assert guess_signal(sdk.logs_request().SerializeToString()) is Signal.LOGS
    assert guess_signal(sdk.metrics_request().SerializeToString()) is Signal.METRICS
    assert guess_signal(sdk.traces_request().SerializeToString()) is Signal.TRACES


def test_what_could_be_several_signals_must_be_named() -> None:
    ambiguous = b"\x0a\x00"
    assert guess_signal(ambiguous) is None
    with pytest.raises(BadPayload, match="signal") as caught:
        read(ambiguous)
    assert caught.value.hint == "say whether it holds logs, metrics or traces"
    assert read(ambiguous, Signal.TRACES)[0].signal is Signal.TRACES
    spans = Generator(1).serialized("traces", 3)
    found = read(prefixed([spans, ambiguous]))
    assert [each.signal for each in found] == [Signal.TRACES, Signal.TRACES]


def test_a_damaged_line_is_named_and_those_before_it_are_given() -> None:
    line = to_json(Generator(1).logs(2))
    for bad in (b'{"resourceLogs":[', b"[1]", b'{"other":1}', b"nonsense", line[:-5], b"\xff"):
        given = []
        with pytest.raises(BadPayload, match=r"^name line 3 "):
            for each in read_requests(io.BytesIO(b"\n".join([line, line, bad])), "name"):
                given.append(each)
        assert len(given) == 2


def test_a_line_of_another_signal_than_asked_for_is_refused() -> None:
    lines = to_json(Generator(1).logs(2)) + b"\n" + to_json(Generator(1).metrics(2))
    with pytest.raises(BadPayload, match="name line 2 holds metrics, not logs"):
        read(lines, Signal.LOGS)


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n" + bytes(50),
        b"PAR1" + bytes(50),
        b"hello",
        b"[1, 2]",
        b'"text"',
        b"<html>",
        b"\x1f\x8bnot gzip at all",
        gzip.compress(b"hello", mtime=0),
        gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0),
        b"\x28\xb5\x2f\xfd" + bytes(9),
        b"\x00\x00\x00\x09\x28\xb5\x2f\xfd" + bytes(9),
        b"{",
        b"{ nonsense }",
        b"\x0a\xff",
        b"\x00\x00\x00",
        b"\x00\x00\x00\x05\x0a",
    ],
)
def test_what_holds_no_requests_is_refused(data: bytes) -> None:
    with pytest.raises(BadPayload, match=r"^name ") as caught:
        read(data)
    assert "\n" not in str(caught.value)


def test_unknown_content_says_what_was_expected() -> None:
    with pytest.raises(
        BadPayload, match="expected an OTLP request as protobuf or JSON, JSON lines"
    ):
        read(b"PAR1")


def test_gzip_truncated_anywhere_is_refused() -> None:
    data = gzip.compress(to_json(Generator(1).logs(5)) + b"\n")
    for size in range(2, len(data)):
        with pytest.raises(BadPayload):
            read(data[:size])


def test_length_prefixed_protobuf_truncated_anywhere_is_refused() -> None:
    data = prefixed([Generator(1).serialized("logs", 2), Generator(2).serialized("logs", 1)])
    first = int.from_bytes(data[:4], "big") + 4
    for size in range(1, len(data)):
        if size == first:
            continue
        with pytest.raises(BadPayload, match="truncated"):
            read(data[:size])


def test_larger_requests_than_can_land_are_refused() -> None:
    line, long = to_json(Generator(1).logs(1)), to_json(Generator(1).logs(50))
    binary = Generator(1).serialized("logs", 50)
    for data, place in (
        (line + b"\n" + long, "name line 2 "),
        (json.dumps(json.loads(long), indent=1).encode(), "name holds"),
        (binary, "name holds"),
        (prefixed([binary]), "name at byte 0 "),
    ):
        for each in (data, gzip.compress(data)):
            with pytest.raises(PayloadTooLarge, match=rf"^{place}"):
                list(read_requests(io.BytesIO(each), "name", most_bytes=len(line) + 10))
    with pytest.raises(PayloadTooLarge, match="more than 67,108,864 bytes"):
        read(b"\x04\x00\x00\x01" + bytes(100))


def test_nesting_without_end_is_refused() -> None:
    for data in (b'{"a":' * 10_000, b'{"resourceLogs":' + b"[" * 10_000):
        with pytest.raises(BadPayload):
            read(data)


def test_a_missing_file_is_a_wrong_call(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        list(read_file(tmp_path / "absent.json"))
    with pytest.raises(BadInput, match="directory"):
        list(read_file(tmp_path))


def test_damage_gives_requests_or_a_typed_error() -> None:
    chance = replayable()
    generator = Generator(23)
    bodies = [generator.serialized("logs", 3), generator.serialized("traces", 3)]
    lines = b"\n".join(to_json(generator.metrics(3)) for _ in range(3))
    for data in (prefixed(bodies), lines, gzip.compress(lines), bodies[0]):
        for damaged in mutations(data, chance, 250):
            try:
                read(damaged)
            except BadInput as error:
                assert str(error).startswith("name ")
