"""Administration from Python: what the admin functions of SQL do, as calls that return data.

Tables have the columns of the SQL functions, in micromegas' names and order where it has them, and
become data frames with ``.to_pandas()``. What fails is raised, not told in a message.

    import lakebed
    from lakebed import admin

    lake = lakebed.open("weather")  # or lakebed.connect("grpc://…"), as an administrator
    admin.list_incompatible_partitions(lake).to_pandas()
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.client.remote import also_remote, never_remote
from lakebed.errors import BadInput
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.lifecycle.outcomes import Outcome
from lakebed.lifecycle.selection import BY_FILE_IS_DEPRECATED
from lakebed.model.partition import Partition
from lakebed.model.time import Instant
from lakebed.model.user_table import UserTable, split_name
from lakebed.query import listings
from lakebed.query.listings import Asked
from lakebed.tables.importing.tree_check import TreeFinding, check_tree, list_empty

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebed.pipeline.pipeline import BuildReport

__all__ = [
    "explain_empty",
    "find_empty_partitions",
    "list_columns",
    "list_incompatible_partitions",
    "list_partitions",
    "list_view_sets",
    "materialize_partitions",
    "restore_partition",
    "retire_incompatible_partitions",
    "retire_partition_by_file",
    "retire_partition_by_metadata",
    "retire_partitions",
    "validate_table_files",
]


@also_remote()
def list_partitions(
    lake: Lake, view_set_name: str | None = None, *, as_of: Instant | None = None
) -> pa.Table:
    """Live partitions of one view set or of all, now or at a past tick."""
    wanted = None if view_set_name is None else frozenset([view_set_name])
    asked = Asked(frozenset([listings.PARTITIONS]), wanted)
    return lake.queries.look_up(asked, as_of=as_of).tables[listings.PARTITIONS]


@also_remote()
def list_view_sets(lake: Lake) -> pa.Table:
    """Every view set with its active schema."""
    asked = Asked(frozenset([listings.VIEW_SETS]))
    return lake.queries.look_up(asked).tables[listings.VIEW_SETS]


@also_remote()
def list_columns(lake: Lake) -> pa.Table:
    """Every column of every view set, with its comment."""
    asked = Asked(frozenset([listings.VIEW_COLUMNS]))
    return lake.queries.look_up(asked).tables[listings.VIEW_COLUMNS]


@also_remote()
def explain_empty(
    lake: Lake, view_set_name: str, begin: Instant, end: Instant, *, stale: bool = False
) -> pa.Table:
    """The ranges of insert time of which a query sees no rows (``stale``: one that leaves out the
    fresh tail), each with its reason."""
    return lake.queries.explain_empty(view_set_name, begin, end, stale=stale)


@also_remote()
def find_empty_partitions(source: Lake | str | Path, table: str | None = None) -> pa.Table:
    """Return the live partitions of a ``database.table`` without rows; or the folders and files
    without rows below any folder of Parquet files or ``s3://bucket/prefix``."""
    if not isinstance(source, Lake):
        _refuse_table(source, table)
        return listings.make_findings(list_empty(check_tree(source)))
    definition = _get_table(source, table)
    return listings.make_findings(
        TreeFinding("note", "empty partition", partition.partition_id, partition.describe())
        for partition in source.tables.find_empty_partitions(definition.database, definition.name)
    )


@also_remote()
def validate_table_files(
    source: Lake | str | Path, table: str | None = None, *, pages: bool = True
) -> pa.Table:
    """Return what is wrong with the files of a ``database.table``, retired ones too, or with those
    below any folder of Parquet files or ``s3://bucket/prefix``. Every page is read, or only the
    footers."""
    if not isinstance(source, Lake):
        _refuse_table(source, table)
        return listings.make_findings(check_tree(source, pages=pages).findings)
    level = Level.PAGES if pages else Level.FOOTERS
    return listings.make_findings(
        source.checker.check_table(_get_table(source, table), level).findings
    )


def _get_table(lake: Lake, table: str | None) -> UserTable:
    if table is None:
        raise BadInput("name the table", hint="write it as database.table")
    return lake.tables.definitions.get(*split_name(table))


