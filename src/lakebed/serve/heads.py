"""Requests whose line and headers have no end are cut off: uvicorn would keep any amount of them in
memory, whoever sends them and whatever they ask for.
"""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 64 << 10
_TEXT = b"the request's line and headers have more than %d KiB" % (MOST_HEAD_BYTES >> 10)
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s"
) % (len(_TEXT), _TEXT)


class BoundedHeads(HttpToolsProtocol):
    """HTTP whose requests have a head of moderate size."""

    _in_head = False
    _head_bytes = 0

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > MOST_HEAD_BYTES:
            self._refuse()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.transport.is_closing():
            super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse()

    def _refuse(self) -> None:
        self.transport.write(_REFUSAL)
        self.transport.close()
