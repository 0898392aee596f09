"""Partitions as DataFrames: through Spark's own Parquet reader, or, where Spark cannot reach the
store itself, through tasks that read with Lakebed's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lakebed.errors import BadInput, LakebedError, Unavailable
from lakebed.model.tables.table import VERSION
from lakebed.model.view_set import ViewSet
from lakebed.pipeline.frames.types import spark_schema
from lakebed.pipeline.sessions.executors import StoreAddress
from lakebed.storage import parquet
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_MANY_PATHS = 100_000
_NO_FILE_SYSTEM = re.compile(
    r"No FileSystem for scheme|S3AFileSystem not found|ClassNotFoundException: \S*S3A"
)
_S3A = re.compile(r"fs\.s3a|awssdk")
_S3A_REASON = re.compile(r"Status Code: \d+|(?:Exception|Error): ")
_NO_CREDENTIALS = re.compile(r"NoAuthWithAWS|No AWS Credentials|Unable to load credentials")
_BATCH_ROWS = 65_536
_FEW_FILES = 32


def read_files(
    spark: SparkSession,
    store: Store,
    address: StoreAddress,
    paths: Sequence[str],
    definition: ViewSet,
) -> DataFrame:
    """A DataFrame over exactly these files, wherever the store is."""
    if not paths:
        return spark.createDataFrame([], spark_schema(definition))
    if isinstance(store, LocalStore):
        return read_native(spark, store, paths, definition)
    return _read_through_store(spark, address, paths, definition)


def read_versions(
    spark: SparkSession,
    store: Store,
    address: StoreAddress,
    versions: Mapping[str, int],
    definition: ViewSet,
) -> DataFrame:
    """Return the rows of exactly these files of a user's table, each with the version of its
    file unless it has its own."""
    from pyspark.sql import functions as sql

    try:
        frame = read_native(spark, store, list(versions), definition)
    except (BadInput, Unavailable):  # a bucket that this Spark cannot read by itself
        return _read_through_store(spark, address, list(versions), definition, versions)
    by_name = {path.rpartition("/")[2]: version for path, version in versions.items()}
    frame = frame.withColumn("_file", sql.col("_metadata.file_name"))
    if len(by_name) <= _FEW_FILES:  # a list to look through; a table to join costs a job
        pairs = [sql.lit(item) for pair in by_name.items() for item in pair]
        frame = frame.withColumn("_since", sql.create_map(*pairs)[sql.col("_file")])
    else:
        file_versions = spark.createDataFrame(list(by_name.items()), "_file string, _since bigint")
        frame = frame.join(sql.broadcast(file_versions), "_file", "left")
    version = sql.coalesce(sql.col(VERSION), sql.col("_since")).cast("bigint").alias(VERSION)
    names = spark_schema(definition).names
    return frame.select(*(version if name == VERSION else f"`{name}`" for name in names))


def _read_through_store(
    spark: SparkSession,
    address: StoreAddress,
    paths: Sequence[str],
    definition: ViewSet,
    versions: Mapping[str, int] | None = None,
) -> DataFrame:
    schema = spark_schema(definition)
    file_versions = dict(versions or {})

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc
        from pyspark.sql.pandas.types import to_arrow_schema

        target_schema = to_arrow_schema(schema, timezone="UTC")
        store = address.open()
        for batch in batches:
            for path in batch.column("path").to_pylist():
                for rows in parquet.read_batches(store, path, _BATCH_ROWS):
                    if file_versions:
                        column = pc.fill_null(rows.column(VERSION), file_versions[path])
                        index = rows.schema.get_field_index(VERSION)
                        rows = rows.set_column(index, VERSION, column)
                    yield rows.cast(target_schema)

    listed = spark.createDataFrame([(path,) for path in paths], "path string")
    return listed.mapInArrow(read, schema)


def read_native(
    spark: SparkSession, store: Store, paths: Sequence[str], definition: ViewSet
) -> DataFrame:
    """Return a DataFrame of Spark's own reader over exactly these files.

    Nothing is inferred or skipped. `BadInput` if the store is a bucket and this Spark has no file
    system for it, `Unavailable` if that file system fails.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    before = spark.conf.get(_LISTING)
    spark.conf.set(_LISTING, str(max(_MANY_PATHS, int(before or 0))))  # else a job lists the files
    try:
        frame = (
            spark.read.schema(spark_schema(definition))
            .option("ignoreMissingFiles", "false")
            .option("ignoreCorruptFiles", "false")
            # It takes a row group that has only -0.0 in its dictionary for one without zeros.
            .option("parquet.filter.dictionary.enabled", "false")
            # Off by default. The vectorized reader obeys it, too. Page indexes have no checksums.
            .option("parquet.page.verify-checksum.enabled", "true")
            .option("parquet.filter.columnindex.enabled", "false")
            .parquet(*(_native_path(store, path) for path in paths))
        )
        _ = frame.schema  # Spark Connect finds out only now
    except (PySparkException, Py4JJavaError) as error:
        if store.url.startswith("s3://") and (failure := explain_s3a(store.url, str(error))):
            raise failure from error
        raise
    finally:
        if before is not None:
            spark.conf.set(_LISTING, before)
    return frame


def explain_s3a(url: str, text: str) -> LakebedError | None:
    """Return the error for the text of a failure of Spark on a bucket; None for other failures."""
    if _NO_FILE_SYSTEM.search(text):
        return BadInput(
            "this spark session has no S3 file system of its own",
            hint='use spark.read.format("lakebed"), or start spark with '
            "spark.jars.packages=org.apache.hadoop:hadoop-aws:<its Hadoop version>",
        )
    if not _S3A.search(text):
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reasons = [line for line in lines if _S3A_REASON.search(line)]
    reason = (reasons or lines)[0][:300]
    hint = (
        "check spark.hadoop.fs.s3a.endpoint, fs.s3a.endpoint.region and fs.s3a.path.style.access "
        "against AWS_ENDPOINT_URL and AWS_REGION"
    )
    if _NO_CREDENTIALS.search(text):
        hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY where driver and executors start"
    return Unavailable(
        f"spark's S3 file system (s3a) cannot read {url}: {reason}",
        hint=f'{hint}; or use spark.read.format("lakebed")',
    )


def _native_path(store: Store, path: str) -> str:
    """Return the file's path for Hadoop's file systems: not percent-encoded, and s3a for
    buckets. Spark takes every path for a pattern, so special characters are escaped."""
    if isinstance(store, LocalStore):
        named = f"file:{store.locate(path)}"
    else:
        named = f"{store.url.replace('s3://', 's3a://', 1)}/{path}"
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", named)