def _refuse_table(source: str | Path, table: str | None) -> None:
    if table is not None:
        raise BadInput(
            f"{source!r} is not an open lake, and only lakes have tables",
            hint="pass lakebed.open(…), or leave the table out to check a folder",
        )


@also_remote()
def list_incompatible_partitions(lake: Lake, view_set_name: str | None = None) -> pa.Table:
    """Live partitions that queries cannot see, because their schema is not the active one. Those
    of a view set that is not registered any more have no current schema hash."""
    found = lake.retirement.list_incompatible_partitions(view_set_name)
    return listings.make_incompatible(
        [(each.partition, each.current_hash, each.can_be_rebuilt) for each in found]
    )


@also_remote(changes=True)
def retire_incompatible_partitions(
    lake: Lake,
    view_set_name: str | None = None,
    *,
    allow_loss: bool = False,
    confirmed: Collection[str] = (),
) -> pa.Table:
    """Retire them, each in a transaction of its own; return a row for each view set and instance.

    Partitions that cannot be rebuilt are left alone, unless ``allow_loss`` accepts the loss for a
    named view set: ``view_set_name``, or those in ``confirmed``.
    """
    done = lake.retirement.retire_incompatible_partitions(
        view_set_name, allow_loss=allow_loss, confirmed=confirmed
    )
    return listings.make_retired(
        [
            {
                "view_set_name": each.view_set,
                "view_instance_id": each.instance,
                "partitions_retired": each.partitions_retired,
                "partitions_failed": each.partitions_failed,
                "storage_freed_bytes": each.storage_freed_bytes,
                "retirement_messages": list(each.messages),
            }
            for each in done
        ]
    )


@also_remote(Outcome, changes=True)
def retire_partition_by_metadata(
    lake: Lake,
    view_set_name: str,
    view_instance_id: str,
    begin_insert_time: Instant,
    end_insert_time: Instant,
    file_schema_hash: bytes | None = None,
    *,
    confirmed: Collection[str] = (),
) -> Outcome:
    """Retire one partition, empty or not. `Ambiguous` if it has a twin and no hash is given,
    `Refused` if it cannot be rebuilt, unless ``confirmed`` names its view set."""
    return lake.retirement.retire_partition_by_metadata(
        view_set_name,
        view_instance_id,
        begin_insert_time,
        end_insert_time,
        file_schema_hash,
        confirmed=confirmed,
    )


@also_remote(Outcome, changes=True, deprecated=BY_FILE_IS_DEPRECATED)
def retire_partition_by_file(
    lake: Lake, file_path: str, *, confirmed: Collection[str] = ()
) -> Outcome:
    """Retire one partition by its file. Deprecated: use `retire_partition_by_metadata`, which can
    name an empty partition, too."""
    with warnings.catch_warnings():  # the caller has the warning already
        warnings.simplefilter("ignore", DeprecationWarning)
        return lake.retirement.retire_partition_by_file(file_path, confirmed=confirmed)


@also_remote(list[Outcome], changes=True)
def retire_partitions(
    lake: Lake,
    view_set_name: str,
    view_instance_id: str | None,
    begin_insert_time: Instant,
    end_insert_time: Instant,
    *,
    confirmed: Collection[str] = (),
) -> list[Outcome]:
    """Retire every partition inside an insert-time range, of one instance or (None) of all."""
    return lake.retirement.retire_partitions(
        view_set_name,
        begin_insert_time,
        end_insert_time,
        instance=view_instance_id,
        confirmed=confirmed,
    )


@also_remote(Partition, changes=True)
def restore_partition(lake: Lake, partition_id: str) -> Partition:
    """Bring a retired partition back; the new one."""
    return lake.retirement.restore(partition_id)


@never_remote("over a connection: SELECT * FROM materialize_partitions(view_set, begin, end, 60)")
def materialize_partitions(
    lake: Lake,
    view_set_name: str,
    begin_insert_time: Instant,
    end_insert_time: Instant,
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    remote: str | None = None,
) -> BuildReport:
    """Build a view set and what it reads in an insert-time range; the size of partitions is the
    plan's affair. Each step is published by itself."""
    return lake.pipeline.build(
        view_set_name,
        begin=begin_insert_time,
        end=end_insert_time,
        spark=spark,
        master=master,
        remote=remote,
    )
