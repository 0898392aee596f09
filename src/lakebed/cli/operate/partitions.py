"""`lakebed partitions`: what the lake is made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli import output
from lakebed.cli.options import (
    HERE,
    BeginOption,
    EndOption,
    InstanceOption,
    JsonOption,
    LakeOption,
    YesOption,
    both,
    opened,
)
from lakebed.cli.retention import say_plan
from lakebed.cli.tables.names import split_table_name
from lakebed.errors import BadInput
from lakebed.model.view_set import GLOBAL

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.lake import Lake
    from lakebed.lifecycle.planning import IncompatiblePartition, RetirementPlan
    from lakebed.lifecycle.retire import Retirement

app = typer.Typer(no_args_is_help=True, help="Partitions: list, publish, retire, restore.")
PARTIAL = 5


@app.command("list")
def list_partitions(
    view_set: Annotated[
        str | None, typer.Argument(help="Only this view set, or table as DATABASE.TABLE.")
    ] = None,
    lake: LakeOption = HERE,
    instance: InstanceOption = None,
    begin: BeginOption = None,
    end: EndOption = None,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="TIME", help="What was live at a past tick.")
    ] = None,
    retired: Annotated[bool, typer.Option("--retired", help="Retired ones as well.")] = False,
    incompatible: Annotated[
        bool, typer.Option("--incompatible", help="Only those whose schema is not the active one.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List live partitions, empty ones included.

    Example: lakebed partitions list readings --incompatible
    """
    with opened(lake, write=False) as open_lake:
        if incompatible:
            listed_rows = open_lake.retirement.list_incompatible_partitions(view_set)
            rows = [_incompatible_row(listed) for listed in listed_rows]
            if not as_json:
                rows = [output.short(row) for row in rows]
            output.show(rows, as_json=as_json, empty="every partition has its view set's schema")
            return
        if view_set is not None and "." in view_set:
            table = open_lake.tables.definitions.get(*split_table_name(view_set))
            view_set = table.stored_as
        listed = open_lake.partitions.list_partitions(
            view_set,
            instance=instance,
            inserted=both(begin, end),
            as_of=as_of,
            include_retired=retired,
        )
        names = {} if as_json else open_lake.tables.definitions.list_names()
    output.show_partitions(
        listed, as_json=as_json, empty="no partition", retired=retired, names=names
    )


def _incompatible_row(listed: IncompatiblePartition) -> dict[str, Any]:
    row = listed.as_row()
    del row["partition_id"]
    for name, value in row.items():
        if isinstance(value, bytes):
            row[name] = value.hex()
        elif name.endswith("_time"):
            row[name] = output.instant(value)
    return row


