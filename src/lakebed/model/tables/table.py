"""A user's table: a name in a database, a history of schemas, and how its rows are stored. Its
partitions carry the table's id, never its name; each is of one bucket of time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from lakebed.errors import BadInput
from lakebed.model.tables.schema import BUCKET_COLUMN, Bucket, TableSchema
from lakebed.model.time import SECOND, parse_duration
from lakebed.model.view_set import ViewSet

VERSION, DELETED, FLAGGED = "_version", "_deleted", "_out_of_range"
"""Columns beside the user's: the version of a row's insert, if it is not the partition's; True
for a mark that a key was deleted; the names of values out of range.
"""

REJECTS = "_rejects"
RESERVED_DATABASES = ("public", "information_schema", "lake")
_WORDS = """alter and as between create cross describe distinct drop else except fetch for from glob
grant having ilike inner insert intersect into join lateral like minus not notnull on or outer
qualify regexp returning revoke rlike rollback select serdeproperties table tablesample then uncache
union unnest using values when where with xor"""
RESERVED_WORDS = frozenset(_WORDS.split())
"""Words that one of the engines does not read as a table's name in SQL."""
_PREFIX = "table_"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
_UNSPEAKABLE = re.compile(r"[\x00\ud800-\udfff]")
"""Characters that no catalog accepts in a text: NUL, and bytes that were not UTF-8."""


def is_table(view_set: str) -> bool:
    """Return True if partitions of this name belong to a user's table."""
    return view_set.startswith(_PREFIX)


def table_id_of(view_set: str) -> str:
    """Return the id of the table whose partitions have this name."""
    return view_set.removeprefix(_PREFIX)


def split_name(full_name: str) -> tuple[str, str]:
    """Return a table's database and its name in it."""
    database, dot, name = full_name.partition(".")
    if not (database and dot and name) or "." in name:
        raise BadInput(f"{full_name!r} is not the name of a table", hint="write DATABASE.TABLE")
    return database, name


def parse_retention(text: str) -> int:
    """Return the retention of rows in microseconds. `BadInput` below the shortest bucket, because a
    mistaken 0 would delete all rows."""
    retention_us = parse_duration(text)
    if retention_us < 3600 * SECOND:
        raise BadInput(
            f"rows are kept for 1h or longer, not {text}",
            hint="write how long, such as 90d; without it they are kept for ever",
        )
    return retention_us


def name_import(database: str, name: str) -> str:
    """Return the prefix of the reasons with which imports into a table set files aside."""
    return f"import into {database}.{name}:"


def is_speakable(text: str) -> bool:
    """Return True if a text can be a parameter of a catalog query."""
    return not _UNSPEAKABLE.search(text)


def require_text(*names: object) -> None:
    """Raise `BadInput` for a value that cannot be a name, nor a parameter of a query: a mistake
    in a program, or a text from a shell with another encoding."""
    for name in names:
        if not isinstance(name, str) or not is_speakable(name):
            raise BadInput(
                f"{name!r} is not a name", hint="name the database and the table, each by a text"
            )


def check_name(name: str, what: str) -> str:
    """Return the name of a database or table. `BadInput` if it cannot be a name in SQL."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInput(
            f"{name!r} is not the name of a {what}",
            hint="use lowercase letters, digits and _, at most 48, beginning with a letter",
        )
    if name in RESERVED_WORDS or (what == "database" and name in RESERVED_DATABASES):
        raise BadInput(f"a {what} cannot be called {name}", hint="choose another name")
    if what == "table" and name.endswith(REJECTS):
        raise BadInput(f"names that end in {REJECTS} are for what tables refuse")
    return name


@dataclass(frozen=True)
class UserTable:
    """One table with every version of its schema, oldest first."""

    table_id: str
    database: str
    name: str
    bucket: Bucket
    versions: tuple[TableSchema, ...]
    retention_us: int | None = None
    rejects_of: str | None = None
    created_at: int = 0
    changed_at: int = field(default=0, compare=False)
    deleted_at: int | None = None

    @property
    def full_name(self) -> str:
        """The table's name in SQL."""
        return f"{self.database}.{self.name}"

    @property
    def stored_as(self) -> str:
        """The name of the view set of its partitions."""
        return f"{_PREFIX}{self.table_id}"

    @property
    def version(self) -> int:
        return len(self.versions)

    @property
    def schema(self) -> TableSchema:
        return self.versions[-1]

    @cached_property
    def key(self) -> tuple[str, ...]:
        return self.schema.key

    @cached_property
    def time_column(self) -> str:
        return self.schema.time_column

    @cached_property
    def key_has_time(self) -> bool:
        """True if the key has the time: then every version of a row is in the same bucket."""
        return self.time_column in self.key

    @cached_property
    def stored(self) -> Mapping[bytes, ViewSet]:
        """The stored form of each schema version, by schema hash; the last is the current one."""
        stored_versions = [
            _stored(self.stored_as, number, schema)
            for number, schema in enumerate(self.versions, start=1)
        ]
        return {version.schema_hash: version for version in stored_versions}

    @property
    def view_set(self) -> ViewSet:
        """The current stored form of the rows."""
        return list(self.stored.values())[-1]

    @cached_property
    def shown(self) -> ViewSet:
        """The table as SQL shows it: without internal columns, with the name of each row's
        bucket."""
        import pyarrow as pa

        fields = [field for field in self.view_set.schema if field.name not in (VERSION, DELETED)]
        fields.append(pa.field(BUCKET_COLUMN, pa.string()))
        return ViewSet(self.stored_as, self.version, pa.schema(fields), self.time_column)


@lru_cache(maxsize=1024)
def _stored(name: str, version: int, schema: TableSchema) -> ViewSet:
    import pyarrow as pa

    fields = [*schema.arrow]
    if schema.out_of_range == "flag":
        fields.append(pa.field(FLAGGED, pa.list_(pa.string())))
    fields.append(pa.field(VERSION, pa.int64()))
    if schema.key:
        fields.append(pa.field(DELETED, pa.bool_()))
    order = schema.key if schema.key else (schema.time_column,)
    return ViewSet(name, version, pa.schema(fields), schema.time_column, order)
