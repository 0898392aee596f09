"""Retention on the command line: a plan of what a shorter one condemns, and the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.cli import output

if TYPE_CHECKING:
    from lakebed.lifecycle.planning import RetirementPlan

FOREVER = "forever"
UNCHANGED = "Nothing was changed. Repeat with --yes to keep no more than that."
_SHOWN = 20

KeepArgument = Annotated[str, typer.Argument(metavar="TIME", help="Such as 30d; or forever.")]


def show_keep(keep_us: int | None) -> str:
    """Return a retention as text."""
    from lakebed.model.time import format_duration

    return FOREVER if keep_us is None else format_duration(keep_us)


def say_plan(plan: RetirementPlan) -> None:
    """Print a retirement plan."""
    rows = sum(partition.num_rows for partition in plan.partitions)
    empty = sum(partition.is_empty for partition in plan.partitions)
    output.say(
        f"plan: retire {output.plural(len(plan.partitions), 'partition')} ({empty} empty) with "
        f"{output.plural(rows, 'row')}, {output.size(plan.bytes)}{', held' if plan.hold else ''}"
    )
    for partition in plan.partitions[:_SHOWN]:
        output.say(f"  {partition.describe()}")
    if len(plan.partitions) > _SHOWN:
        output.say(f"  … and {len(plan.partitions) - _SHOWN} more")
    for partition in plan.straddling:
        output.say(f"  left alone, reaches beyond the range: {partition.describe()}")
    for warning in plan.warnings:
        output.say(f"  warning: {warning}")


def say_what_upkeep_does(plan: RetirementPlan, by_hand: str) -> None:
    """Print who retires what a new retention condemns: upkeep, unless it is most of the rows."""
    if plan.confirm:
        output.say(f"this is most of it, which upkeep leaves to you: {by_hand}")
    else:
        output.say(f"upkeep retires them; see what goes with: {by_hand}")
