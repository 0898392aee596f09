"""A PostgreSQL that can be frozen: it keeps its connections, takes new ones, and says nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa


class Freezer:
    """Stands between a lake and its PostgreSQL, and can stop passing on what they say."""

    def __init__(self, url: str) -> None:
        server = sa.make_url(url)
        folder = server.query.get("host")
        port = server.port or 5432
        self._server: object = (server.host or "127.0.0.1", port)
        if isinstance(folder, str) and folder.startswith("/"):
            self._server = str(Path(folder) / f".s.PGSQL.{port}")
        self._flows = threading.Event()
        self._flows.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listening]
        here = server.set(host="127.0.0.1", port=self._listening.getsockname()[1])
        self.url = here.difference_update_query(["host"]).render_as_string(hide_password=False)
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        """Say nothing from now on."""
        self._flows.clear()

    def thaw(self) -> None:
        """Go on as if nothing had been."""
        self._flows.set()

    def close(self) -> None:
        """End all connections."""
        self._flows.set()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listening.accept()
                self._flows.wait()
                kind = socket.AF_UNIX if isinstance(self._server, str) else socket.AF_INET
                far = socket.socket(kind)
                far.connect(self._server)
                self._sockets += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while said := source.recv(65536):
                self._flows.wait()
                sink.sendall(said)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def freezing(url: str) -> Iterator[Freezer]:
    """Something between a lake and the PostgreSQL at this address."""
    freezer = Freezer(url)
    try:
        yield freezer
    finally:
        freezer.close()
