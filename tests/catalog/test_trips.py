"""Statements that travel together: few round trips, and errors that arrive as if each had gone
alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lakebed.catalog.catalog import Catalog
from lakebed.catalog.lookups import partition_search
from lakebed.catalog.records import files
from lakebed.catalog.records.files import TemporaryFile
from lakebed.errors import Overlap, Unavailable
from lakebed.model.partition import FileState
from tests.conftest import NewLake
from tests.parts.data import HOUR, T0, publish_hour, readings, rows

ASIDE = TemporaryFile("aside", 1, FileState.QUARANTINED)


def _kept(catalog: Catalog) -> list[TemporaryFile]:
    with catalog.read() as connection:
        return files.list_files(connection)


def test_a_publish_takes_five_round_trips(new_lake: NewLake, dialect: str, tmp_path: Path) -> None:
    if dialect == "sqlite":
        return  # there is no server
    lake = new_lake()
    lake.views.register(readings())
    for hour in range(10):  # until names are reserved and statements prepared
        publish_hour(lake, hour)
    drivers: list[Any] = []
    with (tmp_path / "messages").open("w") as messages:

        def trace(driver: Any, *_rest: Any) -> None:
            drivers.append(driver)
            driver.pgconn.trace(messages.fileno())

        sa.event.listen(lake.catalog.engine, "checkout", trace)
        lake.partitions.publish(readings(), T0 - HOUR, T0, rows(3))
        sa.event.remove(lake.catalog.engine, "checkout", trace)
        for driver in drivers:
            driver.pgconn.untrace()
        answers = (tmp_path / "messages").read_text().count("ReadyForQuery")
    # The check before writing; BEGIN and the tick; the check; all that is written; COMMIT.
    assert answers == 5


def test_an_error_of_a_statement_that_nobody_waits_for_is_no_unknown_outcome(
    catalog: Catalog,
) -> None:
    with pytest.raises(sa.exc.IntegrityError), catalog.write() as transaction:
        files.insert_many(transaction.connection, [ASIDE])
        files.insert_many(transaction.connection, [ASIDE])
    assert _kept(catalog) == []
    with catalog.write() as transaction:
        files.insert_many(transaction.connection, [ASIDE])
    assert _kept(catalog) == [ASIDE]


def test_an_overlap_is_told_even_if_nothing_follows_it(new_lake: NewLake) -> None:
    lake = new_lake()
    lake.views.register(readings())
    publish_hour(lake, 0, 0)
    with pytest.raises(Overlap):
        publish_hour(lake, 0, 0)
    publish_hour(lake, 1, 0)


def test_an_error_of_our_own_comes_before_those_under_way(catalog: Catalog, dialect: str) -> None:
    if dialect == "sqlite":
        return  # nothing is ever under way
    with pytest.raises(RuntimeError, match="ours"), catalog.write() as transaction:
        files.insert_many(transaction.connection, [ASIDE])
        files.insert_many(transaction.connection, [ASIDE])
        raise RuntimeError("ours")
    assert _kept(catalog) == []


def test_a_snapshot_may_begin_with_rows_that_are_streamed(catalog: Catalog) -> None:
    with catalog.read() as connection:
        assert list(partition_search.list_pages(connection)) == []
        assert list(partition_search.list_pages(connection)) == []
        assert files.list_files(connection) == []


def test_a_connection_that_ends_with_statements_under_way_is_survived(
    catalog: Catalog, dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    if dialect == "sqlite":
        return  # there is no server
    with pytest.raises(Unavailable), catalog.write() as transaction:
        files.insert_many(transaction.connection, [ASIDE])
        with catalog.engine.connect() as other:
            other.exec_driver_sql(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
    assert caplog.records == []
    with catalog.write() as transaction:
        files.insert_many(transaction.connection, [ASIDE])
    assert _kept(catalog) == [ASIDE]