@app.command("publish")
def publish(
    view_set: Annotated[str, typer.Argument()],
    file: Annotated[
        Path | None, typer.Argument(help="The rows: a Parquet or Arrow IPC file.")
    ] = None,
    begin: BeginOption = None,
    end: EndOption = None,
    instance: Annotated[str, typer.Option("--instance", metavar="ID")] = GLOBAL,
    replaces: Annotated[
        list[str] | None,
        typer.Option("--replaces", metavar="ID", help="A partition that this one replaces."),
    ] = None,
    completed_empty: Annotated[
        bool,
        typer.Option("--completed-empty", help="State that the range is complete and has no rows."),
    ] = False,
    lake: LakeOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Publish rows as a partition, or the statement that a range is empty. View sets that builds
    make take none.

    Example: lakebed partitions publish readings rows.parquet --begin 2026-01-01T00:00Z
    --end 2026-01-01T01:00Z
    """
    span = both(begin, end)
    if span is None:
        raise typer.BadParameter("--begin and --end say which insert-time range the rows are of")
    if completed_empty == (file is not None):
        raise typer.BadParameter("give a FILE with rows, or --completed-empty, not both")
    with opened(lake) as open_lake:
        open_lake.partitions.definition(view_set).require_no_source()
        old = [
            partition
            for partition in open_lake.partitions.list_partitions(view_set)
            if partition.partition_id in (replaces or [])
        ]
        if len(old) != len(replaces or []):
            raise BadInput("--replaces names a partition that is not live in this view set")
        if file is None:
            new = open_lake.partitions.publish_completed_empty(
                view_set, *span, instance=instance, replaces=old
            )
        else:
            rows = _read_rows(file)
            new = open_lake.partitions.publish(
                view_set, *span, rows, instance=instance, replaces=old
            )
    output.show_partitions([new], as_json=as_json, empty="")


def _read_rows(file: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if file.suffix in (".arrow", ".feather", ".ipc"):
            with pa.OSFile(str(file)) as source:
                return pa.ipc.open_file(source).read_all()
        return pq.ParquetFile(file, page_checksum_verification=True).read()
    except FileNotFoundError:
        raise BadInput(f"there is no file {file}") from None
    except (pa.ArrowException, OSError) as error:
        raise BadInput(
            f"cannot read {file} as Parquet or Arrow IPC: {str(error).splitlines()[0]}"
        ) from error


ExactOption = Annotated[
    bool, typer.Option("--exact", help="The one partition with exactly this range.")
]
HashOption = Annotated[
    str | None,
    typer.Option("--schema-hash", metavar="HEX", help="With --exact: which of two twins."),
]
FileOption = Annotated[
    str | None,
    typer.Option("--file", metavar="PATH", help="By file; deprecated, cannot name empty ones."),
]
IncompatibleOption = Annotated[
    bool, typer.Option("--incompatible", help="All whose schema is not the active one.")
]
LossOption = Annotated[
    bool,
    typer.Option(
        "--allow-loss",
        help="With --incompatible: also what cannot be rebuilt, of the view set that is named.",
    ),
]
ExpiredOption = Annotated[
    bool, typer.Option("--expired", help="All older than the view set's retention.")
]
HoldOption = Annotated[
    bool, typer.Option("--hold", help="Keep the range away until it is restored.")
]
ConfirmOption = Annotated[
    list[str] | None,
    typer.Option(
        "--confirm",
        metavar="VIEW",
        help="Retire most of this view set, or what of it cannot be rebuilt.",
    ),
]


@app.command("retire")
def retire(
    view_set: Annotated[str | None, typer.Argument()] = None,
    begin: BeginOption = None,
    end: EndOption = None,
    instance: InstanceOption = None,
    exact: ExactOption = False,
    schema_hash: HashOption = None,
    file: FileOption = None,
    incompatible: IncompatibleOption = False,
    allow_loss: LossOption = False,
    expired: ExpiredOption = False,
    hold: HoldOption = False,
    confirm: ConfirmOption = None,
    lake: LakeOption = HERE,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take partitions out of sight: a range, one by identity, or all incompatible ones.

    Nothing is deleted: they can be restored until their grace period ends. Shows the plan; acts
    with --yes.

    Example: lakebed partitions retire readings --incompatible --yes
    """
    ranged = begin is not None or end is not None or instance is not None
    for is_wrong, why in (
        (
            sum([exact, file is not None, incompatible, expired]) > 1,
            "--exact, --file, --incompatible and --expired exclude each other",
        ),
        (hold and (incompatible or expired), "--hold goes with a range, --exact or --file"),
        (schema_hash is not None and not exact, "--schema-hash goes with --exact"),
        (allow_loss and not incompatible, "--allow-loss goes with --incompatible"),
        (
            ranged and (incompatible or expired or file is not None),
            "--begin, --end and --instance do not go with --incompatible, --expired or --file",
        ),
        (file is not None and view_set is not None, "--file names the partition by itself"),
    ):
        if is_wrong:
            raise typer.BadParameter(why)
    with opened(lake, is_plan=not yes) as open_lake:
        verbs = open_lake.retirement
        if incompatible:
            plan = verbs.plan_incompatible(view_set)
            demands = [demand for demand in plan.demands if allow_loss and demand.name != view_set]
            plan = replace(plan, demands=tuple(demands))
        elif file is not None:
            plan = verbs.plan_by_file(file, hold=hold)
        elif view_set is None:
            raise typer.BadParameter("say which view set, or --file, or --incompatible")
        elif expired:
            plan = verbs.plan_by_retention(view_set)
        else:
            span = both(begin, end)
            plan = _plan_range(verbs, view_set, span, instance, exact, schema_hash, hold)
        _show_plan(plan, as_json=as_json and not yes)
        if not yes:
            again = "Nothing was changed. Repeat with --yes to retire them."
            output.say(again if plan.partitions else "Nothing to retire.")
        elif incompatible:
            _retire_incompatible(open_lake, view_set, allow_loss, confirm or [], as_json)
        else:
            rows = [
                {
                    "partition_id": outcome.partition.partition_id,
                    "empty": outcome.partition.is_empty,
                    "message": outcome.message,
                }
                for outcome in verbs.carry_out(plan, confirmed=confirm or [])
            ]
            output.show(rows, as_json=as_json, empty="nothing to retire")


def _plan_range(
    verbs: Retirement,
    view_set: str,
    span: tuple[str, str] | None,
    instance: str | None,
    exact: bool,
    schema_hash: str | None,
    hold: bool,
) -> RetirementPlan:
    if span is None:
        raise typer.BadParameter("say which range with --begin and --end")
    if exact:
        full_hash = _parse_hash(schema_hash)
        return verbs.plan_by_metadata(view_set, instance or GLOBAL, *span, full_hash, hold=hold)
    return verbs.plan_by_range(view_set, *span, instance=instance, hold=hold)


def _parse_hash(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise BadInput(f"{text!r} is not a schema hash", hint="it is written in hex") from None


def _show_plan(plan: RetirementPlan, *, as_json: bool) -> None:
    if as_json:
        output.show_json(
            {
                "reason": plan.reason,
                "hold": plan.hold,
                "partitions": [output.partition_row(partition) for partition in plan.partitions],
                "straddling": [output.partition_row(partition) for partition in plan.straddling],
                "warnings": list(plan.warnings),
                "confirm": list(plan.confirm),
            }
        )
        return
    say_plan(plan)
    for demand in plan.demands:
        reason = f"this would {demand}" if demand.is_loss else f"this is most of {demand.name}"
        output.say(f"  {reason}: it needs --confirm {demand.name}")


def _retire_incompatible(
    lake: Lake, view_set: str | None, allow_loss: bool, confirmed: list[str], as_json: bool
) -> None:
    summaries = lake.retirement.retire_incompatible_partitions(
        view_set, allow_loss=allow_loss, confirmed=confirmed
    )
    rows = [summary.as_row() for summary in summaries]
    output.show(rows, as_json=as_json, empty="nothing to retire")
    if any(summary.partitions_failed for summary in summaries):
        output.say(
            "some were left alone; to retire them although they cannot be rebuilt: --allow-loss"
        )
        raise typer.Exit(PARTIAL)


@app.command("restore")
def restore(
    partition_ids: Annotated[list[str], typer.Argument(metavar="ID...")],
    lake: LakeOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Bring retired partitions back, held ones too; all of them or none.

    Example: lakebed partitions restore 0f8e…  (ids: lakebed partitions list --retired)
    """
    with opened(lake) as open_lake:
        restored = open_lake.retirement.restore_many(partition_ids)
    output.show_partitions(restored, as_json=as_json, empty="")
