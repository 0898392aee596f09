"""Files of requests: all of a file is sound or nothing of it lands, and it may be landed again."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import pytest

from lakebed.errors import BadInput, BadPayload, Conflict
from lakebed.ingest.telemetry import LandedFile
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.model.signal import Signal
from lakebed.samples.generator import Generator
from lakebed.samples.otlp_json import to_json
from tests.ingest.parts import count_rows, landed, unaccounted_files
from tests.parts.data import stored_files


def _lines(count: int = 6) -> list[bytes]:
    generator, signals = Generator(seed=4), [*Signal]
    return [
        to_json(generator.make(signals[number % 3].value, 10, services=1))
        for number in range(count)
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "telemetry.jsonl"


def test_a_file_of_json_lines_lands_once(lake: Lake, file: Path) -> None:
    file.write_bytes(b"\n".join(_lines(100)))
    told: list[int] = []
    done = lake.telemetry.land_file(file, progress=lambda at: told.append(at.requests))
    assert (done.requests, done.blocks, done.records) == (100, 100, 1000)
    assert done.bytes == sum(block.payload_size for block in landed(lake))
    assert told == [*range(1, 101)]
    again = lake.telemetry.land_file(file)
    assert (again.requests, again.blocks, again.duplicates) == (100, 0, 100)
    assert len(landed(lake)) == 100
    assert count_rows(lake, "segments") < 40, "a file's requests share segments"
    assert lake.checker.run(Level.PAGES).findings == []


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_files_of_one_protobuf_request(lake: Lake, tmp_path: Path, compress: object) -> None:
    body = Generator(seed=6).serialized("metrics", 40, services=2)
    path = tmp_path / "request.pb"
    path.write_bytes(compress(body))  # type: ignore[operator]
    assert lake.telemetry.land_file(path) == LandedFile(1, 2, 40, len(body), 0)


@pytest.mark.parametrize("damage", [b'{"resourceLogs":[{"scope', b"hello", b'{"resourceLogs":7}'])
def test_a_bad_line_anywhere_means_that_nothing_lands(
    lake: Lake, file: Path, damage: bytes
) -> None:
    lines = _lines(100)
    file.write_bytes(b"\n".join([*lines[:99], damage, lines[99]]))
    with pytest.raises(BadPayload, match=r"telemetry.jsonl line 100"):
        lake.telemetry.land_file(file)
    assert landed(lake) == []
    assert stored_files(lake) == set()


def test_what_is_appended_while_a_file_lands_is_left_for_the_next_time(
    lake: Lake, file: Path
) -> None:
    lines = _lines(100)
    file.write_bytes(b"\n".join(lines) + b"\n")

    def append(done: LandedFile) -> None:
        if done.requests == 1:
            with file.open("ab") as growing:
                growing.write(b'{"resourceLogs": half a line')

    assert lake.telemetry.land_file(file, progress=append).requests == 100
    file.write_bytes(b"\n".join([*lines, to_json(Generator(seed=8).logs(5))]))
    again = lake.telemetry.land_file(file)
    assert (again.requests, again.records, again.duplicates) == (101, 5, 100)


def test_a_pipe_is_a_file(lake: Lake, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"\n".join(_lines())))
    writer.start()
    assert lake.telemetry.land_file(pipe).requests == 6
    writer.join()


def test_a_files_own_id_numbers_its_requests(lake: Lake, file: Path) -> None:
    line = to_json(Generator(seed=8).logs(5, services=1))
    file.write_bytes(b"\n".join([line, line, line]))
    assert lake.telemetry.land_file(file).duplicates == 2
    assert lake.telemetry.land_file(file, request_id="monday").blocks == 3
    assert lake.telemetry.land_file(file, request_id="monday").duplicates == 3
    # Other bytes under the same id: that request is refused by its place, the others are there.
    file.write_bytes(b"\n".join([line, to_json(Generator(seed=9).logs(5, services=1)), line]))
    told: list[LandedFile] = []
    with pytest.raises(Conflict, match=r"telemetry.jsonl line 2: block .* other bytes"):
        lake.telemetry.land_file(file, request_id="monday", progress=told.append)
    assert told[-1].duplicates == 2
    assert len(landed(lake)) == 4


@pytest.mark.parametrize("request_id", ["", "x" * 201, "line\nfeed"])
def test_ids_that_cannot_be_a_files(lake: Lake, file: Path, request_id: str) -> None:
    file.write_bytes(to_json(Generator(seed=8).logs(5, services=1)))
    with pytest.raises(BadInput, match=r"^a request's id has 1 to 200 printable characters$"):
        lake.telemetry.land_file(file, request_id=request_id)
    assert landed(lake) == []


def test_a_files_id_may_be_as_long_as_a_requests(lake: Lake, file: Path) -> None:
    file.write_bytes(to_json(Generator(seed=8).logs(5, services=1)))
    for length in (1, 199, 200):
        assert lake.telemetry.land_file(file, request_id="x" * length).blocks == 1


def test_files_that_are_no_files(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*nowhere: no such file"):
        lake.telemetry.land_file(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="is a directory"):
        lake.telemetry.land_file(tmp_path)
    (tmp_path / "empty").touch()
    assert lake.telemetry.land_file(tmp_path / "empty") == LandedFile()


def test_a_signal_that_the_file_does_not_hold_is_refused(lake: Lake, file: Path) -> None:
    file.write_bytes(b"\n".join(_lines()))
    with pytest.raises(BadPayload, match="holds metrics, not logs"):
        lake.telemetry.land_file(file, signal="logs")
    with pytest.raises(BadInput, match="is not a signal"):
        lake.telemetry.land_file(file, signal="profiles")
    assert landed(lake) == []


def test_everything_in_the_store_is_accounted_for_while_a_file_lands(
    lake: Lake, file: Path
) -> None:
    file.write_bytes(b"\n".join(to_json(Generator(seed=n).logs(3)) for n in range(70)))
    odd: list[set[str]] = []

    def look(_done: LandedFile) -> None:
        before = stored_files(lake)
        odd.append(before & unaccounted_files(lake))

    lake.telemetry.land_file(file, progress=look)
    assert not any(odd)
