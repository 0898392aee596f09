"""Operations that read: what a lake has, what queries cannot see, and what is wrong with files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.errors import BadInput
from lakebed.lifecycle.check import Level
from lakebed.lifecycle.checks.findings import Finding, Severity
from lakebed.model.tables.table import UserTable, split_name
from lakebed.model.time import Instant
from lakebed.operations.operation import OperableLake, operation
from lakebed.query.snapshot import listings
from lakebed.query.snapshot.listings import CatalogRequest
from lakebed.tables.importing.tree_check import check_tree, list_empty

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "explain_empty",
    "find_empty_partitions",
    "list_columns",
    "list_incompatible_partitions",
    "list_partitions",
    "list_view_sets",
    "validate_table_files",
]


@operation()
def list_partitions(
    lake: OperableLake, view_set_name: str | None = None, *, as_of: Instant | None = None
) -> pa.Table:
    """Live partitions of one view set or of all, now or at a past tick."""
    names = None if view_set_name is None else frozenset([view_set_name])
    request = CatalogRequest(frozenset([listings.PARTITIONS]), names)
    return lake.queries.look_up(request, as_of=as_of).tables[listings.PARTITIONS]


@operation()
def list_view_sets(lake: OperableLake) -> pa.Table:
    """Every view set with its active schema."""
    request = CatalogRequest(frozenset([listings.VIEW_SETS]))
    return lake.queries.look_up(request).tables[listings.VIEW_SETS]


@operation()
def list_columns(lake: OperableLake) -> pa.Table:
    """Every column of every view set, with its comment."""
    request = CatalogRequest(frozenset([listings.VIEW_COLUMNS]))
    return lake.queries.look_up(request).tables[listings.VIEW_COLUMNS]


@operation()
def explain_empty(
    lake: OperableLake, view_set_name: str, begin: Instant, end: Instant, *, stale: bool = False
) -> pa.Table:
    """The ranges of insert time of which a query sees no rows (``stale``: one that leaves out the
    fresh tail), each with its reason."""
    return lake.queries.explain_empty(view_set_name, begin, end, stale=stale)


@operation()
def list_incompatible_partitions(lake: OperableLake, view_set_name: str | None = None) -> pa.Table:
    """Live partitions that queries cannot see, because their schema is not the active one. Those
    of a view set that is not registered any more have no current schema hash."""
    listed = lake.retirement.list_incompatible_partitions(view_set_name)
    return listings.make_incompatible(partition.as_row() for partition in listed)


@operation()
def find_empty_partitions(source: OperableLake | str | Path, table: str | None = None) -> pa.Table:
    """Return the live partitions of a ``database.table`` without rows; or the folders and files
    without rows below any folder of Parquet files or ``s3://bucket/prefix``."""
    if isinstance(source, str | Path):
        _refuse_table(source, table)
        return listings.make_findings(list_empty(check_tree(source)))
    definition = _get_table(source, table)
    return listings.make_findings(
        Finding(Severity.NOTE, "empty partition", partition.partition_id, partition.describe())
        for partition in source.tables.find_empty_partitions(definition.database, definition.name)
    )


@operation()
def validate_table_files(
    source: OperableLake | str | Path, table: str | None = None, *, pages: bool = True
) -> pa.Table:
    """Return what is wrong with the files of a ``database.table``, retired ones too, or with those
    below any folder of Parquet files or ``s3://bucket/prefix``. Every page is read, or only the
    footers."""
    if isinstance(source, str | Path):
        _refuse_table(source, table)
        return listings.make_findings(check_tree(source, pages=pages).findings)
    level = Level.PAGES if pages else Level.FOOTERS
    return listings.make_findings(
        source.checker.check_table(_get_table(source, table), level).findings
    )


def _get_table(lake: OperableLake, table: str | None) -> UserTable:
    if table is None:
        raise BadInput("name the table", hint="write it as database.table")
    return lake.tables.definitions.get(*split_name(table))


def _refuse_table(source: str | Path, table: str | None) -> None:
    if table is not None:
        raise BadInput(
            f"{source!r} is not an open lake, and only lakes have tables",
            hint="pass lakebed.open(…), or leave the table out to check a folder",
        )
