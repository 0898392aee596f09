"""Create, find, open and copy lakes."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lakebed import logs
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.records import lakes
from lakebed.catalog.records.lakes import LakeRow
from lakebed.errors import BadInput, Conflict, LakeNotFound, ReadOnly, Refused
from lakebed.lake import Lake
from lakebed.lifecycle import backup
from lakebed.lifecycle.backup import CopyProgress
from lakebed.model.arguments import checked
from lakebed.model.ids import new_id
from lakebed.model.time import DEFAULT_GRACE, DEFAULT_LONGEST_READ, SECOND, parse_duration
from lakebed.settings import Settings, read_settings
from lakebed.storage import layout, marks
from lakebed.storage.disk import Disk
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import Store, open_store, probe_create_only

RELATIVE_STORE = f"./{layout.STORE_FOLDER}"
"""The store's name in the catalog of an embedded lake, so that the folder can be moved."""

SHORTEST_READ_US = 60 * SECOND


def _actor(settings: Settings) -> str:
    if settings.actor:
        return settings.actor
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"


def _start_logging(settings: Settings) -> None:
    if settings.log:
        logs.print_to_stderr(settings.log)


def catalog_url(path_or_url: str | Path) -> str:
    """Return the catalog of a lake, named by its folder or by the catalog's URL."""
    text = str(path_or_url)
    if "://" in text:
        return text
    return f"sqlite:///{Path(text).resolve() / layout.CATALOG_FILE}"


@checked
def open_lake(
    path_or_url: str | Path, *, read_only: bool = False, settings: Settings | None = None
) -> Lake:
    """Open the lake in a folder, or the one whose catalog is at a URL. Raise without any
    change if there is none, or if the schema version of its catalog is not this program's."""
    settings = settings or read_settings()
    catalog = connect(path_or_url, settings, read_only=read_only)
    try:
        catalog.require_current()
        with catalog.read() as connection:
            row = lakes.get(connection)
        return Lake(catalog, row, _open_store(catalog, row), settings)
    except BaseException:
        catalog.close()
        raise


def connect(
    path_or_url: str | Path, settings: Settings | None = None, *, read_only: bool = False
) -> Catalog:
    """Return the catalog of a lake in any shape, for `open_lake` and `lakebed migrate`."""
    settings = settings or read_settings()
    _start_logging(settings)
    url = catalog_url(path_or_url)
    folder = _embedded_folder(url)
    if folder is not None and not (folder / layout.CATALOG_FILE).is_file():
        raise LakeNotFound(
            f"there is no lake in {folder}",
            hint=f"make one with: lakebed init {path_or_url}, or name another with --lake",
        )
    return Catalog(url, actor=_actor(settings), read_only=read_only)


def _embedded_folder(url: str) -> Path | None:
    """Return the folder of an embedded catalog."""
    if not url.startswith("sqlite:///"):
        return None
    path = Path(url.removeprefix("sqlite:///"))
    if path.name != layout.CATALOG_FILE:
        raise BadInput(
            f"an embedded catalog is a file called {layout.CATALOG_FILE}, not {path.name}",
            hint="name the lake by its folder",
        )
    return path.parent


def _open_store(catalog: Catalog, row: LakeRow) -> Store:
    if row.store_url == RELATIVE_STORE:
        folder = _embedded_folder(catalog.url)
        assert folder is not None  # noqa: S101  (only embedded lakes are made with it)
        return LocalStore(folder / layout.STORE_FOLDER, of_lake=True)
    return open_store(row.store_url, of_lake=True)


@checked
def init_lake(
    path: str | Path = ".",
    *,
    catalog: str | None = None,
    store: str | None = None,
    grace: str = DEFAULT_GRACE,
    longest_read: str = DEFAULT_LONGEST_READ,
    settings: Settings | None = None,
) -> Lake:
    """Create a lake and open it. Without URLs both catalog and store are in the folder.

    A killed `init` leaves either a lake or a state that a second `init` finishes. A catalog with an
    older schema is adopted: migrated and given a store.
    """
    settings = settings or read_settings()
    grace_us, longest_read_us = parse_duration(grace), parse_duration(longest_read)
    if longest_read_us < SHORTEST_READ_US:
        raise BadInput(f"a longest read of {longest_read} is too short", hint="use 1m or more")
    database, target, store_url = _prepare(path, catalog, store, settings)
    try:
        row = _begin(database, LakeRow(new_id(), store_url, grace_us, longest_read_us, 0))
        row = _complete(database, target, row)
        return Lake(database, row, _open_store(database, row), settings)
    except BaseException:
        database.close()
        raise


