"""Files of OTLP requests, read one request after another.

A file may hold a single request as protobuf or JSON; the output of the OpenTelemetry Collector's
file exporter, which is one JSON request per line, or protobuf requests with a length of four bytes
before each; or gzip of any of these. The first bytes decide which, not the file's name.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import msgspec

from lakebed.decode.json_requests.otlp_json import begin_small
from lakebed.decode.recognise import guess_signal, json_signals
from lakebed.decode.requests import MAX_BODY_BYTES, Content
from lakebed.errors import BadInput, BadPayload, PayloadTooLarge
from lakebed.model.signal import Signal, to_json_name

_EXPECTED = (
    "expected an OTLP request as protobuf or JSON, JSON lines or length-prefixed protobuf as the "
    "OpenTelemetry Collector's file exporter writes them, or gzip of these"
)
_WHICH = "say whether it holds logs, metrics or traces"
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PREFIX_BYTES = 4
# A protobuf request begins with a line feed, so the opening brace alone does not make it JSON.
_JSON_BEGINS = re.compile(rb'\s*\{\s*(?:"[A-Za-z_]|\}|$)')
_HEAD_BYTES = 4096


class FileRequest(NamedTuple):
    """A request of a file; ``location`` names the file and the line or the offset, for errors."""

    signal: Signal
    content: Content
    body: bytes
    location: str


def read_file(
    path: Path, signal: Signal | None = None, *, most_bytes: int = MAX_BODY_BYTES
) -> Iterator[FileRequest]:
    """Yield the requests of a file; see `read_requests`."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise BadInput(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    with file:
        yield from read_requests(file, str(path), signal, most_bytes=most_bytes)


def read_requests(
    file: BinaryIO,
    name: str,
    signal: Signal | None = None,
    *,
    most_bytes: int = MAX_BODY_BYTES,
) -> Iterator[FileRequest]:
    """The requests in a stream of bytes that has the given name; one at a time is in memory.

    The signal is needed only where protobuf requests do not show what they are. Requests before a
    damaged one have been given out when `BadPayload` is raised, or `PayloadTooLarge` for one of
    more than ``most_bytes``; each request itself is only looked at, not validated.
    """
    reader = _Reader(file, name, most_bytes)
    with _naming(name):
        if reader.peek().startswith(_GZIP):
            unzipped = gzip.GzipFile(mode="rb", fileobj=cast(BinaryIO, reader))  # only read from
            reader = _Reader(cast(BinaryIO, unzipped), name, most_bytes)
        head = reader.peek()
        if head.startswith(_BYTE_ORDER_MARK):
            reader.read(len(_BYTE_ORDER_MARK))
            head = reader.peek()
        if not head:
            return
        if _ZSTD in (head[:4], head[4:8]):
            raise BadPayload(f"{name} is compressed with zstd", hint="decompress it first")
        if _JSON_BEGINS.match(head):
            yield from _read_json(reader, signal)
        elif head[0] < 8:  # no protobuf field begins so: it is the high byte of a length
            yield from _read_prefixed(reader, signal)
        elif head[0] == 0x0A:
            yield _request(reader.read_whole(), signal, None, name)
        else:
            raise BadPayload(f"{name} begins with {head[:8].hex(' ')}: {_EXPECTED}")


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Raise `BadPayload` with the file's name for damaged gzip."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadPayload(f"{name} is damaged or truncated gzip: {str(error).lower()}") from None


class _Reader:
    """A stream whose beginning can be looked at, with limits on what is read in one piece."""

    def __init__(self, file: BinaryIO, name: str, most_bytes: int) -> None:
        self._file = file
        self._ahead = b""
        self.name = name
        self.most_bytes = most_bytes

    def peek(self) -> bytes:
        while len(self._ahead) < _HEAD_BYTES and (more := self._file.read(_HEAD_BYTES)):
            self._ahead += more
        return self._ahead

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            data, self._ahead = self._ahead + self._file.read(), b""
            return data
        data, self._ahead = self._ahead[:size], self._ahead[size:]
        while len(data) < size and (more := self._file.read(size - len(data))):
            data += more
        return data

    def read_line(self, number: int) -> bytes:
        """The next line with its line feed; empty at the end."""
        end = self._ahead.find(b"\n") + 1
        line = self.read(end or len(self._ahead))
        if not end:
            line += self._file.readline(self.most_bytes + 1)
        self.check_size(len(line), f"{self.name} line {number}")
        return line

    def read_whole(self, prefix: bytes = b"") -> bytes:
        """Return ``prefix`` and all that is left."""
        data = prefix + self.read(self.most_bytes + 1)
        self.check_size(len(data), self.name)
        return data

    def check_size(self, size_bytes: int, location: str) -> None:
        if size_bytes > self.most_bytes:
            raise PayloadTooLarge(
                f"{location} holds a request of more than {self.most_bytes:,} bytes",
                hint="write it in several smaller requests",
            )


def _read_json(reader: _Reader, signal: Signal | None) -> Iterator[FileRequest]:
    number = 1
    line = reader.read_line(number)
    while not line.strip():
        number += 1
        line = reader.read_line(number)
    if not _is_json(line):
        # Not a line of its own: one request over many lines.
        yield from _json_requests(reader.read_whole(line), signal, reader.name)
        return
    while line:
        if line.strip():
            yield from _json_requests(line.strip(), signal, f"{reader.name} line {number}")
        number += 1
        line = reader.read_line(number)


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    except RecursionError:
        return True
    return True


def _json_requests(text: bytes, signal: Signal | None, location: str) -> Iterator[FileRequest]:
    try:
        signals = json_signals(text)
    except RecursionError:
        raise BadPayload(f"{location} is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = str(error)
        raise BadPayload(f"{location} is no OTLP request: {begin_small(reason)}") from None
    if not signals:
        *first, last = (to_json_name(signal.spec.resources) for signal in Signal)
        raise BadPayload(f"{location} has none of {', '.join(first)} and {last}")
    if signal is not None and signals != [signal]:
        raise BadPayload(f"{location} holds {' and '.join(signals)}, not {signal}")
    for found_signal in signals:
        yield FileRequest(found_signal, "json", text, location)


def _read_prefixed(reader: _Reader, signal: Signal | None) -> Iterator[FileRequest]:
    offset = 0
    last = None
    while prefix := reader.read(_PREFIX_BYTES):
        location = f"{reader.name} at byte {offset:,}"
        length = int.from_bytes(prefix, "big")
        if len(prefix) == _PREFIX_BYTES:
            reader.check_size(length, location)
        body = reader.read(length)
        if len(prefix) < _PREFIX_BYTES or len(body) < length:
            raise BadPayload(f"{location} is truncated: {_EXPECTED}")
        if body:
            request = _request(body, signal, last, location)
            last = request.signal
            yield request
        offset += _PREFIX_BYTES + length


def _request(
    body: bytes, file_signal: Signal | None, last: Signal | None, location: str
) -> FileRequest:
    signal = file_signal or guess_signal(body) or last
    if signal is None:
        raise BadPayload(f"{location} is no OTLP request whose signal can be told", hint=_WHICH)
    return FileRequest(signal, "protobuf", body, location)
