"""The differences between SQLite and PostgreSQL: connecting, beginning transactions, and
translating errors. Queries elsewhere are the same on both.
"""

from __future__ import annotations

import logging
import random
import re
import socket
import sqlite3
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol
from urllib.parse import quote

import sqlalchemy as sa

from lakebed.catalog.connections.trips import LATER, save_round_trips
from lakebed.errors import BadInput, LakebedError, Overlap, ReadOnly, Unavailable
from lakebed.extras import missing_extra

WRITE = "lakebed_write"
"""Execution option: this transaction writes."""

GLANCE = "lakebed_glance"
"""Execution option: each statement is a transaction of its own, where that saves something."""

BINARY = "lakebed_binary"
"""Execution option: much of the result is bytes, which PostgreSQL otherwise sends as hex."""

OVERLAP_TOKEN = "lakebed:overlap"  # noqa: S105
"""The message that the SQLite triggers raise; PostgreSQL's exclusion constraint has its own
SQLSTATE.
"""

_OLDEST = (3, 35, 0)
"""The first SQLite with ``RETURNING``."""
_SAFE_WAL = (3, 51, 3)
_BUSY_SECONDS = 60
_PING_SECONDS = 10
_LOOK_AGAIN = (0.000_3, 0.001)
"""The pauses of a waiting writer between its attempts, in seconds."""
_FILE = "lakebed_file"
_SILENT = logging.NullHandler()
_NETWORK_FILE_SYSTEMS = re.compile(r"nfs\d?|cifs|smb\w*|afs|ceph|glusterfs|lustre|9p|fuse\.\w+")


class Dialect(Protocol):
    """The seam between the catalog and a database."""

    name: str

    def create_engine(self) -> sa.Engine: ...

    def describe(self) -> str:
        """Return the database and its durability mode in words."""
        ...

    def name_database(self) -> str:
        """Return the database's file or URL, without a password."""
        ...

    def may_come_up(self, error: BaseException | None) -> bool:
        """Return True if the database accepts no connections now, but may later. ``error`` is what
        a driver raised instead of connecting."""
        ...

    def translate(self, error: sa.exc.DBAPIError) -> LakebedError | None:
        """Return the domain error for a driver's error, by its code, never by its message; None for
        others."""
        ...


def find_dialect(url: str, *, read_only: bool = False) -> Dialect:
    """The dialect for a catalog's URL; nothing is connected yet."""
    if url.startswith("sqlite:///"):
        return SqliteDialect(Path(url.removeprefix("sqlite:///")), read_only=read_only)
    if url.startswith(("postgresql://", "postgres://")):
        return PostgresDialect(url, read_only=read_only)
    raise BadInput(
        f"{url.split(':')[0]}:// is not a supported kind of catalog",
        hint="use a folder or postgresql://user@host/database; a server is asked at grpc://host:port",
    )