@checked
def copy_lake(
    source: Lake,
    path: str | Path = ".",
    *,
    catalog: str | None = None,
    store: str | None = None,
    progress: Callable[[CopyProgress], None] = lambda _progress: None,
    settings: Settings | None = None,
) -> CopyProgress:
    """Copy a lake, as it is at one tick, to an empty place: a backup, or a backup restored. The
    copy is a lake of its own with an id of its own."""
    settings = settings or read_settings()
    database, target, store_url = _prepare(path, catalog, store, settings)
    try:
        row = replace(
            source.row,
            lake_id=new_id(),
            store_url=store_url,
            copied_from=source.lake_id,
            is_whole=False,
        )
        done = backup.copy_lake(
            source.catalog,
            source.store,
            source.leases,
            database,
            target,
            lambda transaction: lakes.insert(transaction.connection, row),
            progress,
        )
        _complete(database, target, row)
        return done
    finally:
        database.close()


def _prepare(
    path: str | Path, catalog: str | None, store: str | None, settings: Settings
) -> tuple[Catalog, Store, str]:
    """Return a migrated catalog, a store that works and the store's name in the catalog."""
    _start_logging(settings)
    url = catalog or catalog_url(path)
    folder = _embedded_folder(url)
    database = Catalog(url, actor=_actor(settings))
    try:
        if store is None and folder is None:
            raise BadInput(
                "a shared catalog needs a store of its own", hint="add --store file:///… or s3://…"
            )
        target = (
            open_store(store) if store else LocalStore((folder or Path()) / layout.STORE_FOLDER)
        )
        if folder is not None:
            _make_folder(folder, layout.CATALOG_FILE)
        database.find_revision()  # refuses the database of another program
        if isinstance(target, LocalStore):
            _make_folder(target.root)
        _refuse_other_lakes(database, target)
        probe_create_only(target, new_id())
        database.migrate()
    except BaseException:
        database.close()
        raise
    return database, target, store or RELATIVE_STORE


def _make_folder(folder: Path, file: str | None = None) -> None:
    """Create a folder and an empty file in it, so that both names survive a crash."""
    disk = Disk()
    try:
        disk.make_directories(folder)
        if file is not None:
            (folder / file).touch()
            disk.sync_directory(folder)
    except OSError as error:
        raise ReadOnly(
            f"cannot make {error.filename or folder}: {(error.strerror or '').lower()}",
            hint="choose a folder that you may write",
        ) from error


def _refuse_other_lakes(database: Catalog, target: Store) -> None:
    """Raise if the catalog has a lake already, or the store belongs to another lake."""
    with database.read() as connection:
        existing_lake = lakes.find_in_any_shape(connection)
    if existing_lake is not None and existing_lake.is_whole:
        raise Conflict(
            f"there is a lake already, {existing_lake.lake_id}",
            hint="open it, or choose another place",
        )
    if existing_lake is not None and existing_lake.copied_from is not None:
        raise Conflict("there is an unfinished copy of a lake", hint="remove it, or choose another")
    marked = marks.find_mark(target)
    if marked is not None and (existing_lake is None or marked != existing_lake.lake_id):
        raise Refused(
            f"the store {target.url} belongs to lake {marked}", hint="choose an empty place"
        )
    if any(file.path.split("/")[0] in layout.ROOTS for file in target.list()):
        raise Refused(
            f"the store {target.url} has files that are not of this catalog",
            hint="choose an empty place",
        )


def _begin(database: Catalog, row: LakeRow) -> LakeRow:
    """Record the new lake in the catalog first, and return its row. An earlier attempt that was
    killed is continued: its row is returned."""
    with database.write() as transaction:
        existing_lake = lakes.find(transaction.connection)
        if existing_lake is not None and existing_lake.is_whole:
            raise Conflict(f"there is a lake already, {existing_lake.lake_id}", hint="open it")
        if existing_lake is not None:
            return existing_lake
        row = replace(row, created_at=transaction.tick)
        lakes.insert(transaction.connection, row)
        return row


def _complete(database: Catalog, target: Store, row: LakeRow) -> LakeRow:
    """Make catalog and store name each other, which completes the lake."""
    marks.write_mark(target, row.lake_id)
    with database.write() as transaction:
        lakes.complete(transaction.connection)
    return replace(row, is_whole=True)
