"""`lakebed demo` and `lakebed tour`: what newcomers see first."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from lakebed.extras import require_extra

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
    require_extra("demo")
    started_at = _find_start()
    name = typer.style("Lakebed", bold=True)
    typer.echo(f"{name} shows itself. All of it is on this machine; Ctrl-C ends it.\n")
    from lakebed.demo.living import DemoOptions, run

    if not run(DemoOptions(once=once, keep=keep, any_ports=any_ports, started_at=started_at)):
        raise typer.Exit(FAILED)


def _find_start() -> float:
    """When this process was started, by the monotonic clock; where the system does not tell, now:
    what was imported before this command is then left out."""
    age = 0.0
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[19])  # since the machine started; "starttime" of proc(5)
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        pass
    return time.monotonic() - age


def tour() -> None:
    """Watch what can happen to partitions in a minute, in a temporary folder.

    Example: lakebed tour
    """
    from lakebed.demo.tour import run

    run()
