"""Executors: what is sent to them, and the check of their environment before a build begins.
Only the driver talks to the catalog, so its address is never sent.
"""

from __future__ import annotations

import atexit
import importlib
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from lakebed.errors import BadInput, LakebedError, Unavailable, UnknownObject
from lakebed.logs import find_stderr_level, print_to_stderr
from lakebed.pipeline.sessions.session import is_remote, runs_this_python
from lakebed.storage import layout
from lakebed.storage.objects import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLACE = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION")
_SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_MODULES = (
    "msgspec",
    "pydantic",
    "google.protobuf",
    "opentelemetry.proto.collector.logs.v1.logs_service_pb2",
    "pyarrow.parquet",
    "lakebed.pipeline.tasks",
    "lakebed.reading.block_reader",
)
_MODULES_FOR_S3 = ("obstore", "lakebed.storage.s3")
"""The modules that a task of a build imports."""
_MISSING_MODULE = re.compile(r"No module named '([\w.]+)'|(PyArrow) >= [\d.]+ must be installed")
_OTHER_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\] ([^\n]*?)\.")
_PROBE_SECONDS = 20
_INSTALL = (
    "install lakebed with the extra spark on every node, or give spark an environment that has it, "
    "with spark.archives and PYSPARK_PYTHON"
)
_CHECKED: WeakKeyDictionary[SparkSession, set[StoreAddress]] = WeakKeyDictionary()
"""The stores that a session's executors could reach when they were checked."""
_SENT: WeakKeyDictionary[SparkSession, Path | None] = WeakKeyDictionary()
"""The archive that was sent to a session's executors; None if they need none."""


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A store as tasks receive it.

    A local store is the same absolute folder on every machine. For a bucket, endpoint and region
    go with the address; credentials are the executors' own, unless the caller passes the driver's.
    """

    url: str
    environment: tuple[tuple[str, str], ...] = ()
    log: str = ""
    """The level from which on tasks print log records on their stderr, as the driver does."""

    @classmethod
    def of(cls, store: Store, *, pass_credentials: bool = False) -> StoreAddress:
        """Return the address of an open store, as this process reaches it."""
        if not store.url.startswith("s3://"):
            return cls(store.url, log=find_stderr_level())
        names = _PLACE + (_SECRETS if pass_credentials else ())
        variables = tuple((name, os.environ[name]) for name in names if os.environ.get(name))
        return cls(store.url, variables, find_stderr_level())

    def open(self, *, retry_seconds: float | None = None) -> Store:
        """Return the store, and print log records from now on if the driver does. The process's
        environment is left as it was."""
        if self.log:
            print_to_stderr(self.log)
        with _environment(dict(self.environment)):
            return open_store(self.url, of_lake=True, retry_seconds=retry_seconds)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def ship(session: SparkSession, *, always: bool = False) -> bool:
    """Give a cluster's executors this version of lakebed, unless they have it.

    Return True if it was sent. Executors of a local master run this Python. The dependencies of
    lakebed must be installed on executors; `require_executors` checks that.
    """
    if session in _SENT and not always:
        return _SENT[session] is not None
    if not always and (_runs_here(session) or _has_this_version(session)):
        _SENT[session] = None
        return False
    folder = tempfile.mkdtemp(prefix="lakebed-")  # executors fetch the file whenever they start
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = Path(folder) / f"lakebed-{_version()}.zip"
    _zip_package(archive)
    session.addArtifacts(str(archive), pyfile=True)
    _SENT[session] = archive
    return True


def ship_beside(session: SparkSession, own: SparkSession) -> None:
    """Send the executors of a new session the archive of the session beside it: over Connect
    each session has its own."""
    if session not in _SENT:
        return
    archive = _SENT[own] = _SENT[session]
    if archive is not None and is_remote(own):
        own.addArtifacts(str(archive), pyfile=True)


def _runs_here(session: SparkSession) -> bool:
    local = str(session.conf.get("spark.master", "")).startswith("local")
    return local and runs_this_python(session)


def _has_this_version(session: SparkSession) -> bool:
    """Ask as many tasks as there are cores for their version; an executor that got no task may
    still differ."""
    version = _version()

    def look(batches: Iterator[Any]) -> Iterator[Any]:  # sent by value: it must not need lakebed
        import importlib

        import pyarrow as pa

        try:
            has = importlib.import_module("lakebed").__version__ == version
        except ImportError:
            has = False
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"has": [has] * batch.num_rows})

    return all(answer[0] for answer in _ask_executors(session, look, "has boolean"))


def require_executors(session: SparkSession, address: StoreAddress) -> None:
    """Raise if executors cannot import what tasks need or cannot read the store.

    `BadInput` names the module, `Unavailable` the reason of the store. Each session is checked once
    for each store. Executors of a local master run this Python in this environment, and are not
    asked.
    """
    checked = _CHECKED.setdefault(session, set())
    if address in checked or _runs_here(session):
        return
    url, environment = address.url, address.environment
    modules = _MODULES + (_MODULES_FOR_S3 if url.startswith("s3://") else ())

    def look(batches: Iterator[Any]) -> Iterator[Any]:  # sent by value, as in _has_this_version
        import importlib
        import socket

        import pyarrow as pa

        module, problem, hint = "", "", ""
        try:
            for name in modules:
                importlib.import_module(name)
        except ImportError as error:
            module = error.name or str(error)
        else:
            executors = importlib.import_module("lakebed.pipeline.sessions.executors")
            problem, hint = executors.find_store_problem(url, environment) or ("", "")
        answer = {"host": socket.gethostname(), "module": module, "problem": problem, "hint": hint}
        for batch in batches:
            yield pa.RecordBatch.from_pylist([answer] * batch.num_rows)

    kind = "host string, module string, problem string, hint string"
    for answer in _ask_executors(session, look, kind):
        if answer["module"]:
            raise _missing_module(answer["module"], answer["host"])
        if answer["problem"]:
            raise Unavailable(
                f"spark's executors cannot use the store, as on {answer['host']}: "
                f"{answer['problem']}",
                hint=answer["hint"] or None,
            )
    checked.add(address)


def find_store_problem(
    url: str, environment: tuple[tuple[str, str], ...]
) -> tuple[str, str] | None:
    """Return why this process cannot read a lake's store and what to do; None if it can."""
    try:
        StoreAddress(url, environment).open(retry_seconds=_PROBE_SECONDS).size(layout.MARK)
    except UnknownObject:
        return f"{url} has no {layout.MARK} there", "check where the store is mounted"
    except LakebedError as error:
        if url.startswith("s3://"):
            passing = "let the driver pass its own with --pass-credentials (pass_credentials=True)"
            return str(error), f"give executors credentials, AWS_REGION and network; or {passing}"
        return str(error), "a store on disk must be the same folder on every machine"
    return None


def _ask_executors(session: SparkSession, look: Any, kind: str) -> list[Any]:
    """Run a task for each core; raise what its failure says about the executors."""
    from pyspark.errors import PySparkException

    tasks = max(2, int(str(session.conf.get("spark.default.parallelism", "8"))))
    try:
        return list(session.range(0, tasks, 1, tasks).mapInArrow(look, kind).collect())
    except PySparkException as error:
        if missing := _MISSING_MODULE.search(str(error)):
            raise _missing_module(missing[1] or missing[2].lower()) from error
        if other := _OTHER_PYTHON.search(str(error)):
            raise BadInput(
                f"spark's executors run another Python: {other[1]}",
                hint="set PYSPARK_PYTHON to the same minor version on every node",
            ) from error
        raise


def _missing_module(name: str, host: str | None = None) -> BadInput:
    where = f", as on {host}" if host else ""
    return BadInput(f"spark's executors lack the module {name}{where}", hint=_INSTALL)


def _version() -> str:
    return str(importlib.import_module("lakebed").__version__)


def _zip_package(archive: Path) -> None:
    root = Path(__file__).parents[2]
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for file in sorted(root.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                target.write(file, Path("lakebed") / file.relative_to(root))
