"""On whose behalf this process changes the lake. A server acts for those who come with a key; the
journal names them beside the process. It is kept for the thread that does the work: whoever hands
work to another thread hands this on with `keep_askers`.
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
    """What this thread changes inside the block is asked for by these, such as ``key:gateway``."""
    before = _askers.set(askers)
    try:
        yield
    finally:
        _askers.reset(before)


def find_askers() -> tuple[str, ...]:
    """Those on whose behalf this thread acts; nobody but the process itself if there are none."""
    return _askers.get()


def keep_askers(work: Callable[P, R]) -> Callable[P, R]:
    """The same work, on behalf of those for whom this thread acts now, whichever thread does it."""
    askers = find_askers()

    @wraps(work)
    def run(*args: P.args, **options: P.kwargs) -> R:
        with on_behalf_of(*askers):
            return work(*args, **options)

    return run


def name_actor(process: str) -> str:
    """Who the journal names: the process, and before it those who asked for it."""
    askers = find_askers()
    if not askers:
        return process
    more = len(askers) - _MOST_NAMED
    named = ", ".join(askers[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{named} via {process}"
