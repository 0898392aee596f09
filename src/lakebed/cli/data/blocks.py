"""`lakebed blocks`: how long landed bytes are kept, and letting go of old ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli import output
from lakebed.cli.options import HERE, JsonOption, LakeOption, YesOption, opened
from lakebed.cli.retention import FOREVER, UNCHANGED, KeepArgument, show_keep

if TYPE_CHECKING:
    from lakebed.lifecycle.landed import BlockPlan

app = typer.Typer(no_args_is_help=True, help="Landed blocks: how long to keep them, retire.")


@app.command("keep")
def keep(
    time: KeepArgument,
    lake: LakeOption = HERE,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say how long this lake keeps blocks after they landed.

    If older blocks are there, it shows how many and changes nothing without --yes. Upkeep retires
    what is too old, again and again, and blocks cannot be restored. Prints what the catalog says
    afterwards.

    Example: lakebed blocks keep 30d
    """
    from lakebed.model.time import parse_duration

    keep_us = None if time == FOREVER else parse_duration(time)
    with opened(lake) as open_lake:
        verbs = open_lake.blocks
        plan = None if keep_us is None else verbs.plan_expired(keep_us=keep_us)
        condemns = plan is not None and bool(plan.segments)
        acts = yes or not condemns
        if plan is not None and not as_json:
            _say_plan(plan)
        retention = show_keep(verbs.keep(keep_us) if acts else verbs.find_keep())
    if as_json:
        condemned = None if plan is None else _describe(plan)
        output.show_json({"done": acts, "keep": retention, "condemned": condemned})
        return
    if not acts:
        output.say(UNCHANGED)
        return
    output.tell(f"blocks are kept {retention if retention == FOREVER else f'for {retention}'}")
    if condemns:
        output.say("upkeep retires them; see what goes with: lakebed blocks retire --expired")


@app.command("retire")
def retire(
    expired: Annotated[
        bool, typer.Option("--expired", help="All older than this lake keeps them.")
    ] = False,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help="All that landed before.")
    ] = None,
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Also what has not been built, or cannot be.")
    ] = False,
    lake: LakeOption = HERE,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let go of old blocks whose rows are in partitions, from the oldest on, in whole segments.

    What was built of them stays and is frozen: it cannot be built again. Blocks of which a view set
    has not been built are kept, and all that landed later. Shows the plan; acts with --yes. A sweep
    deletes the files after the grace period; blocks cannot be restored.

    Example: lakebed blocks retire --expired --yes
    """
    if expired == (before is not None):
        raise typer.BadParameter("say either --expired or --before TIME")
    with opened(lake, is_plan=not yes) as open_lake:
        verbs = open_lake.blocks
        if before is None:
            plan = verbs.plan_expired(allow_loss=allow_loss)
        else:
            plan = verbs.plan_before(before, allow_loss=allow_loss)
        if yes:
            plan = verbs.carry_out(plan)
        _show_plan(plan, done=yes, as_json=as_json)


def _show_plan(plan: BlockPlan, *, done: bool, as_json: bool) -> None:
    if as_json:
        output.show_json({"done": done, **_describe(plan)})
        return
    _say_plan(plan, done=done)
    if plan.segments and not done:
        output.say("Nothing was changed. Repeat with --yes to retire them.")


def _describe(plan: BlockPlan) -> dict[str, Any]:
    return {
        "reason": plan.reason,
        "before": output.instant(plan.before) if plan.segments else None,
        "blocks": plan.blocks,
        "segments": len(plan.segments),
        "bytes": plan.bytes,
        "unbuilt": [
            {
                "view_set_name": gap.view_set,
                "blocks": gap.blocks,
                "first_insert_time": output.instant(gap.first),
            }
            for gap in plan.unbuilt
        ],
    }


def _say_plan(plan: BlockPlan, *, done: bool = False) -> None:
    for gap in plan.unbuilt:
        count = output.plural(gap.blocks, "block")
        since = output.instant(gap.first)
        if plan.allow_loss:
            output.say(
                f"warning: {gap.view_set} has not been built of {count}; their rows are lost"
            )
        else:
            output.say(f"kept: {gap.view_set} has not been built of {count}, from {since} on")
    what = (
        f"{output.plural(plan.blocks, 'block')} in {output.plural(len(plan.segments), 'segment')}, "
        f"{output.size(plan.bytes)}"
    )
    if not plan.segments:
        output.say("Nothing to retire.")
    elif done:
        output.tell(f"retired {what}; what landed before {output.instant(plan.before)} is frozen")
    else:
        output.say(f"plan: retire {what}")
