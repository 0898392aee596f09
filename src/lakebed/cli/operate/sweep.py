"""`lakebed sweep`: delete files whose grace period is over, and what dead writers left."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli import output
from lakebed.cli.options import HERE, JsonOption, LakeOption, YesOption, opened

if TYPE_CHECKING:
    from lakebed.lifecycle.sweep import SweepPlan


def sweep(
    lake: LakeOption = HERE,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Watch the leases for one time-to-live, to find dead ones."),
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete what was retired long enough ago and what dead writers left. Shows the plan; acts
    with --yes.

    Example: lakebed sweep --wait --yes
    """
    with opened(lake, is_plan=not yes) as open_lake:
        if wait:
            output.say("watching the leases …")
            open_lake.sweeper.watch_leases()
        plan = open_lake.sweeper.plan()
        if not yes:
            if as_json:
                output.show_json(_sweep_plan(plan))
            else:
                _show_sweep_plan(plan)
            output.say(
                "Nothing to sweep." if plan.is_empty else "Nothing was changed. Repeat with --yes."
            )
            return
        result = open_lake.sweeper.run()
    if as_json:
        output.show_json(asdict(result))
    else:
        output.tell(
            f"swept {output.plural(result.files, 'file')} ({output.size(result.bytes)}), "
            f"{output.plural(result.empty_partitions, 'empty partition')}, "
            f"{output.plural(result.names_released, 'abandoned name')}; "
            f"ended {output.plural(result.leases_ended, 'lease')}"
        )


def _sweep_plan(plan: SweepPlan) -> dict[str, Any]:
    def listed(files: Any) -> list[dict[str, Any]]:
        return [
            {
                "file_path": file.file_path,
                "file_size": file.file_size,
                "expiration": output.instant(file.expiration),
            }
            for file in files
        ]

    return {
        "expired": listed(plan.expired),
        "abandoned": listed(plan.abandoned),
        "unfinished": listed(plan.unfinished),
        "empty_partitions": [output.partition_row(each) for each in plan.empty],
        "dead_leases": [each.holder for each in plan.dead_leases],
        "waiting": plan.waiting,
        "protected": plan.protected,
        "oldest_overdue": output.instant(plan.oldest_overdue),
    }


def _show_sweep_plan(plan: SweepPlan) -> None:
    output.say(
        f"plan: delete {output.plural(len(plan.files), 'file')} ({output.size(plan.bytes)}): "
        f"{len(plan.expired)} past their grace period, {len(plan.abandoned)} of dead writers, "
        f"{len(plan.unfinished)} given up by their writer or by an earlier sweep"
    )
    for file in plan.files[:20]:
        output.say(f"  {file.file_path} ({output.size(file.file_size)})")
    if len(plan.files) > 20:
        output.say(f"  … and {len(plan.files) - 20} more")
    output.say(f"      forget {output.plural(len(plan.empty), 'empty partition')}")
    output.say(f"      end {output.plural(len(plan.dead_leases), 'lease')} of dead processes")
    output.say(
        f"kept: {plan.waiting} in their grace period, {plan.protected} still read by somebody"
    )
    if plan.protected:
        output.say("      if those readers may be dead, find out with --wait")
