"""Shared parts of the tests: real catalogs on SQLite and PostgreSQL, real stores, small data.

One PostgreSQL serves the whole run; every test gets a database of its own in it. With
LAKEBED_TEST_STRICT set, as in CI, a missing PostgreSQL, S3 or Chromium fails; without, its tests
are skipped.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from lakebed.catalog.catalog import Catalog
from lakebed.lake import Lake
from lakebed.opening import init_lake
from tests.parts import servers
from tests.parts.compiling import share_compiled_statements
from tests.parts.freezing import Freezer, freezing_postgres
from tests.parts.schedule import pytest_xdist_make_scheduler  # noqa: F401
from tests.parts.spark import spark  # noqa: F401

CAMPAIGN = bool(os.environ.get("LAKEBED_CAMPAIGN"))

SQLITE_FIRST = ["sqlite", pytest.param("postgresql", marks=pytest.mark.campaign)]
"""For tests of what no catalog has a part in; the campaign leaves nothing out."""

settings.register_profile(
    "default",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("default")

share_compiled_statements()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Temporary folders are in memory, if there is enough: no test cuts the power, and syncing is
    a third of what they take on a disk."""
    if config.option.basetemp is None and not hasattr(config, "workerinput"):
        config.option.basetemp = tempfile.mkdtemp(prefix="lakebed-", dir=servers.quick_folder())
        config.add_cleanup(lambda: shutil.rmtree(config.option.basetemp, ignore_errors=True))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if CAMPAIGN:
        return
    skip = pytest.mark.skip(reason="a campaign; run it with: make campaign")
    for item in items:
        if "campaign" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A server that everybody shares: yours, or one from a wheel, started once per run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with servers.postgres(servers.quick_folder() / f"lakebed-postgres-{run}") as url:
        yield url


@pytest.fixture(scope="session")
def migrated_postgres(postgres_url: str) -> str:
    """The name of a migrated database, of which tests make copies: quicker than migrating each."""
    url = servers.new_database(postgres_url)
    _migrate(url)
    return url.split("?")[0].rsplit("/", 1)[1]


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated catalog file, of which tests make copies."""
    file = tmp_path_factory.mktemp("template") / "catalog.sqlite3"
    file.touch()
    _migrate(f"sqlite:///{file}")
    return file


def _migrate(url: str) -> None:
    catalog = Catalog(url, actor="test")
    catalog.migrate()
    with catalog.engine.connect() as connection:
        if catalog.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    catalog.close()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """A real S3 server in this process."""
    with servers.s3() as endpoint:
        yield endpoint


@pytest.fixture
def s3_bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty bucket, with the environment that an S3 user sets."""
    for name, value in servers.s3_environment(s3_endpoint).items():
        monkeypatch.setenv(name, value)
    return servers.new_bucket(s3_endpoint)


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    """Every test that uses it, directly or not, runs on both catalogs."""
    return str(request.param)


@pytest.fixture
def new_catalog(dialect: str, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Makes databases, each the copy of a migrated one or (``blank``) an empty one; their URLs."""

    def make(*, blank: bool = False) -> str:
        if dialect == "postgresql":
            server = request.getfixturevalue("postgres_url")
            template = "template0" if blank else request.getfixturevalue("migrated_postgres")
            url = servers.new_database(server, template)
            request.addfinalizer(lambda: servers.drop_database(url))
            return url
        file = Path(tempfile.mkdtemp(dir=tmp_path)) / "catalog.sqlite3"
        if blank:
            file.touch()
        else:
            shutil.copyfile(request.getfixturevalue("migrated_sqlite"), file)
        return f"sqlite:///{file}"

    return make


@pytest.fixture
def freezer(postgres_url: str, migrated_postgres: str) -> Iterator[Freezer]:
    """A migrated database on a PostgreSQL that can be frozen."""
    url = servers.new_database(postgres_url, migrated_postgres)
    with freezing_postgres(url) as freezer:
        yield freezer
    servers.drop_database(url)


@pytest.fixture
def catalog(new_catalog: Callable[..., str]) -> Iterator[Catalog]:
    """A migrated catalog that is no lake."""
    catalog = Catalog(new_catalog(), actor="test")
    yield catalog
    catalog.close()


@pytest.fixture
def new_lake(new_catalog: Callable[..., str], tmp_path: Path) -> Iterator[NewLake]:
    """Makes lakes, each in a place of its own, and closes them."""
    with contextlib.ExitStack() as lakes:

        def make(store: str | None = None, **options: Any) -> Lake:
            url = new_catalog()
            if store is None and not url.startswith("sqlite"):
                store = f"file://{tempfile.mkdtemp(dir=tmp_path)}"
            return lakes.enter_context(init_lake(catalog=url, store=store, **options))

        yield make


NewLake = Callable[..., Lake]


@pytest.fixture
def lake(new_lake: NewLake) -> Lake:
    """An empty lake."""
    return new_lake()
