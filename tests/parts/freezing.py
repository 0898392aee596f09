"""Servers that can be frozen: they keep their connections, take new ones, and say nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import sqlalchemy as sa


class Freezer:
    """Stands between a lake and a server, and can stop passing on what they say."""

    def __init__(
        self, server: str | tuple[str, int], listening: socket.socket | None = None
    ) -> None:
        """``server`` is the path of a socket, or a host and a port; ``listening`` is where this
        listens."""
        self._server = server
        self._flows = threading.Event()
        self._flows.set()
        self._listening = listening or socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listening]
        self._lock = threading.Lock()
        self._closed = False
        self._left: int | None = None
        self._near: set[socket.socket] = set()
        self._forgotten: set[socket.socket] = set()
        self.port: int = self._listening.getsockname()[1]
        self.url = ""
        """The address of the server, as seen through this."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self) -> int:
        """The number of connections accepted so far."""
        return len(self._near)

    def freeze(self) -> None:
        """Say nothing from now on."""
        self._flows.clear()

    def freeze_after(self, messages: int) -> None:
        """Say nothing any more once so much was passed on to the server."""
        self._left = messages

    def forget(self) -> None:
        """Pass nothing on any more over the connections that there are."""
        self._forgotten = {*self._sockets[1:]}

    def thaw(self) -> None:
        """Go on as if nothing had been."""
        self._left = None
        self._flows.set()

    def close(self) -> None:
        """End all connections."""
        self._flows.set()
        with self._lock:
            self._closed = True
            for each in self._sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listening.accept()
                self._flows.wait()
                self._join(near)

    def _join(self, near: socket.socket) -> None:
        far = socket.socket(socket.AF_UNIX if isinstance(self._server, str) else socket.AF_INET)
        with self._lock:
            if self._closed:
                near.close()
                far.close()
                return
            self._sockets += [near, far]
            self._near.add(near)
            far.connect(self._server)
        for ends in ((near, far), (far, near)):
            threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while said := source.recv(65536):
                if self._left is not None and source in self._near:
                    self._left -= 1
                    if self._left < 0:
                        self._flows.clear()
                self._flows.wait()
                if source not in self._forgotten:
                    sink.sendall(said)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def freezing_postgres(url: str, listening: socket.socket | None = None) -> Iterator[Freezer]:
    """Something between a lake and the PostgreSQL at this address, with little patience."""
    server = sa.make_url(url)
    folder, port = server.query.get("host"), server.port or 5432
    place: str | tuple[str, int] = (server.host or "127.0.0.1", port)
    if isinstance(folder, str) and folder.startswith("/"):
        place = str(Path(folder) / f".s.PGSQL.{port}")
    freezer = Freezer(place, listening)
    here = server.set(host="127.0.0.1", port=freezer.port).difference_update_query(["host"])
    quick = here.update_query_dict({"connect_timeout": "2"})
    freezer.url = quick.render_as_string(hide_password=False)
    try:
        yield freezer
    finally:
        freezer.close()


@contextmanager
def freezing_http(url: str) -> Iterator[Freezer]:
    """Something between a lake and the HTTP server at this address."""
    server = urlsplit(url)
    freezer = Freezer((server.hostname or "", server.port or 80))
    freezer.url = f"http://127.0.0.1:{freezer.port}"
    try:
        yield freezer
    finally:
        freezer.close()
