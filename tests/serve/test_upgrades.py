"""Clients that speak HTTP/2 offer it in their first request, as Java's does: a server that does not
take the offer reads the request as if there were none, with its body.
"""

from __future__ import annotations

import socket

import pytest

from lakebed.lake import Lake
from lakebed.samples.generator import Generator
from tests.serve.parts import Served, serving

OFFER = (
    "Connection: {also}Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
)
COUNT = "SELECT count(*) AS n FROM log_entries"


def spell(body: bytes, also: str = "", chunk: int | None = None) -> bytes:
    """A request with such an offer; in chunks, if they have a size."""
    length = "Transfer-Encoding: chunked" if chunk else f"Content-Length: {len(body)}"
    head = (
        "POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
        f"{OFFER.format(also=also)}{length}\r\n\r\n"
    )
    if chunk:
        pieces = [body[at : at + chunk] for at in range(0, len(body), chunk)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in [*pieces, b""])
    return head.encode() + body


def talk(served: Served, said: bytes, piece: int) -> bytes:
    with socket.create_connection(("127.0.0.1", served.port), timeout=300) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(said), piece):
            connection.sendall(said[at : at + piece])
        heard = b""
        while more := connection.recv(1 << 16):
            heard += more
        return heard


@pytest.mark.parametrize("chunk", [None, 100])
@pytest.mark.parametrize("piece", [7, 1 << 20])
def test_what_comes_with_an_offer_is_stored(lake: Lake, chunk: int | None, piece: int) -> None:
    bodies = [Generator(seed).logs(3).SerializeToString() for seed in range(3)]
    with serving(lake) as served:
        said = b"".join(
            spell(body, "close, " if body is bodies[-1] else "", chunk) for body in bodies
        )
        heard = talk(served, said, piece)
        assert heard.count(b"HTTP/1.1 200 OK") == 3, heard
        assert served.query(COUNT) == [{"n": 9}]


def test_many_offers_at_once_are_answered(lake: Lake) -> None:
    asked = f"GET /livez HTTP/1.1\r\nHost: localhost\r\n{OFFER}\r\n"
    said = asked.format(also="") * 300 + asked.format(also="close, ")
    with serving(lake) as served:
        assert talk(served, said.encode(), 1 << 20).count(b"HTTP/1.1 200 OK") == 301


def test_nobody_gets_a_tunnel(lake: Lake) -> None:
    with serving(lake) as served:
        said = b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n"
        heard = talk(served, said, 1 << 20)
        assert heard.split(b"\r\n")[0].split()[1] in (b"400", b"404", b"405"), heard
        assert served.ask("GET", "/livez").status == 200
