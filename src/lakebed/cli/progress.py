"""Progress of long work on a terminal: a counting line, or a bar. Nothing if stderr is piped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def show_count(start: str, describe: Callable[[T], str]) -> Iterator[Callable[[T], None]]:
    """Yield a function that shows one line about each state of the work."""
    if not sys.stderr.isatty():
        yield lambda _state: None
        return
    from rich.console import Console

    with Console(stderr=True).status(start) as line:
        yield lambda state: line.update(describe(state))


@contextmanager
def show_bar(
    start: str, describe: Callable[[T], Mapping[str, Any]], *, total: int | None = None
) -> Iterator[Callable[[T], None]]:
    """Yield a function that moves a bar. ``describe`` returns what changes: ``completed`` or
    ``advance``, ``total``, ``description`` before the bar and ``note`` behind it."""
    if not sys.stderr.isatty():
        yield lambda _state: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(start, total=total, note="")
        yield lambda state: bar.update(task, **describe(state))
