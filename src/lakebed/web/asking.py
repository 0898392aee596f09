"""Parameters of a browser's request, and the page to show after signing in."""

from __future__ import annotations

from starlette.requests import Request


def read_every(request: Request) -> dict[str, list[str]]:
    """Return every value of each parameter."""
    return {name: request.query_params.getlist(name) for name in request.query_params}


def keep_local(path: str) -> str:
    """Return the page to open after signing in: a path of this server, also if the address names
    another."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and "\n" not in path
    return path if is_ours else "/lake"
