"""Options that several commands share, and how a command opens its lake."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.client.address import is_server
from lakebed.errors import BadInput, ReadOnly, Unavailable

if TYPE_CHECKING:
    from lakebed.client.client import Client
    from lakebed.lake import Lake
    from lakebed.settings import Settings

LakeOption = Annotated[
    str,
    typer.Option(
        "--lake",
        "-l",
        metavar="PLACE",
        show_default=False,
        help="The lake: its folder, or the URL of its catalog.  "
        "[env var: LAKEBED_LAKE; default: .]",
    ),
]
AnyLakeOption = Annotated[
    str,
    typer.Option(
        "--lake",
        "-l",
        metavar="PLACE",
        show_default=False,
        help="The lake: its folder, the URL of its catalog, or a server of it, as "
        "grpc://localhost:50051.  [env var: LAKEBED_LAKE; default: .]",
    ),
]
"""For commands that also work over a connection."""

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of a table; its keys are a contract.")
]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Do it; without this only the plan is shown.")
]
BeginOption = Annotated[
    str | None,
    typer.Option("--begin", metavar="TIME", help="Begin of the insert-time range."),
]
EndOption = Annotated[
    str | None,
    typer.Option("--end", metavar="TIME", help="End of the insert-time range, not included."),
]
InstanceOption = Annotated[
    str | None, typer.Option("--instance", metavar="ID", help="Only this instance.")
]

HERE = ""
"""No lake was named: the settings say which."""

DAMAGED = 1
"""The exit code of commands that found damage."""


class _NoPandas(MetaPathFinder):
    """Says that pandas is not installed."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        """Refuse pandas; others look for the rest."""
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError("this command does without pandas", name=name)


def do_without_pandas() -> None:
    """Start sooner: Arrow imports pandas, where it is installed, as soon as it converts any Python
    value. Only for a process that runs one command of ours and nobody else's code."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())


@contextmanager
def opened(address: str, *, write: bool = True, is_plan: bool = False) -> Iterator[Lake]:
    """Open a lake until the command ends. Commands that only look do so without a lease if the
    catalog cannot be written, and say so. A plan opens it for reading only, and so cannot write;
    only the grace period protects the files that it reads."""
    from lakebed.opening import open_lake  # the heavy part of a command's start
    from lakebed.settings import read_settings

    settings = read_settings(lake=address or None)
    if is_server(settings.lake):
        raise BadInput(
            f"this command needs the lake itself, and {settings.lake} is a server of one",
            hint="name its folder or catalog; lakebed query works over a connection too",
        )
    if write:
        lake = open_lake(settings.lake, read_only=is_plan, settings=settings)
    else:
        lake = _open_to_look(settings)
    with lake:
        yield lake


def _open_to_look(settings: Settings) -> Lake:
    from lakebed.catalog.connections.health import try_to_write
    from lakebed.opening import open_lake

    try:
        lake = open_lake(settings.lake, settings=settings)
    except Unavailable:
        if "://" in settings.lake:  # a server that is away will not come back for a second look
            raise
        lake = open_lake(settings.lake, read_only=True, settings=settings)
    else:
        try:
            try_to_write(lake.catalog)
        except ReadOnly:
            lake.catalog.close()
            lake = open_lake(settings.lake, read_only=True, settings=settings)
    if lake.catalog.read_only:
        typer.echo(
            "note: the catalog cannot be written, so nothing but the grace period keeps files "
            "from being swept while they are read",
            err=True,
        )
    return lake


@contextmanager
def reached(place: str) -> Iterator[Lake | Client]:
    """Open what answers SQL at a place: the lake read-only, or a connection to a server of it."""
    from lakebed.settings import read_settings

    address = read_settings(lake=place or None).lake
    if not is_server(address):
        with opened(place, write=False) as lake:
            yield lake
        return
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would print what our errors say
    from lakebed.client.client import connect

    with connect(address) as client:
        yield client


def both(begin: str | None, end: str | None) -> tuple[str, str] | None:
    """A range from two options that belong together."""
    if begin is None and end is None:
        return None
    if begin is None or end is None:
        raise typer.BadParameter("--begin and --end belong together")
    return begin, end
