"""A lake opened for use: the wiring of catalog, store and stages. Its parts do the work."""

from __future__ import annotations

import getpass
import logging
import os
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from lakebed import logs
from lakebed.access.keys import Keys
from lakebed.catalog import lakes
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.lakes import LakeRow
from lakebed.errors import BadInput, Conflict, LakebedError, LakeNotFound, ReadOnly, Refused
from lakebed.ingest.landing import Lander
from lakebed.ingest.telemetry import Telemetry
from lakebed.lifecycle import backup
from lakebed.lifecycle.backup import CopyProgress
from lakebed.lifecycle.changes import restore_row
from lakebed.lifecycle.check import Checker
from lakebed.lifecycle.landed import BlockRetirement
from lakebed.lifecycle.retire import Breaker, Retirement
from lakebed.lifecycle.sweep import LeaseObserver, Sweeper
from lakebed.model.table import BUCKET_COLUMN
from lakebed.model.time import (
    DEFAULT_GRACE,
    DEFAULT_LONGEST_READ,
    SECOND,
    Instant,
    parse_duration,
)
from lakebed.model.user_table import UserTable
from lakebed.model.view_set import ViewSet
from lakebed.partitions.catalogue import Partitions
from lakebed.partitions.leases import LeaseKeeper
from lakebed.partitions.names import NamePool
from lakebed.partitions.publish import Publisher
from lakebed.partitions.rows import RowReader
from lakebed.partitions.snapshot import SnapshotReader
from lakebed.partitions.table_snapshots import TableSnapshots
from lakebed.partitions.tables import TablePublisher
from lakebed.pipeline.pipeline import Pipeline
from lakebed.query.changing import Administration
from lakebed.query.queries import Queries, QuerySettings
from lakebed.query.result import Result
from lakebed.query.spark.tools import SparkTools
from lakebed.settings import Settings, read_settings
from lakebed.storage import layout, marks
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import Store, open_store, probe_create_only
from lakebed.tables.tables import Tables
from lakebed.views.registry import Change, Registry

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lakebed.views.declaration import SqlView
    from lakebed.views.definitions import Definition

RELATIVE_STORE = f"./{layout.STORE_FOLDER}"
"""How the catalog of an embedded lake names its store, so that the folder can be moved."""

SHORTEST_READ_US = 60 * SECOND
_DAY = 24 * 3600 * SECOND
_log = logging.getLogger(__name__)


def _new_id() -> str:
    return str(uuid.uuid4())


def _actor(settings: Settings) -> str:
    if settings.actor:
        return settings.actor
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"


