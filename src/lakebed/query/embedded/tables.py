"""The tables that SQL can name: those of the statement that is being planned, and no others.
Listing, paths and URLs find no tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datafusion.catalog import CatalogProvider, SchemaProvider

CATALOG, SCHEMA = "lake", "public"


class StatementTables(SchemaProvider):
    """One schema: the view sets, or the tables of a database."""

    def __init__(self) -> None:
        self.visible: Mapping[str, Any] = {}
        self.made: Any = None

    @property
    def table_names(self) -> list[str]:  # type: ignore[override]
        """Return their names; the engine reads a property where its own documentation has a
        method."""
        return sorted(self.visible)

    def table_exist(self, name: str) -> bool:
        """Return True if the statement may name this table."""
        return name in self.visible

    def table(self, name: str) -> Any:
        """Return the table, if the statement may name it."""
        return self.visible.get(name)

    def register_table(self, name: str, table: Any) -> None:  # noqa: ARG002
        """Store a table that the engine made for us; users' SQL never calls this."""
        self.made = table

    def take_registered(self) -> Any:
        """Return the table that was just made."""
        table, self.made = self.made, None
        return table


class LakeCatalog(CatalogProvider):
    """The one catalog: a schema for view sets, and one for each database. The engine sets their
    tables before each use, under its lock."""

    def __init__(self) -> None:
        self.main = StatementTables()
        self._schemas = {SCHEMA: self.main}

    def show(self, tables: Mapping[str, Any]) -> None:
        """Make these the tables that SQL can name, with their database or without."""
        by_schema: dict[str, dict[str, Any]] = {SCHEMA: {}}
        for full_name, table in tables.items():
            database, _, name = full_name.rpartition(".")
            by_schema.setdefault(database or SCHEMA, {})[name] = table
        self._schemas = {SCHEMA: self.main}
        for schema, visible in by_schema.items():
            self._schemas.setdefault(schema, StatementTables()).visible = visible

    def schema_names(self) -> set[str]:
        """Their names."""
        return set(self._schemas)

    def schema(self, name: str) -> Any:
        """Return the schema of this name."""
        return self._schemas.get(name)