class SqliteDialect:
    """One file. Write-ahead logging where the library is free of the WAL-reset bug (3.51.3 and
    later); otherwise the rollback journal, synced to the directory as well."""

    name = "sqlite"

    def __init__(
        self, path: Path, *, read_only: bool = False, module: ModuleType | None = None
    ) -> None:
        self.path = path
        self.read_only = read_only
        self.module = module or _newest_sqlite()
        if self.module.sqlite_version_info < _OLDEST:
            raise BadInput(
                f"a catalog in a folder needs SQLite {'.'.join(map(str, _OLDEST))} or newer, and "
                f"this Python has {self.module.sqlite_version}",
                hint="use another Python, or a catalog in PostgreSQL: --catalog postgresql://…",
            )
        self.uses_wal = self.module.sqlite_version_info >= _SAFE_WAL

    def describe(self) -> str:
        mode = "WAL, synchronous=FULL" if self.uses_wal else "rollback journal, synchronous=EXTRA"
        return f"SQLite {self.module.sqlite_version} ({mode})"

    def name_database(self) -> str:
        return str(self.path)

    def may_come_up(self, error: BaseException | None) -> bool:
        del error
        return False

    def create_engine(self) -> sa.Engine:
        refuse_network_file_system(self.path.parent, _mounts())
        engine = sa.create_engine(
            "sqlite://",
            module=self.module,
            creator=self._connect,
            poolclass=sa.pool.QueuePool,
            pool_reset_on_return="rollback",
        )
        sa.event.listen(engine, "begin", _begin_sqlite)
        sa.event.listen(engine, "connect", self._remember)
        sa.event.listen(engine, "checkout", self._require_same)
        return engine

    def _remember(self, _connection: object, record: sa.pool.ConnectionPoolEntry) -> None:
        record.info[_FILE] = _identify(self.path)

    def _require_same(
        self, _connection: object, record: sa.pool.ConnectionPoolEntry, _proxy: object
    ) -> None:
        """Raise `DisconnectionError` for a connection whose file was deleted or replaced. Without
        it, writes would go to the old file and be lost; the pool then opens a new connection."""
        if record.info[_FILE] != _identify(self.path):
            raise sa.exc.DisconnectionError

    def _connect(self) -> Any:
        address = f"file:{quote(str(self.path))}?mode={'ro' if self.read_only else 'rw'}"
        if self.read_only and not _may_write(self.path.parent) and not _has_log(self.path):
            address += (
                "&immutable=1"  # read-only media: there is nowhere to put a shared-memory file
            )
        connection = self.module.connect(
            address,
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        connection.execute("PRAGMA foreign_keys = ON")
        if not self.read_only:
            mode, sync = ("WAL", "FULL") if self.uses_wal else ("DELETE", "EXTRA")
            if not _is_foreign(connection):  # the journal mode is written into the file
                connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()
            connection.execute(f"PRAGMA synchronous = {sync}")
            if sys.platform == "darwin":  # fsync there leaves the bytes in the cache of the disk
                connection.execute("PRAGMA fullfsync = ON")
                connection.execute("PRAGMA checkpoint_fullfsync = ON")
            connection.execute("PRAGMA secure_delete = ON")  # what is forgotten is overwritten
        return connection

    def translate(self, error: sa.exc.DBAPIError) -> LakebedError | None:
        original = error.orig
        code = getattr(original, "sqlite_errorcode", None)
        if code is None:
            return None
        primary = code & 0xFF
        if primary == sqlite3.SQLITE_CONSTRAINT and str(original) == OVERLAP_TOKEN:
            return Overlap("another live partition of the same series overlaps the range")
        if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Unavailable(f"the catalog {self.path} stayed locked for {_BUSY_SECONDS} s")
        if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return ReadOnly(
                f"the catalog {self.path} cannot be written", hint="check its permissions and mount"
            )
        if primary == sqlite3.SQLITE_FULL:
            return Unavailable("the disk of the catalog is full", hint="free some space and repeat")
        if primary in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR):
            return Unavailable(f"cannot open or read the catalog {self.path}")
        if primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return Unavailable(f"{self.path} is not a readable SQLite database")
        return None


_NOTICING = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Timeouts that detect within half a minute that a server is gone from the network, instead of
after hours. Parameters in the URL take precedence.
"""

_BOUNDED = f"SELECT set_config('lock_timeout', '{_BUSY_SECONDS}s', true)"
"""A limit on waiting for the lake's clock, for write transactions."""
_ENDED = f"{_BOUNDED}, set_config('transaction_timeout', '300s', true)"
"""From PostgreSQL 17 on, also a limit on holding the clock, for a process that was stopped. It
leaves time for large transactions, such as retiring very many partitions.
"""