class Lake:
    """One open lake. Close it, or use it as a context manager; open it again after a fork."""

    def __init__(
        self,
        catalog: Catalog,
        row: LakeRow,
        store: Store,
        settings: Settings,
        new_id: Callable[[], str] = _new_id,
        observer: LeaseObserver | None = None,
    ) -> None:
        if settings.log:
            logs.print_to_stderr(settings.log)
        self.catalog = catalog
        self.store = store
        self.settings = settings
        self.lake_id = row.lake_id
        self.before_close: Callable[[Lake], None] | None = None
        """What is done when the lake is closed, while it can still be used."""
        self.row = row
        self.leases = LeaseKeeper(
            catalog,
            holder=catalog.actor,
            ttl_us=int(settings.lease_seconds * SECOND),
            new_id=new_id,
        )
        self._names = NamePool(catalog, self.leases, new_id)
        self.views = Registry(catalog)
        publisher = Publisher(catalog, store, self._names, new_id)
        self.partitions = Partitions(
            catalog,
            publisher,
            SnapshotReader(catalog, store, self.leases),
        )
        self.retirement = Retirement(
            catalog, new_id, Breaker(settings.breaker_share, settings.breaker_partitions)
        )
        self.sweeper = Sweeper(
            catalog,
            store,
            batch_files=settings.sweep_files,
            journal_retention_us=int(settings.journal_days * _DAY),
            observer=observer,
        )
        self._lander = Lander(catalog, store, self._names)
        self.telemetry = Telemetry(self._lander)
        reader = RowReader(store, settings.tail_cache_mib << 20)
        tables = TablePublisher(catalog, store, self._names, new_id, reader)
        self.pipeline = Pipeline(
            catalog, store, self._names, publisher, tables, self.leases, self.views
        )
        self.checker = Checker(catalog, store, self.leases)
        self.blocks = BlockRetirement(catalog)
        self.keys = Keys(catalog)
        self.queries = Queries(
            catalog,
            store,
            self.leases,
            QuerySettings(
                memory_bytes=settings.query_memory_mib << 20,
                tail_bytes=settings.tail_mib << 20,
                tail_cache_bytes=settings.tail_cache_mib << 20,
                timeout=settings.query_seconds,
            ),
            Administration(self.retirement.begin_changes, self._build),
            spark_tools(store),
            reader,
        )
        self.tables = Tables(
            catalog,
            reader,
            TableSnapshots(catalog, self.leases),
            tables,
            new_id,
            query=self.queries.query,
            match=_match,
            restore=restore_row,
            check=self.checker.check_table,
        )

    def _build(self, view_set: str, begin: int, end: int) -> list[tuple[int, str]]:
        from lakebed.pipeline.telling import build_and_tell

        return build_and_tell(self.catalog, self.pipeline, view_set, begin, end)

    def query(
        self,
        sql: str,
        begin: Instant | None = None,
        end: Instant | None = None,
        *,
        parameters: Sequence[Any] | None = None,
        as_of: Instant | None = None,
        stale: bool = False,
        limit: int | None = None,
        timeout: float | None = None,
        explained: bool = False,
        admin: bool = True,
        engine: str = "embedded",
        spark: SparkSession | None = None,
        master: str | None = None,
        remote: str | None = None,
    ) -> Result:
        """The rows of a statement over the lake's view sets, from one snapshot.

        ``parameters`` are the values of ``?``, or of ``$1``, ``$2``, …, in the statement.
        ``begin`` and ``end`` keep rows whose time is in that range: datetimes, ISO 8601, or how
        long ago, as ``1h`` or ``7d``. ``as_of`` reads the lake as it was. ``stale`` leaves out what
        has landed and is not built. ``explained`` counts, for the result's explanation, also what
        need not be read.

        ``engine="spark"`` runs it on Spark: on the session that is given, else on one of this
        process or of ``master`` or ``remote``, which is kept until the lake is closed.

        Functions that change the lake are there for administrators; a statement that calls one is
        one transaction, which is committed when this returns.
        """
        return self.queries.query(
            sql,
            parameters=parameters,
            begin=begin,
            end=end,
            as_of=as_of,
            stale=stale,
            limit=limit,
            timeout=timeout,
            explained=explained,
            admin=admin,
            engine=engine,
            spark=spark,
            master=master,
            remote=remote,
        )

    def define_views(
        self,
        *views: SqlView,
        spark: SparkSession | None = None,
        master: str | None = None,
        remote: str | None = None,
    ) -> list[Definition]:
        """Define SQL view sets, which may read each other; what reads a changed one changes too.
        All of it or nothing: `BadDefinition` says everything that is wrong. Spark is asked about
        the SQL (the caller's session, or one of our own) unless it is active already."""
        from lakebed.pipeline.declare import SparkAnalyser
        from lakebed.query.embedded import small
        from lakebed.views.analysis import Engines
        from lakebed.views.builtin import built_in
        from lakebed.views.definitions import plan_definitions

        active = self.views.list_view_sets()
        known = {each.view_set.name: each.view_set for each in active}
        with SparkAnalyser(spark, master, remote) as analyser:
            engines = Engines(analyser.columns_of, small.columns_of, small.run)
            own = {each.name: each for each in built_in()}
            plan = plan_definitions(views, known, own, engines)
        changes = [(each.view_set, each.change) for each in plan]
        if any(change is not Change.UNCHANGED for _, change in changes):
            missing = [(each, Change.CREATED) for each in built_in() if each.name not in known]
            self.views.apply(
                [*missing, *changes], {each.view_set.name: each.schema_hash for each in active}
            )
        return plan

    @property
    def is_embedded(self) -> bool:
        """Whether this lake is a folder of its own, and not a catalog that others share."""
        return self.catalog.dialect.name == "sqlite"

    def __repr__(self) -> str:
        return f"<Lake {self.lake_id} with its files in {self.row.store_url}>"

    def close(self) -> None:
        """Give back reservations and leases, and close the connections."""
        tend, self.before_close = self.before_close, None
        if tend is not None:
            try:
                tend(self)
            except LakebedError as error:  # it is no reason to stay open
                _log.warning("closed without upkeep: %s", error)
        try:
            self.pipeline.close()
            self.queries.close()
            self._lander.close()
            if not self.catalog.read_only:
                self._names.close()
        finally:
            try:
                if not self.catalog.read_only:
                    self.leases.close()
            finally:
                self.catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _match(rows: pa.Table, table: UserTable, condition: str) -> pa.Table:
    """The rows of a user's table for which a condition in SQL is true. It cannot ask for the whole
    table: these are only some of its rows."""
    import pyarrow as pa

    from lakebed.query.embedded import small

    place = "_place"
    shown = rows.append_column(BUCKET_COLUMN, table.bucket.name_all(rows[table.time_column]))
    shown = shown.append_column(place, pa.array(range(rows.num_rows), pa.int64()))
    sql = f"SELECT {place} FROM {place} AS {table.name} WHERE ({condition}\n) ORDER BY 1"
    try:
        found = small.run(sql, {place: shown}, with_properties=True)
    except BadInput as error:
        raise BadInput(
            f"cannot tell which rows the condition means: {error}",
            hint="of a table without a key, it can only speak of the columns of one row",
        ) from error
    return rows.take(found[place])


