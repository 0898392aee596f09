"""From a request's bytes to the blocks that it asks to land: who sent them, and under which ids.

Ids are content-addressed: the same bytes have the same id, so that a request which is sent again
is stored once. A producer that sends identical bytes and means different events gives an id of
its own with each request.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass

from lakebed.errors import BadInput
from lakebed.model.block import Process, Stream, encoding_of
from lakebed.model.signal import Signal

_LONGEST_ID = 200


@dataclass(frozen=True, slots=True)
class NewBlock:
    """A block that has not landed yet."""

    block_id: str
    process: Process
    stream: Stream
    encoding: str
    payload: bytes
    payload_digest: bytes
    nb_objects: int
    begin_time: int | None
    end_time: int | None


def read_request(
    signal: Signal | str,
    body: bytes,
    *,
    content: str = "protobuf",
    request_id: str | None = None,
    number: int | None = None,
) -> list[NewBlock]:
    """Return the blocks of one OTLP request, one for each resource that sent any record. Requests
    that share an id, as those of a file do, have each a ``number``.

    Raises `BadPayload` if any of it is malformed: then none of it lands.
    """
    from lakebed.decode.requests import split

    if content not in ("protobuf", "json"):
        raise BadInput(f"requests are protobuf or json, not {content!r}")
    checked_signal = check_signal(signal)
    check_id(request_id)
    if request_id is not None and number is not None:
        request_id = f"{request_id}/{number}"
    encoding = encoding_of(checked_signal, content)
    blocks = []
    for position, part in enumerate(split(checked_signal, body, content=content)):  # type: ignore[arg-type]
        if part.nb_objects == 0:
            continue
        digest = hashlib.sha256(part.payload).digest()
        process = _process(part.resource.properties)
        stream = Stream(
            _id("stream", process.process_id, checked_signal.value),
            process.process_id,
            {"tags": [checked_signal.value], "format": f"otlp/{checked_signal}"},
        )
        named = digest.hex() if request_id is None else f"{request_id}/{position}"
        blocks.append(
            NewBlock(
                block_id=_id("block", encoding, named),
                process=process,
                stream=stream,
                encoding=encoding,
                payload=part.payload,
                payload_digest=digest,
                nb_objects=part.nb_objects,
                begin_time=part.begin,
                end_time=part.end,
            )
        )
    return blocks


def check_id(request_id: str | None) -> None:
    """Raise `BadInput` for an invalid id of a request or a file of requests; None is allowed."""
    if request_id is None:
        return
    if not (0 < len(request_id) <= _LONGEST_ID and request_id.isprintable()):
        raise BadInput(f"a request's id has 1 to {_LONGEST_ID} printable characters")


def check_signal(signal: Signal | str) -> Signal:
    """Return the signal of a name; raise `BadInput` if there is none."""
    try:
        return Signal(signal)
    except ValueError:
        names = ", ".join(Signal)
        raise BadInput(f"{signal!r:.60} is not a signal", hint=f"one of {names}") from None


def _process(properties: dict[str, str | None]) -> Process:
    """Return the process of a resource; resources with equal attributes are one process."""
    canonical = json.dumps(properties, sort_keys=True, separators=(",", ":"))
    return Process(_id("process", canonical), dict(properties))


def _id(*parts: str) -> str:
    """Return a version 8 UUID made from a SHA-256 digest, which is collision-resistant."""
    digest = bytearray(hashlib.sha256("\x1f".join(parts).encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(digest)))
