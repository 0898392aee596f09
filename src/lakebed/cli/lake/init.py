"""`lakebed init`, `migrate` and `backup`: make a lake, bring its catalog up to date, copy it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakebed.cli import output
from lakebed.cli.options import DAMAGED, HERE, LakeOption, opened
from lakebed.errors import BadInput, LakeNotFound
from lakebed.model.time import DEFAULT_GRACE, DEFAULT_LONGEST_READ

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

    if path is not None:
        _refuse_url(path)
    folder = Path() if catalog else path or _find_folder()
    lake = init_lake(folder, catalog=catalog, store=store, grace=grace, longest_read=longest_read)
    with lake:
        address = "URL" if catalog else str(folder)
        output.tell(f"made lake {lake.lake_id}")
        output.say(f"catalog: {lake.catalog.dialect.describe()}")
        output.say(f"store:   {lake.store.url}")
        output.say(
            f"next:    lakebed land FILE --lake {address}, then lakebed build --lake {address}"
        )


def _refuse_url(folder: Path) -> None:
    """Raise `BadInput` for a URL, which would become a folder of that name. The message leaves the
    URL out: it may have a password. Paths have one slash where URLs have two."""
    if ":/" in str(folder):
        raise BadInput("a URL is not a folder", hint="use --catalog and --store for URLs")


def _find_folder() -> Path:
    """Return the folder where commands look for a lake by default."""
    from lakebed.settings import read_settings

    address = read_settings().lake
    if "://" in address:
        raise BadInput(
            "the setting lake is a URL, and a shared lake needs a store as well",
            hint="use: lakebed init --catalog URL --store URL",
        )
    return Path(address)


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

    _refuse_url(target)
    with opened(lake) as open_lake:
        done = copy_lake(open_lake, target, catalog=catalog, store=store)
    output.tell(
        f"copied {output.plural(done.files, 'file')} ({output.size(done.bytes)}) as of "
        f"{output.instant(done.tick)}"
    )
