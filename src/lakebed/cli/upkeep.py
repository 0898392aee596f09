"""Verbs that look after a whole lake: init, migrate, sweep, journal, leases, backup."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli import output
from lakebed.cli.options import DAMAGED, HERE, JsonOption, LakeOption, YesOption, opened
from lakebed.errors import BadInput, LakeNotFound
from lakebed.model.time import DEFAULT_GRACE, DEFAULT_LONGEST_READ

if TYPE_CHECKING:
    from lakebed.lifecycle.sweep import SweepPlan

CatalogOption = Annotated[
    str | None,
    typer.Option("--catalog", metavar="URL", help="postgresql://…; default: SQLite in the folder."),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="URL", help="s3://bucket/prefix or file:///…; default: in the folder."
    ),
]
backup_app = typer.Typer(no_args_is_help=True, help="Copies of a whole lake: create, restore.")


def init(
    path: Annotated[
        Path | None,
        typer.Argument(
            help="The folder of an embedded lake; default: LAKEBED_LAKE, or the one you are in.",
            show_default=False,
        ),
    ] = None,
    catalog: CatalogOption = None,
    store: StoreOption = None,
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="How long retired partitions can be restored.")
    ] = DEFAULT_GRACE,
    longest_read: Annotated[
        str, typer.Option(metavar="TIME", help="How long a snapshot may be read.")
    ] = DEFAULT_LONGEST_READ,
) -> None:
    """Make a new lake.

    Example: lakebed init weather

    Example: lakebed init --catalog postgresql://me@db/lake --store s3://bucket/lake
    """
    from lakebed.opening import init_lake

    folder = Path() if catalog else path or _find_folder()
    made = init_lake(folder, catalog=catalog, store=store, grace=grace, longest_read=longest_read)
    with made:
        place = "URL" if catalog else str(folder)
        output.tell(f"made lake {made.lake_id}")
        output.say(f"catalog: {made.catalog.dialect.describe()}")
        output.say(f"store:   {made.store.url}")
        output.say(f"next:    lakebed land FILE --lake {place}, then lakebed build --lake {place}")


def _find_folder() -> Path:
    """Where a lake is made if nobody says where: where commands would look for it."""
    from lakebed.settings import read_settings

    place = read_settings().lake
    if "://" in place:
        raise BadInput(
            "the setting lake is a URL, and a shared lake needs a store as well",
            hint="use: lakebed init --catalog URL --store URL",
        )
    return Path(place)


def migrate(lake: LakeOption = HERE) -> None:
    """Bring a catalog to this program's shape, and its footers to the current format.

    Can be killed and repeated at any time.

    Example: lakebed migrate --lake weather
    """
    from lakebed.lifecycle.upgrade import upgrade_footers
    from lakebed.opening import connect
    from lakebed.settings import read_settings

    settings = read_settings(lake=lake or None)
    catalog = connect(settings.lake, settings)
    try:
        ran = catalog.migrate(progress=output.say)
        result = upgrade_footers(catalog)
    finally:
        catalog.close()
    output.tell(
        f"{output.plural(len(ran), 'revision')} ran, "
        f"{output.plural(result.rewritten, 'footer')} rewritten"
    )
    for message in result.damaged or []:
        output.say(f"damaged: {message}")
    if result.damaged:
        raise typer.Exit(DAMAGED)


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


def _require_operations(asked: list[str], known: list[str]) -> None:
    """Raise if the journal has never told of one of these."""
    for each in asked:
        if each not in known:
            raise BadInput(
                f"the journal has no operation {each!r}", hint=f"it has {', '.join(known)}"
            )


def show_journal(
    lake: LakeOption = HERE,
    limit: Annotated[int, typer.Option(min=1, help="At most so many entries.")] = 50,
    operation: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only these, e.g. publish, retire.")
    ] = None,
    view_set: Annotated[
        str | None,
        typer.Option(
            "--view", metavar="NAME", help="Only this view set, or table as DATABASE.TABLE."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what happened to the lake, newest first.

    Example: lakebed journal --operation retire --operation restore
    """
    from lakebed.catalog import journal, tables

    with opened(lake, write=False) as open_lake, open_lake.catalog.read() as connection:
        entries = journal.list_entries(
            connection,
            limit=limit,
            operations=operation or (),
            view_set=tables.find_stored(connection, view_set),
        )
        names = {} if as_json else tables.list_names(connection)
        if operation and not entries:
            _require_operations(operation, journal.list_operations(connection))
    rows: list[dict[str, Any]] = [
        {
            "time": output.instant(each.tick),
            "operation": each.operation,
            "view_set_name": each.view_set,
            "rows": each.rows,
            "bytes": each.bytes,
            "reason": each.reason,
            "actor": each.actor,
        }
        | (
            {
                "view_instance_id": each.instance,
                "partition_id": each.partition_id,
                "file_path": each.file_path,
                "detail": each.detail,
            }
            if as_json
            else {}
        )
        for each in entries
    ]
    rows = [output.name_tables(row, names) for row in rows]
    output.show(rows, as_json=as_json, empty="no entry of the journal matches")


def show_leases(lake: LakeOption = HERE, as_json: JsonOption = False) -> None:
    """Show which processes read, write or build now.

    Example: lakebed leases
    """
    from lakebed.catalog import leases

    with opened(lake, write=False) as open_lake, open_lake.catalog.read() as connection:
        rows = [
            {
                "kind": each.kind.value,
                "holder": each.holder,
                "view_set_name": each.view_set,
                "reads_since": output.instant(each.oldest_tick),
                "acquired_at": output.instant(each.acquired_at),
                "beats": each.beats,
            }
            for each in leases.list_leases(connection)
            if each.holder != open_lake.catalog.actor
        ]
    output.show(rows, as_json=as_json, empty="no other process uses the lake")


@backup_app.command("create")
def create_backup(
    target: Annotated[Path, typer.Argument(help="A new folder.")], lake: LakeOption = HERE
) -> None:
    """Copy the lake, as it is at one tick, to a folder; writers may go on meanwhile.

    The copy is a lake of its own: `lakebed check --lake TARGET` works on it.

    Example: lakebed backup create /backups/2026-11-15
    """
    _copy(lake, target, None, None)


@backup_app.command("restore")
def restore_backup(
    source: Annotated[Path, typer.Argument(help="The folder of a backup.")],
    target: Annotated[Path, typer.Argument(help="The folder of an embedded lake.")] = Path(),
    catalog: CatalogOption = None,
    store: StoreOption = None,
) -> None:
    """Make a lake out of a backup, in an empty place.

    Example: lakebed backup restore /backups/2026-11-15 weather

    Example: lakebed backup restore /backups/2026-11-15 --catalog postgresql://… --store s3://…
    """
    try:
        _copy(str(source), target, catalog, store)
    except LakeNotFound:
        raise LakeNotFound(
            f"there is no backup in {source}",
            hint="name the folder that was given to lakebed backup create",
        ) from None


def _copy(lake: str, target: Path, catalog: str | None, store: str | None) -> None:
    from lakebed.opening import copy_lake

    if "://" in str(target) or ":/" in str(target):
        raise BadInput(f"{target} is not a folder", hint="use --catalog and --store for URLs")
    with opened(lake) as open_lake:
        done = copy_lake(open_lake, target, catalog=catalog, store=store)
    output.tell(
        f"copied {output.plural(done.files, 'file')} ({output.size(done.bytes)}) as of "
        f"{output.instant(done.tick)}"
    )
