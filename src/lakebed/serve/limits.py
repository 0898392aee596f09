"""Limits of a server's requests."""

from __future__ import annotations

from dataclasses import dataclass

MOST_BYTES = 64 << 20
STALL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Limits of a server."""

    open_to_all: bool = False
    """True for a server that needs no keys and may be addressed by any name."""
    most_body_bytes: int = MOST_BYTES
    most_in_flight_bytes: int = 512 << 20
    """The limit of bodies in memory, over all ports."""
    query_seconds: float | None = 300.0
    stall_seconds: float = STALL_SECONDS
    """The longest pause in a request."""


def shorter(seconds: float | None, most_seconds: float | None) -> float | None:
    """Return the time limit that a caller sets, or the server's if that is shorter."""
    limits = [limit for limit in (seconds, most_seconds) if limit is not None]
    return min(limits, default=None)
