"""`lakebed upkeep`: what a lake needs again and again, shown or done."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli import output
from lakebed.cli.options import HERE, JsonOption, LakeOption, opened
from lakebed.errors import BadInput
from lakebed.model.time import SECOND, format_duration, format_instant

if TYPE_CHECKING:
    from lakebed.catalog.records.duties import DutyState
    from lakebed.upkeep.duties import Duty

FAILED = 1


def upkeep(
    duty: Annotated[list[str] | None, typer.Argument(help="Only these duties.")] = None,
    lake: LakeOption = HERE,
    once: Annotated[
        bool, typer.Option("--once", help="Do it now, whether it is due or not, and end.")
    ] = False,
    forever: Annotated[
        bool, typer.Option("--forever", help="Do what is due, again and again, until stopped.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Build, sweep, apply retention, check and heal; or show when that was done and is due.

    Duties are isolated: one that fails is recorded and tried again, and the others go on. Several
    processes may do upkeep of one lake; each duty is done by one of them at a time. Exit code 1 if
    a duty failed.

    Example: lakebed upkeep --once

    Example: lakebed upkeep --once build sweep
    """
    from lakebed.upkeep.upkeep import Upkeep

    if once and forever:
        raise BadInput("--once and --forever exclude each other", hint="choose one")
    if duty and not once:
        raise BadInput(f"{duty[0]} is named, and nothing is to be done", hint="add --once")
    with opened(lake, write=once or forever) as open_lake:
        keeping = Upkeep(open_lake)
        if forever:
            output.say("looking after the lake; stop with Ctrl-C")
            keeping.loop(threading.Event())
        if not once:
            _show(keeping.list_duties(), keeping.find_overdue(), as_json=as_json)
            return
        done = keeping.run_due(*(duty or ()), everything=True)
    rows = [
        {
            "duty": outcome.name,
            "said": outcome.result,
            "error": outcome.error,
            "skipped": outcome.skipped,
        }
        for outcome in done
    ]
    if as_json:
        output.show_json(rows)
    else:
        for outcome in done:
            output.tell(f"{outcome.name}: {outcome.error or outcome.skipped or outcome.result}")
    if any(outcome.error for outcome in done):
        raise typer.Exit(FAILED)


def _show(
    duties: list[tuple[Duty, DutyState]], overdue_us: dict[str, int], *, as_json: bool
) -> None:
    rows: list[dict[str, Any]] = [
        {
            "duty": duty.name,
            "purpose": duty.purpose,
            "every_seconds": duty.every_seconds,
            "last_success": _spell(state.last_success),
            "said": state.result,
            "last_failure": _spell(state.last_failure),
            "error": state.error,
            "next_run": _spell(state.next_run or None),
            "overdue_seconds": overdue_us[duty.name] / SECOND,
            "runs": state.runs,
            "failures": state.failures,
        }
        for duty, state in duties
    ]
    if as_json:
        output.show_json(rows)
        return
    for row in rows:
        output.tell(f"{row['duty']}: {row['purpose']}, {_spell_every(row)}")
        output.tell(f"    last done {row['last_success'] or 'never'}: {row['said'] or '-'}")
        if row["error"]:
            output.tell(f"    failed {row['last_failure']}: {row['error']}")
        late = row["overdue_seconds"]
        overdue = f"    overdue for {format_duration(math.ceil(late) * SECOND)}"
        output.tell(overdue if late else f"    due {row['next_run']}")


def _spell_every(row: Mapping[str, Any]) -> str:
    return f"every {format_duration(row['every_seconds'] * SECOND)}"


def _spell(instant: int | None) -> str | None:
    return None if instant is None else format_instant(instant)
