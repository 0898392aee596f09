"""Telemetry from Python and from files, without a server."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from lakebed.admission import Admission
from lakebed.errors import BadInput, BadPayload, LakebedError
from lakebed.ingest.landing import Lander
from lakebed.ingest.requests import NewBlock, check_id, check_signal, read_request
from lakebed.ingest.segments import Receipt
from lakebed.logs import Operation
from lakebed.model.arguments import checked_methods
from lakebed.model.signal import Signal

if TYPE_CHECKING:
    from lakebed.decode.json_requests.trimming import Trimmed

_MOST_OUTSTANDING = 64
_PARSED_AT_ONCE_BYTES = 16 << 20
"""The limit for requests that are parsed at once. Parsing takes many times the size of a request,
up to 75 times for a hostile one of tiny messages, so threads wait for room."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class LandedFile:
    """The result of landing a file, or how far it is."""

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


@checked_methods
class Telemetry:
    """Lands OpenTelemetry requests and files of them."""

    def __init__(self, lander: Lander) -> None:
        self._lander = lander
        self._parsing = Admission(_PARSED_AT_ONCE_BYTES, hint="send it again a little later")

    @property
    def waiting(self) -> tuple[int, int]:
        """Return how many requests wait to be landed, and their bytes."""
        return self._lander.waiting

    def land(
        self,
        signal: Signal | str,
        body: bytes,
        *,
        content: str = "protobuf",
        request_id: str | None = None,
        partial: bool = False,
    ) -> Receipt:
        """Land one OTLP request; when this returns, it is durable. Malformed ones raise
        `BadPayload` and leave nothing; one that landed before counts as a duplicate. With
        ``partial``, records of a JSON request that do not fit are left out and counted."""
        with Operation(_log, "land", signal=str(signal), body_bytes=len(body)) as operation:
            trimmed = None
            try:
                blocks = self._read(signal, body, content, request_id)
            except BadPayload:
                if partial and content == "json":
                    trimmed = self._trim(check_signal(signal), body)
                if trimmed is None:
                    raise
                blocks = self._read(signal, trimmed.body, content, request_id)
            receipt = self._lander.land(blocks).result()
            if trimmed is not None:
                receipt = replace(receipt, rejected=trimmed.rejected, reason=trimmed.reason)
            operation.add(
                blocks=receipt.blocks,
                records=receipt.records,
                duplicates=receipt.duplicates,
                rejected=receipt.rejected,
            )
        return receipt

    def _read(
        self,
        signal: Signal | str,
        body: bytes,
        content: str,
        request_id: str | None,
        number: int | None = None,
    ) -> list[NewBlock]:
        with self._parsing.hold(len(body)):
            return read_request(signal, body, content=content, request_id=request_id, number=number)

    def _trim(self, signal: Signal, body: bytes) -> Trimmed | None:
        from lakebed.decode.json_requests.trimming import trim

        with self._parsing.hold(len(body)):
            return trim(signal, body)

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

        The file is read twice: nothing of it lands unless all of it is sound. If landing fails
        midway, ``progress`` was called for everything that has landed. Lines appended to the file
        meanwhile are not read. With a ``request_id`` each request of the file has that id, a slash
        and its number as its own id.
        """
        try:
            file = Path(path).open("rb")  # noqa: SIM115  (closed below)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise BadInput(f"cannot read {path}: {reason}") from None
        with file:
            return self.land_stream(
                file, str(path), signal=signal, request_id=request_id, progress=progress
            )

    def land_stream(
        self,
        file: BinaryIO,
        name: str,
        *,
        signal: Signal | str | None = None,
        request_id: str | None = None,
        progress: Callable[[LandedFile], None] = lambda _done: None,
    ) -> LandedFile:
        """Land an open file like `land_file`; errors name it ``name``. A file that cannot be read
        twice, such as a pipe, is copied to a temporary file first."""
        from lakebed.decode.files import read_requests

        expected_signal = None if signal is None else check_signal(signal)
        check_id(request_id)
        with _readable_twice(file) as source:

            def read_all(limit: int | None = None) -> Iterator[tuple[str, list[NewBlock]]]:
                source.seek(0)
                requests = islice(read_requests(source, name, expected_signal), limit)
                for number, request in enumerate(requests, start=1):
                    with _naming(request.location):
                        blocks = self._read(
                            request.signal, request.body, request.content, request_id, number
                        )
                    yield request.location, blocks

            with Operation(_log, "land file", file=name) as operation:
                sound = sum(1 for _ in read_all())
                landed = self._land_all(read_all(sound), progress)
                operation.add(
                    requests=landed.requests,
                    blocks=landed.blocks,
                    records=landed.records,
                    duplicates=landed.duplicates,
                )
            return landed

    def _land_all(
        self,
        requests: Iterator[tuple[str, list[NewBlock]]],
        progress: Callable[[LandedFile], None],
    ) -> LandedFile:
        done = LandedFile()
        outstanding: deque[tuple[str, Future[Receipt]]] = deque()

        def finish_first() -> None:
            position, receipt = outstanding.popleft()
            with _naming(position):
                done.add(receipt.result())
            progress(done)

        try:
            for position, blocks in requests:
                outstanding.append((position, self._lander.land(blocks)))
                if len(outstanding) >= _MOST_OUTSTANDING:
                    finish_first()
            while outstanding:
                finish_first()
        finally:
            # After an error nothing lands once this function returns; landed requests are counted.
            wait(receipt for _, receipt in outstanding)
            for _, receipt in outstanding:
                if receipt.exception() is None:
                    done.add(receipt.result())
                    progress(done)
        return done


@contextmanager
def _readable_twice(file: BinaryIO) -> Iterator[BinaryIO]:
    if file.seekable():
        yield file
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(file, copy)
        yield cast(BinaryIO, copy)


@contextmanager
def _naming(position: str) -> Iterator[None]:
    """Prefix the error of a request that cannot land with its position in the file."""
    try:
        yield
    except LakebedError as error:
        raise type(error)(f"{position}: {error}", hint=error.hint) from error
