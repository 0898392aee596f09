"""The facade of an open lake: its catalog, its store and all stages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from lakebed.access.keys import Keys
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.records.lakes import LakeRow
from lakebed.errors import LakebedError
from lakebed.ingest.landing import Lander
from lakebed.ingest.telemetry import Telemetry
from lakebed.lifecycle.check import Checker
from lakebed.lifecycle.guard import Breaker
from lakebed.lifecycle.landed import BlockRetirement
from lakebed.lifecycle.retire import Retirement
from lakebed.lifecycle.sweep import Sweeper
from lakebed.model.arguments import checked_methods, checks_itself
from lakebed.model.ids import new_id
from lakebed.model.time import SECOND, Instant
from lakebed.operations.sql import SqlOperations
from lakebed.partitions import Partitions
from lakebed.pipeline.frames.spark_access import SparkAccess
from lakebed.pipeline.pipeline import Pipeline
from lakebed.query.output.result import Result
from lakebed.query.queries import Queries, QuerySettings
from lakebed.query.request.request import QueryRequest
from lakebed.reading.leases import LeaseKeeper
from lakebed.reading.snapshot import SnapshotReader
from lakebed.settings import Settings
from lakebed.storage.objects import Store
from lakebed.tables.rows.row_reader import RowReader
from lakebed.tables.rows.table_publisher import TablePublisher
from lakebed.tables.rows.table_snapshot import TableSnapshots
from lakebed.tables.tables import Tables
from lakebed.views.registry import Change, Registry
from lakebed.writing.name_reservations import NamePool
from lakebed.writing.publish import Publisher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.views.sql.declaration import SqlView
    from lakebed.views.sql.definitions import Definition

_DAY = 24 * 3600 * SECOND
_FOR_USERS = (
    "blocks",
    "checker",
    "close",
    "define_views",
    "keys",
    "lake_id",
    "partitions",
    "pipeline",
    "query",
    "retirement",
    "sweeper",
    "tables",
    "telemetry",
    "views",
)
_log = logging.getLogger(__name__)


@checked_methods
class Lake:
    """One open lake. Close it, or use it as a context manager; open it again after a fork."""

    def __init__(
        self,
        catalog: Catalog,
        row: LakeRow,
        store: Store,
        settings: Settings,
    ) -> None:
        self.catalog = catalog
        self.store = store
        self.settings = settings
        self.lake_id = row.lake_id
        self.before_close: Callable[[Lake], None] | None = None
        """Callbacks of a close, called while the lake is still usable."""
        self.row = row
        self.leases = LeaseKeeper(
            catalog,
            holder=catalog.actor,
            ttl_us=int(settings.lease_seconds * SECOND),
        )
        self._names = NamePool(catalog, self.leases)
        self.views = Registry(catalog)
        publisher = Publisher(catalog, store, self._names)
        self.partitions = Partitions(
            catalog,
            publisher,
            SnapshotReader(catalog, store, self.leases),
            self.views,
        )
        self.retirement = Retirement(
            catalog,
            new_id,
            Breaker(
                settings.breaker_share,
                settings.breaker_partitions,
                int(settings.breaker_minutes * 60 * SECOND),
            ),
        )
        self.sweeper = Sweeper(
            catalog,
            store,
            batch_files=settings.sweep_files,
            journal_retention_us=int(settings.journal_days * _DAY),
        )
        self._lander = Lander(catalog, store, self._names)
        self.telemetry = Telemetry(self._lander)
        reader = RowReader(store, settings.tail_cache_mib << 20)
        tables = TablePublisher(catalog, store, self._names, reader)
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
                spill_bytes=settings.query_spill_mib << 20,
                tail_bytes=settings.tail_mib << 20,
                tail_cache_bytes=settings.tail_cache_mib << 20,
                timeout=settings.query_seconds,
                verify_pages=settings.verify_pages,
            ),
            SqlOperations(catalog, self.retirement, self.pipeline),
            SparkAccess(store),
            reader,
        )
        self.tables = Tables(
            catalog,
            reader,
            TableSnapshots(catalog, self.leases),
            tables,
            self.queries,
            self.checker,
        )

    @checks_itself("sql", "parameters", "limit", "timeout")
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
        return self.queries.run(
            QueryRequest(
                sql,
                begin,
                end,
                parameters,
                as_of,
                stale,
                limit,
                timeout,
                explained,
                admin,
                engine,
                spark,
                master,
                remote,
            )
        )

    def define_views(
        self,
        *views: SqlView,
        spark: SparkSession | None = None,
        master: str | None = None,
        remote: str | None = None,
    ) -> list[Definition]:
        """Define SQL view sets, which may read each other, all or none. View sets that read a
        changed one change too. Raise `BadDefinition` with all errors. Spark analyses the SQL of
        changed view sets, in the caller's session or one of our own."""
        from lakebed.pipeline.frames.declare import SparkAnalyser
        from lakebed.query.embedded import small
        from lakebed.views.builtin import built_in
        from lakebed.views.sql.analysis import Engines
        from lakebed.views.sql.definitions import plan_definitions

        active = self.views.list_registered()
        registered = {definition.view_set.name: definition.view_set for definition in active}
        with SparkAnalyser(spark, master, remote) as analyser:
            engines = Engines(analyser.columns_of, small.columns_of, small.run)
            built_in_view_sets = {view_set.name: view_set for view_set in built_in()}
            plan = plan_definitions(views, registered, built_in_view_sets, engines)
        changes = [(definition.view_set, definition.change) for definition in plan]
        if any(change is not Change.UNCHANGED for _, change in changes):
            missing = [
                (view_set, Change.CREATED)
                for view_set in built_in()
                if view_set.name not in registered
            ]
            self.views.apply(
                [*missing, *changes],
                {definition.view_set.name: definition.schema_hash for definition in active},
            )
        return plan

    @property
    def is_embedded(self) -> bool:
        """True if the catalog is SQLite in the lake's own folder, False if it is a server."""
        return self.catalog.dialect.name == "sqlite"

    def __dir__(self) -> list[str]:
        """Return the parts for users; the others are for the packages of Lakebed."""
        return list(_FOR_USERS)

    def __repr__(self) -> str:
        return f"<Lake {self.lake_id} with its files in {self.row.store_url}>"

    def close(self) -> None:
        """Release reservations and leases, and close the connections."""
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
