"""The columns of a view set's SQL, which Spark analyses over empty tables without a job before the
view set is declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from lakebed.errors import BadInput
from lakebed.model.view_set import ViewSet
from lakebed.pipeline.frames.types import spark_schema
from lakebed.pipeline.sessions import jvm

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType


class SparkAnalyser:
    """Analyses SQL in a session beside the caller's. Starts Spark at the first use, unless a
    session is passed. Use it as a context manager: a session of its own is stopped at the end."""

    def __init__(
        self,
        spark: SparkSession | None = None,
        master: str | None = None,
        remote: str | None = None,
    ) -> None:
        self._given = (spark, master, remote)
        self._session: SparkSession | None = None
        self._stack = ExitStack()

    def columns_of(self, sql: str, tables: Mapping[str, ViewSet]) -> pa.Schema:
        """The columns that a SELECT gives over these view sets. `BadInput` with Spark's first line
        if it refuses, or with the column that Lakebed cannot store."""
        from pyspark.errors import PySparkException

        session = self._open()
        for name, view_set in tables.items():
            empty = session.createDataFrame([], spark_schema(view_set))
            empty.createOrReplaceTempView(name)
        try:
            with jvm.logging_no_errors():
                return arrow_schema(session.sql(sql).schema)
        except PySparkException as error:
            raise BadInput(_first_line(error)) from error
        finally:
            for name in tables:
                session.catalog.dropTempView(name)

    def _open(self) -> SparkSession:
        from lakebed.pipeline.sessions.build_sessions import own_session
        from lakebed.pipeline.sessions.session import use_session

        if self._session is None:
            spark, master, remote = self._given
            opened = use_session(spark, master=master, remote=remote, quick=True)
            session = self._stack.enter_context(opened)
            self._session = self._stack.enter_context(own_session(session))
        return self._session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session = None
        self._stack.close()


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that holds a DataFrame's rows, the inverse of `spark_schema`.
    `BadInput` names the column that Lakebed cannot store."""
    import pyarrow as pa

    return pa.schema([(field.name, _arrow_type(field.dataType, field.name)) for field in schema])


def _arrow_type(kind: DataType, path: str) -> pa.DataType:
    import pyarrow as pa
    from pyspark.sql import types as spark

    plain: dict[type[Any], Any] = {
        spark.BooleanType: pa.bool_(),
        spark.ByteType: pa.int8(),
        spark.ShortType: pa.int16(),
        spark.IntegerType: pa.int32(),
        spark.LongType: pa.int64(),
        spark.FloatType: pa.float32(),
        spark.DoubleType: pa.float64(),
        spark.BinaryType: pa.binary(),
        spark.DateType: pa.date32(),
        spark.TimestampType: pa.timestamp("us", "UTC"),
        spark.TimestampNTZType: pa.timestamp("us"),
        spark.CharType: pa.string(),
        spark.VarcharType: pa.string(),
    }
    if type(kind) in plain:
        return plain[type(kind)]
    match kind:
        case spark.StringType() if kind.collation in (None, "UTF8_BINARY"):
            return pa.string()
        case spark.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case spark.ArrayType():
            return pa.list_(_arrow_type(kind.elementType, f"{path}.element"))
        case spark.MapType():
            return pa.map_(
                _arrow_type(kind.keyType, f"{path}.key"),
                _arrow_type(kind.valueType, f"{path}.value"),
            )
        case spark.StructType() if kind.fields:
            return pa.struct(
                [
                    (field.name, _arrow_type(field.dataType, f"{path}.{field.name}"))
                    for field in kind
                ]
            )
    raise BadInput(f"column {path} is {kind.simpleString()}, which cannot be stored; cast it")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
