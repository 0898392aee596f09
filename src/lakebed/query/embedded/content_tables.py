"""Tables of the engine over the content of a statement: files, and rows in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from datafusion import DataFrame, SessionContext, col

from lakebed.model.view_set import ViewSet
from lakebed.query.embedded.functions.calls import ONLY_READ
from lakebed.query.embedded.stores import Locator
from lakebed.query.embedded.tables import LakeCatalog
from lakebed.query.embedded.types import with_views
from lakebed.query.embedded.user_tables import UserTables
from lakebed.query.planning.content import Content, UserContent
from lakebed.query.snapshot import listings

_KEPT_TABLES = 64


class ContentTables:
    """Makes the tables of one engine, and keeps the last ones over files."""

    def __init__(self, context: SessionContext, catalog: LakeCatalog, locator: Locator) -> None:
        self.context = context
        self._catalog = catalog
        self._locator = locator
        self._files: OrderedDict[tuple[str, ...], Any] = OrderedDict()
        self._empty: dict[tuple[str, bytes], Any] = {}

    def clear(self) -> None:
        """Drop all tables: they hold the context."""
        self._files.clear()
        self._empty.clear()

    def make(self, content: Content) -> Any:
        """Return the table of some content."""
        if isinstance(content, UserContent):
            if content.is_empty:
                return self.make_empty(content.view_set)
            return UserTables(self).make(content)
        parts = []
        if content.paths:
            parts.append(self.make_of_files(tuple(content.paths), content.view_set))
        if content.tail:
            rows = pa.concat_tables(content.tail).to_batches()
            parts.append(self.make_of_batches(rows))
        if not parts:
            return self.make_empty(content.view_set)
        if len(parts) == 1:
            return parts[0]
        first, second = (self.context.read_table(part) for part in parts)
        return first.union(second).into_view()

    def make_empty(self, view_set: ViewSet) -> Any:
        """Return a table without rows."""
        key = (view_set.name, view_set.schema_hash)
        if key not in self._empty:
            self._empty[key] = self.make_of_rows(with_views(view_set.schema).empty_table())
        return self._empty[key]

    def make_of_listing(self, name: str) -> Any:
        """Return the table that stands for a listing while a statement is analysed."""
        key = (name, b"")
        if key not in self._empty:
            schema = listings.EMPTY_SCHEMA if name == listings.EMPTY else listings.SCHEMAS[name]
            self._empty[key] = self.make_of_rows(schema.empty_table())
        return self._empty[key]

    def make_of_rows(self, table: pa.Table) -> Any:
        """Return a table of these rows."""
        batches = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
        return self.make_of_batches(batches)

    def make_of_batches(self, batches: Sequence[pa.RecordBatch]) -> Any:
        """Return a table of these batches."""
        self.context.register_record_batches("made", [list(batches)])
        return self._catalog.main.take_registered()

    def plan_over(self, sql: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Plan a statement of ours over frames, for operations that Python cannot express. Call it
        only while the tables of a statement are made: it replaces the tables that SQL can name, and
        those of the statement become visible afterwards."""
        self._catalog.show({name: frame.into_view() for name, frame in frames.items()})
        return self.context.sql_with_options(sql, ONLY_READ)

    def make_of_files(self, paths: tuple[str, ...], view_set: ViewSet) -> Any:
        """Return a table over exactly these files. Nested fields have their declared names, not the
        file's."""
        if paths in self._files:
            self._files.move_to_end(paths)
            return self._files[paths]
        places = ", ".join(_quote(self._locator.locate(path)) for path in paths)
        self.context.sql(f"CREATE EXTERNAL TABLE made STORED AS PARQUET LOCATION ({places})")
        frame = self.context.read_table(self._catalog.main.take_registered())
        self._files[paths] = as_declared(frame, view_set, only_nested=True).into_view()
        if len(self._files) > _KEPT_TABLES:
            self._files.popitem(last=False)
        return self._files[paths]


def as_declared(frame: DataFrame, view_set: ViewSet, *, only_nested: bool = False) -> DataFrame:
    """Return the frame in the view set's own types and order."""
    columns = []
    for field in with_views(view_set.schema):
        column = col(f'"{field.name}"')
        if pa.types.is_nested(field.type) or not only_nested:
            column = column.cast(field.type).alias(field.name)
        columns.append(column)
    return frame.select(*columns)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
