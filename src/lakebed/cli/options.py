"""Options that several commands share, and how a command opens its lake."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.errors import ReadOnly

if TYPE_CHECKING:
    from lakebed.lake import Lake

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
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of a table; its keys are a contract.")
]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Do it; without this only the plan is shown.")
]
BeginOption = Annotated[
    str | None,
    typer.Option("--begin", metavar="TIME", help="Begin of the insert-time range, with a zone."),
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
def opened(place: str, *, write: bool = True) -> Iterator[Lake]:
    """The lake, closed when the command ends. Commands that only look do so without a lease if
    the catalog cannot be written, and say so."""
    from lakebed.lake import open_lake  # the heavy part of a command's start
    from lakebed.settings import read_settings

    settings = read_settings(lake=place or None)
    lake = open_lake(settings.lake, settings=settings)
    if not write:
        try:
            lake.leases.unpin(lake.leases.pin())
        except ReadOnly:
            lake.catalog.close()
            lake = open_lake(settings.lake, read_only=True, settings=settings)
            typer.echo(
                "note: the catalog cannot be written, so nothing but the grace period keeps files "
                "from being swept while they are read",
                err=True,
            )
    with lake:
        yield lake


def both(begin: str | None, end: str | None) -> tuple[str, str] | None:
    """A range from two options that belong together."""
    if begin is None and end is None:
        return None
    if begin is None or end is None:
        raise typer.BadParameter("--begin and --end belong together")
    return begin, end
