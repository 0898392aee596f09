"""The tables that SQL can name: those of the statement that is being planned, and no others.
Nothing is found by listing, by path or by URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datafusion.catalog import CatalogProvider, SchemaProvider

CATALOG, SCHEMA = "lake", "public"


class StatementTables(SchemaProvider):
    """The one schema. The engine sets what it holds before each use and keeps others out."""

    def __init__(self) -> None:
        self.visible: Mapping[str, Any] = {}
        self.made: Any = None

    @property
    def table_names(self) -> list[str]:  # type: ignore[override]
        """Their names; the engine reads a property where its own documentation has a method."""
        return sorted(self.visible)

    def table_exist(self, name: str) -> bool:
        """Whether the statement may name this table."""
        return name in self.visible

    def table(self, name: str) -> Any:
        """The table, if the statement may name it."""
        return self.visible.get(name)

    def register_table(self, name: str, table: Any) -> None:  # noqa: ARG002
        """Catch a table that the engine made for us; users' SQL never comes here."""
        self.made = table

    def take_made(self) -> Any:
        """The table that was just made."""
        made, self.made = self.made, None
        return made


class LakeCatalog(CatalogProvider):
    """The one catalog, with the one schema."""

    def __init__(self, tables: StatementTables) -> None:
        self._tables = tables

    def schema_names(self) -> set[str]:
        """Their names."""
        return {SCHEMA}

    def schema(self, name: str) -> Any:
        """The schema of this name."""
        return self._tables if name == SCHEMA else None
