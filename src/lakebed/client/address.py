"""Addresses of servers: ``grpc://host:port``, or ``grpc+tls://host:port`` for TLS."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from lakebed.errors import BadInput

DEFAULT_PORT = 50051
_PLAIN, _SECURE = "grpc", "grpc+tls"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server's FlightSQL."""

    host: str
    port: int
    secure: bool

    @property
    def uri(self) -> str:
        """Return the address as Flight spells it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{_SECURE if self.secure else _PLAIN}://{host}:{self.port}"

    def __str__(self) -> str:
        return self.uri


def is_server(address: str) -> bool:
    """Return True if this names a server, and not a folder or a catalog."""
    return address.partition("://")[0].lower() in (_PLAIN, _SECURE) and "://" in address


def parse_address(uri: str) -> Address:
    """Return the address that a URI spells; `BadInput` shows the format."""
    hint = f"write it like {_PLAIN}://localhost:{DEFAULT_PORT}, or {_SECURE}://… for TLS"
    try:
        parts = urlsplit(uri)
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise BadInput("the address of the server is no URI", hint=hint) from None
    if "@" in parts.netloc:
        raise BadInput(
            "a key does not belong into the address of a server", hint="use key=, or LAKEBED_KEY"
        )
    if not is_server(uri) or not parts.hostname or parts.path.strip("/") or parts.query:
        raise BadInput(f"{uri!r} is no address of a server", hint=hint)
    return Address(parts.hostname, port, parts.scheme == _SECURE)
