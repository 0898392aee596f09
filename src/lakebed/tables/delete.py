"""Delete rows. In a table with a key, delete marks hide the older versions of rows, and folds drop
both. In a table without a key, the partitions that hold the rows are rewritten without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

from lakebed.catalog import journal
from lakebed.errors import BadInput, LeaseLost, StalePlan
from lakebed.model.tables.schema import BUCKET_COLUMN
from lakebed.model.tables.table import DELETED, VERSION, UserTable
from lakebed.tables.insert.insert_values import Insertion, Premise
from lakebed.tables.rows.row_reader import RowReader
from lakebed.tables.rows.stored_rows import TableRows
from lakebed.tables.rows.table_publisher import TablePublisher
from lakebed.tables.rows.table_snapshot import TableSnapshots

if TYPE_CHECKING:
    import pyarrow as pa

_ATTEMPTS = 20


class TableQueries(Protocol):
    """The part of `lakebed.query.queries.Queries` that tables use."""

    @property
    def query(self) -> Callable[..., Any]:
        """Run a statement as `Lake.query` does; ``database`` names the database of its tables."""

    def match_rows(self, rows: pa.Table, table: UserTable, condition: str) -> pa.Table:
        """Return the rows for which a condition is true."""


class Deleter:
    """Deletes rows of the tables of one lake."""

    def __init__(
        self,
        reader: RowReader,
        snapshots: TableSnapshots,
        publisher: TablePublisher,
        queries: TableQueries,
    ) -> None:
        self._reader = reader
        self._snapshots = snapshots
        self._publisher = publisher
        self._queries = queries

    def delete_rows(self, table: UserTable, where: str) -> int:
        """Delete the rows for which a condition is true now, in one transaction, and return
        their number. Rows inserted meanwhile stay."""
        require_condition(table, where)
        for attempt in range(_ATTEMPTS):
            try:
                if table.key:
                    return self._mark(table, where)
                return self._write_again(table, where)
            except (StalePlan, LeaseLost):
                if attempt == _ATTEMPTS - 1:
                    raise
                with self._snapshots.take(table.table_id) as snapshot:
                    table = snapshot.table
        raise AssertionError("every attempt returns or raises")

    def _mark(self, table: UserTable, where: str) -> int:
        names = list(dict.fromkeys([*table.key, table.time_column]))
        keys, tick = self._ask(_select(table, names, where), table)
        if not keys.num_rows:
            return 0
        marks = _as_marks(keys, table, tick)
        insertion = Insertion(
            [TableRows(table, marks)],
            operation=journal.DELETED,
            reason=where,
            # Or else a mark would bring the key back that was forgotten.
            premise=Premise(tick, (journal.FORGOTTEN,)),
        )
        self._publisher.insert(insertion)
        return int(keys.num_rows)

    def _write_again(self, table: UserTable, where: str) -> int:
        affected, tick = self._ask(_select(table, [BUCKET_COLUMN], where, distinct=True), table)
        buckets = set(affected[BUCKET_COLUMN].to_pylist())
        if not buckets:
            return 0
        count = 0
        replacements = []
        with self._snapshots.take(table.table_id) as snapshot:
            for partition in snapshot.partitions:
                if partition.is_empty or partition.insert_range.begin > tick:
                    continue
                if partition.published_at > tick:  # older rows, which were somewhere else
                    raise StalePlan(f"table {table.full_name} was folded meanwhile")
                if partition.instance not in buckets:
                    continue
                rows = self._reader.read(snapshot.table, partition)
                remaining = self._queries.match_rows(
                    rows, snapshot.table, f"NOT coalesce(({where}\n), false)"
                )
                if remaining.num_rows < rows.num_rows:
                    count += rows.num_rows - remaining.num_rows
                    replacements.append(([partition], remaining))
            self._publisher.replace_all(
                snapshot.table, replacements, operation=journal.DELETED, reason=where
            )
        return count

    def _ask(self, sql: str, table: UserTable) -> tuple[pa.Table, int]:
        """Return the rows of a statement about a table, and the tick of their snapshot."""
        result = self._queries.query(sql, database=table.database)
        return result.to_arrow(), result.explanation.tick


def require_condition(table: UserTable, where: str) -> None:
    """Raise unless a text may be the condition of a table's rows: one expression, which stands
    between parentheses, and without a key about one row alone."""
    from sqlglot.dialects.postgres import Postgres
    from sqlglot.errors import TokenError
    from sqlglot.tokenizer_core import TokenType

    if not isinstance(where, str) or not where.strip():
        raise BadInput(
            "delete_rows needs a condition", hint='e.g. "device = \'ring-7\'", or "true" for all'
        )
    try:
        kinds = [token.token_type for token in Postgres().tokenize(where)]
    except TokenError:  # the engine says what is wrong with it
        return
    opened = accumulate((kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN) for kind in kinds)
    if min(opened, default=0) < 0:
        raise BadInput(
            "this is no condition: it closes a parenthesis that it did not open",
            hint="write what is true of the rows, as after WHERE",
        )
    if not table.key and TokenType.SELECT in kinds:
        raise BadInput(
            f"{table.full_name} has no key, and this condition has a SELECT in it",
            hint="of a table without a key, it can only speak of the columns of one row",
        )


def _select(table: UserTable, names: Sequence[str], where: str, *, distinct: bool = False) -> str:
    columns = ", ".join(f'"{name}"' for name in names)
    return (
        f"SELECT {'DISTINCT ' if distinct else ''}{columns} "
        f"FROM {table.full_name} WHERE ({where}\n)"
    )


def _as_marks(keys: pa.Table, table: UserTable, tick: int) -> pa.Table:
    """Return delete marks for the keys of rows at a tick."""
    import pyarrow as pa

    count = keys.num_rows
    columns = []
    for field in table.view_set.schema:
        if field.name == VERSION:
            columns.append(pa.array([tick] * count, pa.int64()))
        elif field.name == DELETED:
            columns.append(pa.array([True] * count))
        elif field.name in keys.column_names:
            columns.append(keys[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(count, field.type))
    return pa.table(columns, schema=table.view_set.schema)
