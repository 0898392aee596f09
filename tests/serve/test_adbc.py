"""The ADBC driver for FlightSQL, as it comes from its wheel: statements, parameters, what there is,
records into tables, and errors.
"""

from __future__ import annotations

import threading
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions

from lakebed.access.keys import Role
from lakebed.lake import Lake
from tests.parts.building import land
from tests.query.test_engine import ENDLESS
from tests.query.test_result import wait_until
from tests.serve.parts import Served, serving


def connect(served: Served, key: str | None = None, **headers: str) -> adbc.Connection:
    options = {} if key is None else {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {key}"}
    for name, value in headers.items():
        options[f"{DatabaseOptions.RPC_CALL_HEADER_PREFIX.value}{name}"] = value
    return adbc.connect(served.flight, options, autocommit=True)


def test_statements_and_parameters(lake: Lake) -> None:
    land(lake, requests=3)
    with serving(lake) as served, connect(served) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) AS n FROM log_entries")
        assert cursor.fetchone() == (60,)
        cursor.execute("SELECT ? AS a, ? AS b, ? AS c", ("it's", 7, None))
        assert cursor.fetchall() == [("it's", 7, None)]
        cursor.execute("SELECT msg, time FROM log_entries ORDER BY time LIMIT 5")
        assert cursor.fetch_arrow_table().num_rows == 5
        cursor.execute("SELECT msg FROM log_entries WHERE false")
        assert cursor.fetchall() == []


@pytest.mark.parametrize("keep", [True, False])
def test_rows_come_with_the_types_that_were_announced(lake: Lake, keep: bool) -> None:
    """The driver compares what describes a statement with what its rows are."""
    land(lake, requests=1)
    word = pa.dictionary(pa.int32(), pa.string()) if keep else pa.string()
    sql = "SELECT arrow_cast(msg, 'Dictionary(Int32, Utf8)') AS word FROM log_entries"
    with (
        serving(lake) as served,
        connect(served, preserve_dictionary=str(keep).lower()) as connection,
        connection.cursor() as cursor,
    ):
        for where, parameters, rows in (
            ("", None, 20),
            (" WHERE false", None, 0),
            (" WHERE ? = 7", (7,), 20),
        ):
            cursor.execute(sql + where, parameters)
            found = cursor.fetch_arrow_table()
            assert (found.schema.field("word").type, found.num_rows) == (word, rows)
        assert cursor.adbc_prepare(sql) is None
        assert cursor.adbc_execute_schema(sql).field("word").type == word


def test_what_there_is(lake: Lake) -> None:
    lake.tables.create_database("home")
    lake.tables.create_table("home", "rings", {"time": "datetime", "bpm": "int"})
    with serving(lake) as served, connect(served) as connection:
        info = connection.adbc_get_info()
        assert info["vendor_name"] == "Lakebed"
        found = connection.adbc_get_objects(depth="all").read_all().to_pylist()
        (catalog,) = found
        assert catalog["catalog_name"] == "lake"
        tables = {
            (schema["db_schema_name"], table["table_name"]): table
            for schema in catalog["catalog_db_schemas"]
            for table in schema["db_schema_tables"]
        }
        assert ("public", "log_entries") in tables
        columns = tables["home", "rings"]["table_columns"]
        assert [each["column_name"] for each in columns] == ["time", "bpm", "partition_date"]
        assert connection.adbc_get_table_types() == ["TABLE"]
        schema = connection.adbc_get_table_schema("rings", db_schema_filter="home")
        assert schema.field("bpm").type == pa.int64()


def test_records_are_ingested(lake: Lake) -> None:
    lake.tables.create_database("home")
    table = lake.tables.create_table("home", "rings", {"time": "datetime", "bpm": "int"})
    rows = pa.table({"time": ["2026-01-01T00:00:00Z"] * 3, "bpm": [60, 61, None]})
    with serving(lake) as served, connect(served) as connection:

        def ingest(name: str = "rings", **options: Any) -> int:
            with connection.cursor() as cursor:  # which remembers what it was told
                return int(cursor.adbc_ingest(name, rows, db_schema_name="home", **options))

        assert ingest(mode="append") == 3
        for options, words in (
            ({"mode": "create"}, 'mode="append"'),
            ({"mode": "replace"}, "a table is not replaced by ingestion"),
            ({"mode": "append", "catalog_name": "bogus"}, "there is no catalog bogus"),
            ({"name": "nothing", "mode": "create"}, "there is no table 'nothing' in database home"),
        ):
            with pytest.raises(adbc.Error, match=words):
                ingest(**options)
        with connection.cursor() as cursor, pytest.raises(adbc.Error, match="no temporary tables"):
            cursor.adbc_ingest("rings", rows, mode="append", temporary=True)
        done = ingest(mode="create_append", catalog_name="lake")
    assert (done, table.count()) == (3, 6)


def test_errors_are_clear(lake: Lake) -> None:
    secret = lake.keys.create("reader", [Role.READ]).secret
    with serving(lake) as served:
        with connect(served, secret) as connection, connection.cursor() as cursor:
            with pytest.raises(adbc.ProgrammingError, match=r"line 1, column 1") as refused:
                cursor.execute("SELEC 1")
            assert "Traceback" not in str(refused.value)
            cursor.execute("SELECT 1")
            assert cursor.fetchone() == (1,)
        with (
            connect(served) as connection,
            connection.cursor() as cursor,
            pytest.raises(adbc.Error, match="key"),
        ):
            cursor.execute("SELECT 1")


@pytest.mark.parametrize("with_keys", [True, False])
def test_user_name_and_password_of_the_driver_open_a_connection(
    lake: Lake, with_keys: bool
) -> None:
    secret = lake.keys.create("reader", [Role.READ]).secret if with_keys else "anything"
    with serving(lake) as served:
        for user in ("a", "bo", "eve"):  # base64 with and without padding
            options = {"username": user, "password": secret}
            with (
                adbc.connect(served.flight, options, autocommit=True) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute("SELECT 1")
                assert cursor.fetchone() == (1,)
        if with_keys:
            with pytest.raises(adbc.Error, match="not known"):
                adbc.connect(served.flight, options | {"password": "wrong"}, autocommit=True)


def test_cancelling_stops_the_statement_on_the_server(lake: Lake) -> None:
    raised: list[Exception] = []
    with serving(lake) as served, connect(served) as connection, connection.cursor() as cursor:
        cursor.execute(ENDLESS)

        def fetch() -> None:
            try:
                cursor.fetchall()
            except adbc.Error as error:
                raised.append(error)

        reader = threading.Thread(target=fetch)
        reader.start()
        wait_until(lambda: bool(lake.leases._pins))
        cursor.adbc_cancel()
        reader.join(300)
        assert not reader.is_alive()
        assert [type(each).__name__ for each in raised] == ["OperationalError"]
        wait_until(lambda: not lake.leases._pins)
        with connection.cursor() as other:
            other.execute("SELECT 1")
            assert other.fetchone() == (1,)
