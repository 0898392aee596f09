"""Rows as a server sends them: at most the connection's window is in transit."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from lakebed.client.transport import Call
from lakebed.errors import Cancelled
from lakebed.query.output.explanation import Explanation


class RemoteStream:
    """The batches of one statement that a server runs. To be read by one thread; `cancel` may come
    from any."""

    def __init__(self, call: Call, reader: flight.FlightStreamReader) -> None:
        self._call = call
        self._reader: flight.FlightStreamReader | None = reader
        self.schema: pa.Schema = reader.schema
        self._cancelled = False
        self._kept: flight.FlightStreamChunk | None = None

    def read_explanation(self) -> Explanation:
        """Return the explanation that the server sends before the first row: where the rows come
        from."""
        note = self._read()
        if note is None or note.app_metadata is None:  # the server is older than this client
            self._kept = note
            return Explanation("remote", 0)
        return msgspec.json.decode(note.app_metadata.to_pybytes(), type=Explanation)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            while (chunk := self._read()) is not None:
                if chunk.data is not None and chunk.data.num_rows:
                    yield chunk.data
        finally:
            self.close()

    def _read(self) -> flight.FlightStreamChunk | None:
        if self._cancelled:
            raise Cancelled("the statement was cancelled")
        reader = self._reader
        if self._kept is not None:
            note, self._kept = self._kept, None
            return note
        if reader is None:
            return None

        def read() -> flight.FlightStreamChunk | None:
            try:
                return reader.read_chunk()
            except StopIteration:
                return None

        chunk = self._call.run(read)
        if chunk is None:
            self._reader = None
        return chunk

    def cancel(self) -> None:
        """Stop the statement; its reader gets `Cancelled`."""
        self._cancelled = True
        self._call.cancel()

    def close(self) -> None:
        """Stop the statement if it still runs."""
        if self._reader is not None:
            self._reader = None
            self._call.cancel()
