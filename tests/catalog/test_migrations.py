"""Migrating: from the older shape with inline footers to exactly what a fresh catalog has; and the
refusal of catalogs that are newer than the program. Killing it is proven in `tests/proof`.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from lakebed.catalog import migrate as migrations
from lakebed.catalog import schema
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.connections.dialects import WRITE
from lakebed.catalog.migrate import HEAD, current_revision, migrate
from lakebed.errors import LakeNotFound, MigrationRefused, Outdated
from lakebed.lifecycle.check import Level
from lakebed.lifecycle.upgrade import upgrade_footers
from lakebed.opening import connect, init_lake, open_lake
from lakebed.storage import footer as footers
from lakebed.storage.local import LocalStore
from tests.parts.data import HOUR, T0
from tests.parts.dumps import dump_database
from tests.parts.older import describe, fill_older_shape


def test_the_program_knows_all_revisions() -> None:
    script = ScriptDirectory.from_config(migrations._config())
    chain = [each.revision for each in script.walk_revisions()][::-1]
    assert tuple(chain) == migrations._REVISIONS
    assert chain[-1] == HEAD


def test_queries_see_the_columns_that_migrations_make(catalog: Catalog) -> None:
    inspector = sa.inspect(catalog.engine)
    assert set(inspector.get_table_names()) == {*schema.metadata.tables, "alembic_version"}
    for name, table in schema.metadata.tables.items():
        found = {
            column["name"]: (column["type"]._type_affinity, column["nullable"])
            for column in inspector.get_columns(name)
        }
        declared = {
            column.name: (column.type._type_affinity, column.nullable) for column in table.columns
        }
        assert found == declared, name
        keys = inspector.get_pk_constraint(name)["constrained_columns"]
        assert keys == [column.name for column in table.primary_key], name


def test_an_older_catalog_becomes_exactly_like_a_fresh_one(
    new_catalog: Callable[..., str],
) -> None:
    older = Catalog(new_catalog(blank=True), actor="test")
    migrate(older.engine, target="0001")
    fill_older_shape(older.engine, 25)
    assert older.migrate() == ["0002", "0003"]
    fresh = Catalog(new_catalog(blank=True), actor="test")
    assert fresh.migrate() == ["0001", "0002", "0003"]
    assert describe(older.engine) == describe(fresh.engine)
    assert older.migrate() == []
    older.close()
    fresh.close()


def test_migrating_moves_every_footer_unchanged(new_catalog: Callable[..., str]) -> None:
    catalog = Catalog(new_catalog(blank=True), actor="test")
    migrate(catalog.engine, target="0001")
    fill_older_shape(catalog.engine, 25)
    with catalog.engine.connect() as connection:
        query = "SELECT file_path, file_metadata FROM lakehouse_partitions WHERE file_path > ''"
        before = {path: bytes(footer) for path, footer in connection.exec_driver_sql(query)}
    migrate(catalog.engine, batch_rows=4)
    with catalog.read() as connection:
        rows = connection.execute(sa.select(schema.partition_metadata)).all()
    assert {row.file_path: bytes(row.metadata) for row in rows} == before
    assert all(bytes(row.digest) == hashlib.sha256(row.metadata).digest() for row in rows)
    catalog.close()


def test_a_newer_catalog_is_refused(new_lake: Callable[..., Any]) -> None:
    lake = new_lake()
    with lake.catalog.write() as transaction:
        transaction.connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(Outdated, match="revision 9999, which this program does not know"):
        open_lake(lake.catalog.url)
    catalog = connect(lake.catalog.url)
    with contextlib.closing(catalog), pytest.raises(Outdated, match="9999"):
        catalog.migrate()


def test_an_older_catalog_is_refused_until_migrated(new_catalog: Callable[..., str]) -> None:
    url = new_catalog(blank=True)
    with pytest.raises(LakeNotFound):
        open_lake(url)
    catalog = Catalog(url, actor="test")
    migrate(catalog.engine, target="0002")
    with pytest.raises(Outdated) as refused:
        open_lake(url)
    assert "lakebed migrate" in str(refused.value.hint)
    catalog.close()


def _name(begin: int, end: int) -> str:
    return f"log_entries/global [{begin}, {end}) 05"


_AT = _name(T0, T0 + HOUR)
_FILE = "views/log/00000.parquet"
_COPY = (
    "INSERT INTO lakehouse_partitions SELECT view_set_name, view_instance_id, "
    "begin_insert_time + 90000000000, end_insert_time + 90000000000, min_event_time, "
    "max_event_time, updated, file_path, file_size, file_schema_hash, source_data_hash, "
    "file_metadata, num_rows, partition_format_version FROM lakehouse_partitions "
    "WHERE file_path = 'views/log/00000.parquet'"
)
_BROKEN = {
    "overlap": (
        "UPDATE lakehouse_partitions SET end_insert_time = end_insert_time + 1 WHERE {first}",
        [f"{_name(T0, T0 + HOUR + 1)} overlaps {_name(T0 + HOUR, T0 + 2 * HOUR)}"],
    ),
    "zero width": (
        "UPDATE lakehouse_partitions SET end_insert_time = begin_insert_time WHERE {first}",
        [f"{_name(T0, T0)} has a range that is empty or runs backwards, {_FILE}"],
    ),
    "file without footer": (
        "UPDATE lakehouse_partitions SET file_metadata = NULL WHERE {first}",
        [f"{_AT} has a file without a footer, {_FILE}"],
    ),
    "file listed twice": (
        _COPY,
        [f"{_name(T0 + 25 * HOUR, T0 + 26 * HOUR)} has the file of {_AT}, {_FILE}"],
    ),
    "file that is temporary": (
        f"INSERT INTO temporary_files VALUES ('{_FILE}', 1, NULL)",
        [f"{_AT} has a file that is listed as temporary, {_FILE}"],
    ),
    "no rows with a file": (
        "UPDATE lakehouse_partitions SET num_rows = 0 WHERE {first}",
        [f"{_AT} has a file but 0 rows, {_FILE}"],
    ),
    "file of no bytes": (
        "UPDATE lakehouse_partitions SET file_size = 0 WHERE {first}",
        [f"{_AT} has a file of 0 bytes, {_FILE}"],
    ),
    "file without events": (
        "UPDATE lakehouse_partitions SET min_event_time = NULL WHERE {first}",
        [f"{_AT} has a file but no range of event times, {_FILE}"],
    ),
    "events backwards": (
        "UPDATE lakehouse_partitions SET min_event_time = max_event_time + 1 WHERE {first}",
        [f"{_AT} has event times that run backwards, {_FILE}"],
    ),
    "events too wide": (
        "UPDATE lakehouse_partitions SET min_event_time = 0, "
        "max_event_time = 4611686018427387904 WHERE {first}",
        [f"{_AT} has event times that are too far apart, {_FILE}"],
    ),
    "rows without a file": (
        "UPDATE lakehouse_partitions SET file_path = NULL WHERE {first}",
        [f"{_AT} has 7 rows but no file"],
    ),
    "blocks of one time": (
        "INSERT INTO blocks VALUES ('a', 's', 'p', 5, 1, 2, 1, 'e', 'd', 'x', 0, 1), "
        "('b', 's', 'p', 5, 1, 2, 1, 'e', 'd', 'x', 1, 1)",
        ["blocks a and b have the same insert time, 5"],
    ),
}


@pytest.fixture
def older(new_catalog: Callable[..., str]) -> Iterator[Catalog]:
    """A catalog of the oldest shape with three partitions."""
    catalog = Catalog(new_catalog(blank=True), actor="test")
    migrate(catalog.engine, target="0001")
    fill_older_shape(catalog.engine, 3)
    yield catalog
    catalog.close()


def _execute(catalog: Catalog, statement: str) -> None:
    with catalog.engine.execution_options(**{WRITE: True}).begin() as connection:
        connection.exec_driver_sql(statement.format(first=f"file_path = '{_FILE}'"))


@pytest.mark.parametrize("case", _BROKEN)
def test_migrate_refuses_broken_rows_by_name_before_it_changes_anything(
    older: Catalog, case: str
) -> None:
    statement, problems = _BROKEN[case]
    _execute(older, statement)
    before = dump_database(older.engine)
    with pytest.raises(MigrationRefused) as refused:
        older.migrate()
    assert list(refused.value.problems) == problems
    assert refused.value.__notes__[-len(problems) :] == problems
    assert dump_database(older.engine) == before


def test_migrate_names_every_broken_row_of_every_kind(older: Catalog) -> None:
    for case in ("zero width", "file that is temporary", "blocks of one time"):
        _execute(older, _BROKEN[case][0])
    _execute(older, "UPDATE lakehouse_partitions SET num_rows = 0")
    with pytest.raises(MigrationRefused, match="6 problems in its rows") as refused:
        older.migrate()
    assert len(refused.value.problems) == 6


def test_migrate_refuses_broken_rows_of_a_catalog_of_the_second_shape(
    new_catalog: Callable[..., str],
) -> None:
    catalog = Catalog(new_catalog(blank=True), actor="test")
    migrate(catalog.engine, target="0001")
    fill_older_shape(catalog.engine, 3)
    migrate(catalog.engine, target="0002")
    _execute(catalog, f"DELETE FROM partition_metadata WHERE file_path = '{_FILE}'")
    before = dump_database(catalog.engine)
    with pytest.raises(MigrationRefused) as refused:
        catalog.migrate()
    assert refused.value.problems == (f"{_AT} has a file without a footer, {_FILE}",)
    assert dump_database(catalog.engine) == before
    catalog.close()


def test_migrate_refuses_a_row_that_breaks_while_footers_move(older: Catalog) -> None:
    """The older program may still write while footers are copied, in transactions of their own."""

    def write_bad_row(line: str) -> None:
        if "footers moved" in line:
            _execute(older, _BROKEN["zero width"][0])

    with pytest.raises(MigrationRefused):
        migrate(older.engine, progress=write_bad_row)
    with older.engine.connect() as connection:
        assert current_revision(connection) == "0001"
        columns = {
            column["name"] for column in sa.inspect(connection).get_columns("lakehouse_partitions")
        }
    assert "file_metadata" in columns


def test_an_adopted_catalog_is_read_upgraded_and_checked(
    new_catalog: Callable[..., str], tmp_path: Any
) -> None:
    """Footers of format 1 are upgraded in memory, then rewritten; both give the file's rows."""
    url = new_catalog(blank=True)
    store = LocalStore(tmp_path / "store")
    store.root.mkdir()
    catalog = Catalog(url, actor="test")
    migrate(catalog.engine, target="0001")
    fill_older_shape(catalog.engine, 12, store)
    catalog.close()
    with init_lake(catalog=url, store=store.url) as lake:
        path = "views/log/00001.parquet"
        before = lake.partitions.get_footer(path)
        assert footers.parse(before, path=path).num_rows == 7
        assert not footers.parse(before, path=path).row_group(0).column(0).has_offset_index
        assert lake.checker.run(Level.PAGES).findings == []
        assert upgrade_footers(lake.catalog, batch_rows=4).rewritten == 11
        assert upgrade_footers(lake.catalog).rewritten == 0
        assert lake.partitions.get_footer(path) == before
        assert lake.checker.run(Level.PAGES).findings == []
