"""Telemetry from Python and from files, without a server."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from lakebed.errors import LakebedError
from lakebed.ingest.gate import ByteGate
from lakebed.ingest.landing import Lander
from lakebed.ingest.requests import NewBlock, check_signal, read_request
from lakebed.ingest.segments import Receipt
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

    def __init__(self, lander: Lander, gate: ByteGate | None = None) -> None:
        self._lander = lander
        self._gate = gate or ByteGate()

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
        return self._lander.land(self._read(signal, body, content, request_id)).result()

    def _read(
        self, signal: Signal | str, body: bytes, content: str, request_id: str | None
    ) -> list[NewBlock]:
        with self._gate.room_for(len(body)):
            return read_request(signal, body, content=content, request_id=request_id)

    def land_file(
        self,
        path: str | Path,
        *,
        signal: Signal | str | None = None,
        request_id: str | None = None,
        progress: Callable[[LandedFile], None] = lambda _done: None,
    ) -> LandedFile:
        """Land every request of a file: one request in protobuf or JSON, the JSON lines or the
        length-prefixed protobuf of OpenTelemetry's file exporter; each also compressed with gzip.

        The file is read twice: nothing of it lands unless all of it is sound. What is appended
        meanwhile is left for the next time. With a ``request_id`` the file's requests have that
        id, a slash and their number as theirs.
        """
        from lakebed.decode.files import read_file

        wanted = None if signal is None else check_signal(signal)

        def read_all(most: int | None = None) -> Iterator[tuple[str, list[NewBlock]]]:
            for number, request in enumerate(islice(read_file(Path(path), wanted), most), start=1):
                own_id = None if request_id is None else f"{request_id}/{number}"
                with _naming(request.place):
                    blocks = self._read(request.signal, request.body, request.content, own_id)
                yield request.place, blocks

        sound = sum(1 for _ in read_all())
        done = LandedFile()
        outstanding: deque[tuple[str, Future[Receipt]]] = deque()

        def finish_first() -> None:
            place, receipt = outstanding.popleft()
            with _naming(place):
                done.add(receipt.result())
            progress(done)

        try:
            for place, blocks in read_all(sound):
                outstanding.append((place, self._lander.land(blocks)))
                if len(outstanding) >= _MOST_OUTSTANDING:
                    finish_first()
            while outstanding:
                finish_first()
        finally:
            wait(receipt for _, receipt in outstanding)  # nothing lands once this is left
        return done


@contextmanager
def _naming(place: str) -> Iterator[None]:
    """Say of a request that cannot land where in its file it stands."""
    try:
        yield
    except LakebedError as error:
        raise type(error)(f"{place}: {error}", hint=error.hint) from error