class PostgresDialect:
    """A shared server, through psycopg 3."""

    name = "postgresql"

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        try:
            self.url = sa.make_url(url).set(drivername="postgresql+psycopg")
        except sa.exc.ArgumentError:
            raise BadInput(f"cannot read {url!r} as a PostgreSQL URL") from None
        if self.url.port is not None and not 0 < self.url.port < 1 << 16:
            raise BadInput(f"{self.url.port} is not a port", hint="ports are 1 to 65535")
        self.read_only = read_only
        # What it warns of is raised as well; without a listener Python would print it to stderr.
        for name in ("psycopg", "sqlalchemy.pool"):
            logging.getLogger(name).addHandler(_SILENT)

    def describe(self) -> str:
        return f"PostgreSQL {self.name_database()}"

    def name_database(self) -> str:
        return self.url.set(drivername="postgresql").render_as_string(hide_password=True)

    def may_come_up(self, error: BaseException | None) -> bool:
        from psycopg.conninfo import make_conninfo
        from psycopg.errors import ConnectionTimeout
        from psycopg.pq import PGconn, Ping

        if isinstance(error, ConnectionTimeout):
            return True
        _, options = self.url.get_dialect()().create_connect_args(self.url)
        hosts = [host for host in str(options.get("host") or "").split(",") if host]
        if hosts and not any(_may_exist(host) for host in hosts):
            return False
        # Errors of a connection attempt carry no code; libpq tells them apart by this call, during
        # which psycopg 3.3 lets no other thread run.
        address = make_conninfo(**{**options, "connect_timeout": _PING_SECONDS})
        return PGconn.ping(address.encode()) in (Ping.NO_RESPONSE, Ping.REJECT)

    def create_engine(self) -> sa.Engine:
        try:
            import psycopg  # noqa: F401
        except ImportError as error:
            reason = " ".join(str(error).split())
            raise missing_extra("postgres", f"psycopg cannot be imported: {reason}") from None
        from lakebed.catalog.connections.silence import notice_silence

        noticing = {
            name: parameter for name, parameter in _NOTICING.items() if name not in self.url.query
        }
        engine = sa.create_engine(
            self.url,
            pool_size=5,
            max_overflow=20,
            # The driver must not begin transactions: its BEGIN is a round trip of its own.
            connect_args={"autocommit": True, **noticing},
        )
        notice_silence(engine)
        sa.event.listen(engine, "begin", _begin_postgres)
        sa.event.listen(engine, "before_cursor_execute", _choose_format)
        save_round_trips(engine)
        return engine

    def translate(self, error: sa.exc.DBAPIError) -> LakebedError | None:
        code = getattr(error.orig, "sqlstate", None)
        if code == "23P01":  # exclusion_violation
            return Overlap("another live partition of the same series overlaps the range")
        if code == "25006":  # read_only_sql_transaction
            return ReadOnly("the catalog cannot be written", hint="is this a standby server?")
        if code == "55P03":  # lock_not_available
            return Unavailable(f"the catalog stayed locked for {_BUSY_SECONDS} s")
        if code == "25P04":  # transaction_timeout
            return Unavailable("this process stood still while it wrote", hint="repeat it")
        if code is not None and code[:2] == "40":  # serialization failure or deadlock
            return Unavailable("two transactions met in the catalog", hint="repeat the operation")
        if isinstance(error, sa.exc.DataError):
            return BadInput(f"the catalog cannot hold a value: {_first_line(error.orig)}")
        lost = isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError)
        if (code is None and lost) or (code or "")[:2] in ("08", "53", "57", "28", "3D"):
            return Unavailable(
                f"cannot reach the catalog {self.describe()}: {_first_line(error.orig)}",
                hint="check that the server runs and that the URL is right",
            )
        return None


def _choose_format(
    _connection: sa.Connection,
    cursor: Any,
    _statement: str,
    _parameters: Any,
    context: Any,
    _many: bool,
) -> None:
    if context is not None and context.execution_options.get(BINARY):
        from psycopg.pq import Format

        cursor.format = Format.BINARY


