"""`lakebed demo` and `lakebed tour`: what newcomers see first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakebed.errors import BadInput

FAILED = 1


def demo(
    once: Annotated[
        bool, typer.Option("--once", help="Run everything through, print a summary, and end.")
    ] = False,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Make the lake there, or go on with it, and leave it."),
    ] = None,
    any_ports: Annotated[
        bool, typer.Option("--any-ports", help="Listen on any ports that are free.")
    ] = False,
) -> None:
    """Start a living lake: a server, an instrumented shop and a fleet of rings that send to it, and
    Spark that builds. Prints where to look, how to point a program at it, and what to ask.

    The lake is in a temporary folder and gone at the end. Ports that are taken are replaced by free
    ones. Exit code 1 if --once does not find all that was sent.

    Example: lakebed demo
    Example: lakebed demo --once
    Example: lakebed demo --keep shop
    """
    try:
        from lakebed.demo.living import Wishes, run
    except ModuleNotFoundError as missing:
        raise BadInput(
            f"the demo needs {missing.name}, which is not installed",
            hint="install it with: pip install 'lakebed[demo]'",
        ) from None
    if not run(Wishes(once=once, keep=keep, any_ports=any_ports)):
        raise typer.Exit(FAILED)


def tour() -> None:
    """Watch what can happen to partitions in a minute, in a temporary folder.

    Example: lakebed tour
    """
    from lakebed.demo.tour import run

    run()
