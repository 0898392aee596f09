"""What a request of a browser says: its key, what it asks for, and where it wants to go."""

from __future__ import annotations

from starlette.requests import Request


def has_key(request: Request) -> bool:
    """Whether a key is in the header; otherwise the session tells."""
    return request.headers.get("authorization", "").lower().startswith("bearer ")


def read_key(request: Request) -> str:
    """The key in the header."""
    return request.headers["authorization"].partition(" ")[2].strip()


def read_every(request: Request) -> dict[str, list[str]]:
    """Every value of each parameter."""
    return {name: request.query_params.getlist(name) for name in request.query_params}


def keep_local(path: str) -> str:
    """Where to go after signing in: a page of ours, whatever the address says."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and "\n" not in path
    return path if is_ours else "/lake"
