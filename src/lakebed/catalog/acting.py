"""The clients on whose behalf this thread changes the lake. A server acts for clients that
authenticate with a key, and the journal names them beside the process. The context is per thread:
code that passes work to another thread wraps it in `keep_askers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

_MOST_NAMED = 3
_askers: ContextVar[tuple[str, ...]] = ContextVar("lakebed_askers", default=())
P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def on_behalf_of(*askers: str) -> Iterator[None]:
    """Name `askers`, such as ``key:gateway``, in the journal for all changes that this thread makes
    inside the block."""
    before = _askers.set(askers)
    try:
        yield
    finally:
        _askers.reset(before)


def find_askers() -> tuple[str, ...]:
    """Return the clients on whose behalf this thread acts; empty if the process acts for itself."""
    return _askers.get()


def keep_askers(work: Callable[P, R]) -> Callable[P, R]:
    """Return `work` wrapped so that it runs on behalf of this thread's clients, on any thread."""
    askers = find_askers()

    @wraps(work)
    def run(*args: P.args, **options: P.kwargs) -> R:
        with on_behalf_of(*askers):
            return work(*args, **options)

    return run


def name_actor(process: str) -> str:
    """Return the actor for the journal: the process, preceded by the clients it acts for."""
    askers = find_askers()
    if not askers:
        return process
    more = len(askers) - _MOST_NAMED
    named = ", ".join(askers[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{named} via {process}"
