"""Databases of other programs: each is refused in one clear line, and nothing in it changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from lakebed.doctor.checks import Status, examine
from lakebed.errors import ForeignCatalog
from lakebed.opening import connect, init_lake, open_lake
from tests.cli.parts import Cli
from tests.parts.dumps import dump_database

_SCHEMAS = {
    "one table": ["CREATE TABLE processes (process_id VARCHAR(36), exe TEXT)"],
    "a telemetry lake": [
        "CREATE TABLE processes (process_id VARCHAR(36), exe TEXT)",
        "CREATE TABLE streams (stream_id VARCHAR(36), process_id VARCHAR(36))",
        "CREATE TABLE blocks (block_id VARCHAR(36), stream_id VARCHAR(36))",
        "CREATE TABLE lakehouse_partitions (view_set_name VARCHAR(255), num_rows BIGINT)",
        "CREATE TABLE temporary_files (file_path TEXT, file_size BIGINT)",
        "CREATE TABLE migration (version INTEGER)",
        "INSERT INTO migration VALUES (2)",
    ],
    "migrations by alembic": [
        "CREATE TABLE orders (order_id INTEGER)",
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)",
        "INSERT INTO alembic_version VALUES ('0003')",
    ],
    "a view": ["CREATE VIEW journal AS SELECT 1 AS entry"],
    "the lake's own table": ["CREATE TABLE lake (name TEXT)"],
}
_DOORS = {
    "init": ["init", "--catalog", "URL", "--store", "STORE"],
    "migrate": ["migrate", "--lake", "URL"],
    "check": ["check", "--lake", "URL"],
    "query": ["query", "SELECT 1", "--lake", "URL"],
    "views": ["views", "list", "--lake", "URL"],
    "sweep": ["sweep", "--lake", "URL"],
    "serve": ["serve", "--lake", "URL"],
}


@pytest.fixture(params=_SCHEMAS)
def foreign(request: pytest.FixtureRequest, new_catalog: Callable[..., str]) -> str:
    """The URL of a database with the tables of another program."""
    url = new_catalog(blank=True)
    engine = _engine(url)
    with engine.begin() as connection:
        for statement in _SCHEMAS[request.param]:
            connection.exec_driver_sql(statement)
        if "processes" in sa.inspect(connection).get_table_names():
            connection.exec_driver_sql("INSERT INTO processes VALUES ('p', 'shop')")
    engine.dispose()
    return url


def _engine(url: str) -> sa.Engine:
    """Return an engine of SQLAlchemy alone, as the other program may use it."""
    return sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


def _dump(url: str) -> object:
    engine = _engine(url)
    try:
        if url.startswith("sqlite"):
            file = Path(url.removeprefix("sqlite:///"))
            assert [path.name for path in file.parent.iterdir()] == [file.name]
            return hashlib.sha256(file.read_bytes()).hexdigest(), dump_database(engine)
        return dump_database(engine)
    finally:
        engine.dispose()


def test_foreign_database_is_refused_by_every_function(foreign: str, tmp_path: Path) -> None:
    before = _dump(foreign)
    store = tmp_path / "new" / "store"
    with pytest.raises(ForeignCatalog, match="another program made its tables"):
        init_lake(catalog=foreign, store=f"file://{store}")
    assert not store.parent.exists()
    with pytest.raises(ForeignCatalog):
        open_lake(foreign)
    catalog = connect(foreign)
    with pytest.raises(ForeignCatalog):
        catalog.migrate()
    catalog.close()
    assert _dump(foreign) == before


@pytest.mark.parametrize("foreign", ["a telemetry lake"], indirect=True)
@pytest.mark.parametrize("door", _DOORS)
def test_command_refuses_foreign_database_in_one_line(
    cli: Cli, foreign: str, door: str, tmp_path: Path
) -> None:
    before = _dump(foreign)
    places = {"URL": foreign, "STORE": f"file://{tmp_path / 'store'}"}
    ran = cli(*[places.get(argument, argument) for argument in _DOORS[door]])
    assert (ran.code, ran.out) == (4, "")
    assert "is not a Lakebed catalog: another program made its tables blocks, " in ran.error
    assert len(ran.err.splitlines()) == 1
    assert _dump(foreign) == before


@pytest.mark.parametrize("foreign", ["a telemetry lake"], indirect=True)
def test_doctor_names_foreign_database(foreign: str) -> None:
    before = _dump(foreign)
    failed = [finding for finding in examine(foreign) if finding.status is Status.BAD]
    assert any("is not a Lakebed catalog" in str(finding) for finding in failed), failed
    assert _dump(foreign) == before


def test_database_with_other_tables_only_takes_a_lake(
    new_catalog: Callable[..., str], tmp_path: Path
) -> None:
    """A database may be shared with a program whose tables have other names."""
    url = new_catalog(blank=True)
    engine = _engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (order_id INTEGER)")
    engine.dispose()
    with init_lake(catalog=url, store=f"file://{tmp_path / 'store'}") as lake:
        assert lake.partitions.list_partitions() == []


@pytest.mark.parametrize("url", ["mysql://me:secret@db/lake", "duckdb:///lake.db", "sqlite://x"])
@pytest.mark.parametrize("door", _DOORS)
def test_command_names_unsupported_database(cli: Cli, url: str, door: str) -> None:
    ran = cli(*[{"URL": url, "STORE": "file:///s"}.get(word, word) for word in _DOORS[door]])
    assert ran.code == 2
    scheme = url.split("://")[0]
    assert f"error: {scheme}:// is not a supported kind of catalog" in ran.error
    assert "secret" not in ran.err
