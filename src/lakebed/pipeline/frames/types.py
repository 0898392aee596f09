"""A view set's Arrow types as Spark has them: no unsigned integers, no dictionaries, one kind of
text. The same mapping as Spark's own for the Parquet files that Lakebed writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebed.errors import BadInput
from lakebed.model.view_set import ViewSet

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType


def spark_schema(view_set: ViewSet) -> StructType:
    """Return the schema of a DataFrame with this view set's rows. `BadInput` if Spark cannot
    hold it. Every column is nullable, as in everything that Spark reads from files."""
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [StructField(field.name, _spark_type(field.type, field.name)) for field in view_set.schema]
    )


def to_view_set(table: pa.Table, view_set: ViewSet) -> pa.Table:
    """Return rows from Spark in the types that the view set declares. Raises for a value that
    does not fit, such as a negative number for an unsigned column."""
    import pyarrow as pa

    columns = []
    for field in view_set.schema:
        column = table[field.name]
        try:
            columns.append(_cast(column, field.type))
        except pa.ArrowException as error:
            reason = str(error).splitlines()[0]
            raise BadInput(
                f"column {field.name} does not fit view set {view_set.name}: {reason}"
            ) from error
    return pa.table(columns, names=view_set.schema.names)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return column.dictionary_encode().cast(kind)
    return column.cast(kind)


def _spark_type(kind: pa.DataType, path: str) -> DataType:
    import pyarrow as pa
    from pyspark.sql import types as spark

    plain: dict[Any, DataType] = {
        pa.bool_(): spark.BooleanType(),
        pa.int8(): spark.ByteType(),
        pa.uint8(): spark.ShortType(),
        pa.int16(): spark.ShortType(),
        pa.uint16(): spark.IntegerType(),
        pa.int32(): spark.IntegerType(),
        pa.uint32(): spark.LongType(),
        pa.int64(): spark.LongType(),
        pa.uint64(): spark.DecimalType(20, 0),
        pa.float32(): spark.FloatType(),
        pa.float64(): spark.DoubleType(),
        pa.string(): spark.StringType(),
        pa.large_string(): spark.StringType(),
        pa.binary(): spark.BinaryType(),
        pa.large_binary(): spark.BinaryType(),
        pa.date32(): spark.DateType(),
    }
    kinds = pa.types
    if kind in plain:
        return plain[kind]
    if kinds.is_timestamp(kind):
        if kind.unit == "ns":
            raise BadInput(
                f"column {path} has nanosecond timestamps, which spark cannot read",
                hint="declare it in microseconds, or read it without spark",
            )
        return spark.TimestampType() if kind.tz else spark.TimestampNTZType()
    if kinds.is_duration(kind):
        return spark.LongType()
    if kinds.is_decimal(kind):
        return spark.DecimalType(kind.precision, kind.scale)
    if kinds.is_fixed_size_binary(kind):
        return spark.BinaryType()
    if kinds.is_dictionary(kind):
        return _spark_type(kind.value_type, path)
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return spark.ArrayType(_spark_type(kind.value_type, f"{path}.element"))
    if kinds.is_map(kind):
        return spark.MapType(
            _spark_type(kind.key_type, f"{path}.key"), _spark_type(kind.item_type, f"{path}.value")
        )
    if kinds.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return spark.StructType(
            [
                spark.StructField(field.name, _spark_type(field.type, f"{path}.{field.name}"))
                for field in fields
            ]
        )
    raise BadInput(f"column {path} is {kind}, which spark cannot read")
