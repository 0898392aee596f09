"""Telemetry from Python and from files, without a server."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lakebed.errors import BadInput
from lakebed.ingest.landing import Lander, Receipt
from lakebed.ingest.requests import check_signal, read_request
from lakebed.model.signal import Signal

_MOST_OUTSTANDING = 64


@dataclass(slots=True)
class LandedFile:
    """What became of a file's requests, and how far its reading is."""

    requests: int = 0
    blocks: int = 0
    records: int = 0
    bytes: int = 0
    duplicates: int = 0

    def add(self, receipt: Receipt) -> None:
        self.requests += 1
        self.blocks += receipt.blocks
        self.records += receipt.records
        self.bytes += receipt.bytes
        self.duplicates += receipt.duplicates


class Telemetry:
    """The way in for OpenTelemetry requests."""

    def __init__(self, lander: Lander) -> None:
        self._lander = lander

    def land(
        self,
        signal: Signal | str,
        body: bytes,
        *,
        content: str = "protobuf",
        request_id: str | None = None,
    ) -> Receipt:
        """Land one OTLP request; when this returns, it is durable. Malformed ones raise
        `BadPayload` and leave nothing; one that landed before counts as a duplicate."""
        return self._submit(signal, body, content, request_id).result()

    def _submit(
        self, signal: Signal | str, body: bytes, content: str, request_id: str | None = None
    ) -> Future[Receipt]:
        self._lander.announce()
        try:
            blocks = read_request(signal, body, content=content, request_id=request_id)
        except BaseException:
            self._lander.withdraw()
            raise
        return self._lander.land(blocks)

    def land_file(
        self,
        path: str | Path,
        *,
        signal: Signal | str | None = None,
        progress: Callable[[LandedFile], None] = lambda _done: None,
    ) -> LandedFile:
        """Land every request of a file: one request in protobuf or JSON, the JSON lines or the
        length-prefixed protobuf of OpenTelemetry's file exporter; each also compressed with gzip.

        The file is read twice: nothing of it lands unless all of it is sound.
        """
        from lakebed.decode.files import read_file

        wanted = None if signal is None else check_signal(signal)
        for request in read_file(Path(path), wanted):
            with _naming(request.place):
                read_request(request.signal, request.body, content=request.content)
        done = LandedFile()
        outstanding: deque[Future[Receipt]] = deque()
        for request in read_file(Path(path), wanted):
            outstanding.append(self._submit(request.signal, request.body, request.content))
            if len(outstanding) >= _MOST_OUTSTANDING:
                done.add(outstanding.popleft().result())
                progress(done)
        for each in outstanding:
            done.add(each.result())
            progress(done)
        return done


@contextmanager
def _naming(place: str) -> Iterator[None]:
    """Say of a bad request where in its file it stands."""
    try:
        yield
    except BadInput as error:
        raise type(error)(f"{place}: {error}", hint=error.hint) from error