def spark_tools(store: Store) -> SparkTools:
    """What queries on Spark use of the pipeline; nothing is imported before it is used."""

    def use(
        given: SparkSession | None, master: str | None, remote: str | None
    ) -> AbstractContextManager[SparkSession]:
        from lakebed.pipeline.session import use_session

        return use_session(given, master=master, remote=remote)

    def beside(session: SparkSession) -> AbstractContextManager[SparkSession]:
        from lakebed.pipeline.executors import ship
        from lakebed.pipeline.pipeline import own_session

        ship(session)  # where Spark cannot reach a bucket, tasks read it with this package
        return own_session(session)

    def read(session: SparkSession, view_set: ViewSet, paths: Sequence[str]) -> DataFrame:
        from lakebed.pipeline.executors import StoreAddress
        from lakebed.pipeline.reading import read_files, read_native

        try:
            return read_native(session, store, paths, view_set)
        except BadInput:  # a bucket that this Spark cannot read by itself
            return read_files(session, store, StoreAddress.of(store), paths, view_set)

    def read_versions(
        session: SparkSession, view_set: ViewSet, versions: Mapping[str, int]
    ) -> DataFrame:
        from lakebed.pipeline import reading
        from lakebed.pipeline.executors import StoreAddress

        address = StoreAddress.of(store)
        return reading.read_versions(session, store, address, versions, view_set)

    def schema(view_set: ViewSet) -> StructType:
        from lakebed.pipeline.types import spark_schema

        return spark_schema(view_set)

    return SparkTools(use, beside, read, read_versions, schema)


def catalog_url(path_or_url: str | Path) -> str:
    """The catalog behind what a user names a lake by: its folder, or the catalog's own URL."""
    text = str(path_or_url)
    if "://" in text:
        return text
    return f"sqlite:///{Path(text).resolve() / layout.CATALOG_FILE}"


def open_lake(
    path_or_url: str | Path, *, read_only: bool = False, settings: Settings | None = None
) -> Lake:
    """Open the lake in a folder, or the one whose catalog is at a URL. Fails without changing
    anything if there is none or its catalog is of another shape than this program's."""
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
    """The catalog of a lake, whatever its shape; for `open_lake` and `lakebed migrate`."""
    url = catalog_url(path_or_url)
    folder = _embedded_folder(url)
    if folder is not None and not (folder / layout.CATALOG_FILE).is_file():
        raise LakeNotFound(
            f"there is no lake in {folder}",
            hint=f"make one with: lakebed init {path_or_url}, or name another with --lake",
        )
    return Catalog(url, actor=_actor(settings or read_settings()), read_only=read_only)


