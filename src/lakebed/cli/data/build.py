"""`lakebed build`: blocks become partitions, small partitions larger ones; tables are folded."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli import output, progress
from lakebed.cli.options import HERE, JsonOption, LakeOption, opened

if TYPE_CHECKING:
    from lakebed.catalog.leases import Lease
    from lakebed.pipeline.pipeline import BuildReport, Progress
    from lakebed.pipeline.steps import Plan, Skip, Step

PARTLY = 5
FAILED = 1
_ONCE_MORE_SECONDS = 0.2


def build(
    views: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="These view sets and what they read, and tables as database.table; or all.",
        ),
    ] = None,
    begin: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Only what landed from here on.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Only what landed before.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show the steps with their reasons; do nothing.")
    ] = False,
    retry: Annotated[
        bool, typer.Option("--retry-failed", help="Try blocks again that could not be decoded.")
    ] = False,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="A Spark master; default: this machine.")
    ] = None,
    remote: Annotated[
        str | None, typer.Option(metavar="URL", help="A Spark Connect server, sc://host:port.")
    ] = None,
    pass_credentials: Annotated[
        bool, typer.Option(help="Give executors this process's S3 credentials.")
    ] = False,
    lake: LakeOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Build what landed, rebuild what was retired, merge what is small, fold users' tables: until
    nothing is due of what was there at the beginning. Spark is started only if there is more to do
    than to fold small tables.

    Exit code 5 if some steps failed, 1 if all did.

    Example: lakebed build --plan

    Example: lakebed build log_entries --from 2026-11-15T00:00:00Z

    Example: lakebed build home.heart_rate
    """
    with opened(lake, is_plan=plan) as open_lake:
        names = views or []
        if retry and not plan:
            count = open_lake.pipeline.retry_failures(*names)
            output.say(f"{output.plural(count, 'failed block')} will be tried again")
        if plan:
            _show_plan(open_lake.pipeline.plan(*names, begin=begin, end=end), as_json=as_json)
            return
        with show_progress() as notify, ThreadPoolExecutor(1, "lakebed-build") as thread:
            # Not in this thread: Ctrl-C would end up within what waits for Spark's JVM.
            building = thread.submit(
                open_lake.pipeline.build,
                *names,
                begin=begin,
                end=end,
                master=master,
                remote=remote,
                pass_credentials=pass_credentials,
                progress=notify,
                notice=_tell_builder,
            )
            try:
                report = building.result()
            except KeyboardInterrupt:
                output.say("ending the build; Spark takes some seconds …")
                while not building.done():
                    open_lake.pipeline.cancel()  # again: the build may not have begun
                    wait([building], _ONCE_MORE_SECONDS)
                raise
    _show_report(report, as_json=as_json)
    if report.problems:
        raise typer.Exit(PARTLY if report.published else FAILED)


def _tell_builder(lease: Lease) -> None:
    output.say(
        f"{lease.holder} builds {lease.view_set}; watching whether it is alive "
        f"(up to {lease.ttl_us / 1_000_000:.0f} s) …"
    )


def _show_plan(plan: Plan, *, as_json: bool) -> None:
    steps = [_step_row(step) for step in (*plan.steps, *plan.skipped)]
    if as_json:
        output.show_json({"tick": output.instant(plan.tick), "steps": steps})
    else:
        output.show([output.short(row) for row in steps], as_json=False, empty="nothing is due")


def _step_row(step: Step | Skip) -> dict[str, Any]:
    return {
        "view_set_name": step.name,
        "step": step.describe(),
        "begin_insert_time": output.instant(step.insert_range.begin),
        "end_insert_time": output.instant(step.insert_range.end),
        "reason": step.reason,
    }


def _show_report(report: BuildReport, *, as_json: bool) -> None:
    if as_json:
        output.show_json(
            {
                "rounds": report.rounds,
                "partitions": [
                    output.partition_row(partition.partition)
                    for partition in report.published
                    if partition.partition is not None
                ],
                "rows": report.rows,
                "bytes": report.bytes,
                "fallbacks": report.fallbacks,
                "overtaken": len(report.overtaken),
                "problems": [
                    _step_row(problem.step) | {"problem": problem.problem}
                    for problem in report.problems
                ],
                "skipped": [_step_row(step) for step in report.skipped],
            }
        )
        return
    for problem in report.problems:
        output.say(f"{problem.step.name} {problem.step.insert_range}: {problem.problem}")
    for skip in report.skipped:
        output.say(f"{skip.name} {skip.insert_range}: left out, {skip.reason}")
    if not report.outcomes:
        output.tell("nothing is due")
        return
    output.tell(
        f"{output.plural(len(report.published), 'partition')} published, {report.rows:,} rows, "
        f"{output.size(report.bytes)}"
        + (f"; {output.plural(len(report.problems), 'step')} failed" if report.problems else "")
    )


def show_progress() -> AbstractContextManager[Callable[[Progress], None]]:
    """Show the steps of a build that are done, on a terminal."""
    return progress.show_bar("starting", _describe_progress)


def _describe_progress(at: Progress) -> dict[str, Any]:
    return {
        "description": "building" if at.round == 1 else f"building, round {at.round}",
        "completed": at.done,
        "total": at.planned,
        "note": f"{at.rows:,} rows, {output.size(at.bytes)}",
    }
