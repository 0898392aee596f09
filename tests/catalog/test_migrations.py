"""Migrating: from the older shape with inline footers to exactly what a fresh catalog has; and the
refusal of catalogs that are newer than the program. Killing it is proven in `tests/proof`.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from lakebed.catalog import migrate as migrations
from lakebed.catalog import schema
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.dialects import WRITE
from lakebed.catalog.migrate import HEAD, current_revision, migrate
from lakebed.errors import Conflict, LakeNotFound, Outdated
from lakebed.lifecycle.check import Level
from lakebed.lifecycle.upgrade import upgrade_footers
from lakebed.opening import connect, init_lake, open_lake
from lakebed.storage import footer as footers
from lakebed.storage.local import LocalStore
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
    with pytest.raises(Outdated, match="9999"):
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


def test_older_rows_that_overlap_are_named_and_nothing_changes(
    new_catalog: Callable[..., str],
) -> None:
    catalog = Catalog(new_catalog(blank=True), actor="test")
    migrate(catalog.engine, target="0001")
    fill_older_shape(catalog.engine, 3)
    with catalog.engine.execution_options(**{WRITE: True}).begin() as connection:
        connection.execute(
            sa.text("UPDATE lakehouse_partitions SET end_insert_time = end_insert_time + 1")
        )
    with pytest.raises(Conflict, match="log_entries/global overlap"):
        catalog.migrate()
    with catalog.engine.connect() as connection:
        assert current_revision(connection) == "0002"
    catalog.close()


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