def _begin_postgres(connection: sa.Connection) -> None:
    options = connection.get_execution_options()
    if options.get(GLANCE):
        return
    kind = "READ COMMITTED READ WRITE" if options.get(WRITE) else "REPEATABLE READ READ ONLY"
    begin = f"BEGIN ISOLATION LEVEL {kind}"
    connection.exec_driver_sql(begin, execution_options={LATER: True})
    if options.get(WRITE):
        version = connection.dialect.server_version_info or ()
        bounds = _ENDED if version >= (17,) else _BOUNDED
        connection.exec_driver_sql(bounds, execution_options={LATER: True})


def _may_exist(host: str) -> bool:
    """Return False for a host name that no name server knows."""
    if host.startswith(("/", "@")):
        return True  # the folder of a socket
    try:
        socket.getaddrinfo(host, None)
    except (socket.gaierror, UnicodeError) as error:
        return isinstance(error, socket.gaierror) and error.errno != socket.EAI_NONAME
    return True


def _first_line(error: object) -> str:
    return next(iter(str(error).strip().splitlines()), "no reason given")


def _begin_sqlite(connection: sa.Connection) -> None:
    if not connection.get_execution_options().get(WRITE):
        connection.exec_driver_sql("BEGIN")
        return
    driver: Any = connection.connection.driver_connection
    _set_patience(driver, 0)
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    except sa.exc.DBAPIError as error:
        if not _is_busy(error.orig):
            raise
        if not _begin_when_free(driver, time.monotonic() + _BUSY_SECONDS):
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # so that SQLAlchemy sees the error
    finally:
        _set_patience(driver, _BUSY_SECONDS)


def _set_patience(driver: Any, seconds: int) -> None:
    with suppress(_newest_sqlite().ProgrammingError):  # broken; its next statement raises
        driver.execute(f"PRAGMA busy_timeout = {1000 * seconds}")


def _begin_when_free(driver: Any, deadline: float) -> bool:
    """Begin as soon as no other writer is active. Return False at the time limit. SQLite's own busy
    handler sleeps for up to 100 ms at a time, in which other processes write many times."""
    while True:
        time.sleep(random.uniform(*_LOOK_AGAIN))  # noqa: S311
        try:
            driver.execute("BEGIN IMMEDIATE")
        except _newest_sqlite().OperationalError as error:
            if not _is_busy(error) or time.monotonic() > deadline:
                return False
        else:
            return True


def _is_busy(error: BaseException | None) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _is_foreign(connection: Any) -> bool:
    """Return True for a database with tables of another program only."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    return bool(tables) and not {"alembic_version", "lakehouse_partitions"} <= tables


def _identify(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of the file at a path, or None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _newest_sqlite() -> ModuleType:
    """The SQLite that pysqlite3 brings, or Python's own if there is no wheel or it is newer."""
    try:
        from pysqlite3 import dbapi2
    except ImportError:
        return sqlite3
    brought: ModuleType = dbapi2
    return max(brought, sqlite3, key=lambda module: module.sqlite_version_info)


def _mounts() -> str:
    table = Path("/proc/self/mounts")
    return table.read_text() if table.exists() else ""


def refuse_network_file_system(folder: Path, mounts: str) -> None:
    """SQLite's locks do not hold across hosts; ``mounts`` is the text of /proc/self/mounts."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].encode().decode("unicode_escape")
        if folder.resolve().is_relative_to(point) and len(point) >= len(best):
            best, kind = point, fields[2]
    if _NETWORK_FILE_SYSTEMS.fullmatch(kind):
        raise BadInput(
            f"{folder} is on a network file system ({kind}), where SQLite's locks do not hold",
            hint="put the catalog on a local disk, or use --catalog postgresql://…",
        )


def _may_write(folder: Path) -> bool:
    import os

    return os.access(folder, os.W_OK)


def _has_log(path: Path) -> bool:
    return path.with_name(path.name + "-wal").exists()