def _embedded_folder(url: str) -> Path | None:
    """The folder of an embedded catalog."""
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
        return LocalStore(folder / layout.STORE_FOLDER)
    return open_store(row.store_url)


def init_lake(
    path: str | Path = ".",
    *,
    catalog: str | None = None,
    store: str | None = None,
    grace: str = DEFAULT_GRACE,
    longest_read: str = DEFAULT_LONGEST_READ,
    settings: Settings | None = None,
) -> Lake:
    """Make a new lake and open it. Without URLs both catalog and store are in the folder.

    Killed at any moment it leaves either a lake or something that a second `init` finishes. A
    catalog of the older shape is adopted: migrated and given a store.
    """
    settings = settings or read_settings()
    grace_us, longest_read_us = parse_duration(grace), parse_duration(longest_read)
    if longest_read_us < SHORTEST_READ_US:
        raise BadInput(f"a longest read of {longest_read} is too short", hint="use 1m or more")
    database, target, store_url = _prepare(path, catalog, store, settings)
    try:
        row = _begin(database, LakeRow(_new_id(), store_url, grace_us, longest_read_us, 0))
        return Lake(database, _complete(database, target, row), target, settings)
    except BaseException:
        database.close()
        raise


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
            lake_id=_new_id(),
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
    """A migrated catalog and a store that works, which are no lake yet."""
    url = catalog or catalog_url(path)
    folder = _embedded_folder(url)
    if store is None and folder is None:
        raise BadInput(
            "a shared catalog needs a store of its own", hint="add --store file:///… or s3://…"
        )
    target = open_store(store) if store else LocalStore((folder or Path()) / layout.STORE_FOLDER)
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / layout.CATALOG_FILE).touch()
        if isinstance(target, LocalStore):
            target.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReadOnly(
            f"cannot make {error.filename}: {(error.strerror or '').lower()}",
            hint="choose a folder that you may write",
        ) from error
    database = Catalog(url, actor=_actor(settings))
    try:
        _refuse_other_lakes(database, target)
        probe_create_only(target, _new_id())
        database.migrate()
    except BaseException:
        database.close()
        raise
    return database, target, store or RELATIVE_STORE


def _refuse_other_lakes(database: Catalog, target: Store) -> None:
    """A lake that exists is not made again, and a store belongs to one lake."""
    with database.read() as connection:
        begun = lakes.find_in_any_shape(connection)
    if begun is not None and begun.is_whole:
        raise Conflict(
            f"there is a lake already, {begun.lake_id}", hint="open it, or choose another place"
        )
    if begun is not None and begun.copied_from is not None:
        raise Conflict("there is an unfinished copy of a lake", hint="remove it, or choose another")
    marked = marks.find_mark(target)
    if marked is not None and (begun is None or marked != begun.lake_id):
        raise Refused(
            f"the store {target.url} belongs to lake {marked}", hint="choose an empty place"
        )
    if any(each.path.split("/")[0] in layout.ROOTS for each in target.list()):
        raise Refused(
            f"the store {target.url} has files that are not of this catalog",
            hint="choose an empty place",
        )


def _begin(database: Catalog, row: LakeRow) -> LakeRow:
    """The catalog says first which lake it will be; an attempt that was killed is taken up."""
    with database.write() as transaction:
        begun = lakes.find(transaction.connection)
        if begun is not None and begun.is_whole:
            raise Conflict(f"there is a lake already, {begun.lake_id}", hint="open it")
        if begun is not None:
            return begun
        row = replace(row, created_at=transaction.tick)
        lakes.insert(transaction.connection, row)
        return row


def _complete(database: Catalog, target: Store, row: LakeRow) -> LakeRow:
    """Catalog and store name each other, and from now on are a lake."""
    marks.write_mark(target, row.lake_id)
    with database.write() as transaction:
        lakes.complete(transaction.connection)
    return replace(row, is_whole=True)
