"""What stages use of each other, handed to them by the lake: they do not import each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from lakebed.errors import BadInput, Unavailable
from lakebed.model.table import BUCKET_COLUMN
from lakebed.model.user_table import UserTable
from lakebed.model.view_set import ViewSet
from lakebed.query.spark.tools import SparkTools
from lakebed.storage.objects import Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def match_rows(rows: pa.Table, table: UserTable, condition: str) -> pa.Table:
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
        except (BadInput, Unavailable):  # a bucket that this Spark cannot read by itself
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
