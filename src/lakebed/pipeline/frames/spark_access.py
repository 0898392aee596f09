"""Read a lake's files for statements on Spark, with the pipeline's sessions and readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from lakebed.errors import BadInput, Unavailable
from lakebed.model.view_set import ViewSet
from lakebed.storage.objects import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class SparkAccess:
    """Sessions and frames over the files of one store. Nothing heavy is imported before it is used.
    `lakebed.query.spark.tools.SparkTools` says what queries need of it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def use(
        self, spark: SparkSession | None, master: str | None, remote: str | None
    ) -> AbstractContextManager[SparkSession]:
        """Return the caller's session, or one of a master or a Connect server until it is left."""
        from lakebed.pipeline.sessions.session import use_session

        return use_session(spark, master=master, remote=remote)

    def beside(self, session: SparkSession) -> AbstractContextManager[SparkSession]:
        """Return a session of its own beside another."""
        from lakebed.pipeline.sessions.build_sessions import own_session
        from lakebed.pipeline.sessions.executors import ship

        ship(session)  # where Spark cannot reach a bucket, tasks read it with this package
        return own_session(session)

    def read(self, session: SparkSession, view_set: ViewSet, paths: Sequence[str]) -> DataFrame:
        """Return the rows of exactly these files."""
        from lakebed.pipeline.frames.reading import read_files, read_native
        from lakebed.pipeline.sessions.executors import StoreAddress

        try:
            return read_native(session, self._store, paths, view_set)
        except (BadInput, Unavailable):  # a bucket that this Spark cannot read by itself
            return read_files(session, self._store, StoreAddress.of(self._store), paths, view_set)

    def read_versions(
        self, session: SparkSession, view_set: ViewSet, versions: Mapping[str, int]
    ) -> DataFrame:
        """Return the rows of exactly these files, each with the version of its file unless it has
        its own."""
        from lakebed.pipeline.frames import reading
        from lakebed.pipeline.sessions.executors import StoreAddress

        address = StoreAddress.of(self._store)
        return reading.read_versions(session, self._store, address, versions, view_set)

    def schema(self, view_set: ViewSet) -> StructType:
        """Return a view set's columns as Spark has them."""
        from lakebed.pipeline.frames.types import spark_schema

        return spark_schema(view_set)
