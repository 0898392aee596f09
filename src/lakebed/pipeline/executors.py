"""What executors are told: where the store is, and how they come by this package. They are never
told where the catalog is; only the driver talks to it.
"""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from lakebed.logs import find_stderr_level, print_to_stderr
from lakebed.pipeline.session import is_remote
from lakebed.storage.objects import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLACE = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION")
_SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_SENT: WeakKeyDictionary[SparkSession, Path | None] = WeakKeyDictionary()
"""The archive that a session's executors were given; None if they need none."""


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A store as tasks receive it.

    A local store is the same absolute folder on every machine. For a bucket, endpoint and region
    go with the address; credentials are the executors' own, unless the caller passes the driver's.
    """

    url: str
    environment: tuple[tuple[str, str], ...] = ()
    log: str = ""
    """From which level on tasks print log records on their stderr, as the driver does."""

    @classmethod
    def of(cls, store: Store, *, pass_credentials: bool = False) -> StoreAddress:
        """The address of an open store, as this process reaches it."""
        if not store.url.startswith("s3://"):
            return cls(store.url, log=find_stderr_level())
        names = _PLACE + (_SECRETS if pass_credentials else ())
        known = tuple((name, os.environ[name]) for name in names if os.environ.get(name))
        return cls(store.url, known, find_stderr_level())

    def open(self) -> Store:
        """Return the store, and print log records from now on if the driver does. The process's
        environment is left as it was."""
        if self.log:
            print_to_stderr(self.log)
        with _environment(dict(self.environment)):
            return open_store(self.url, of_lake=True)


@contextmanager
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def ship(session: SparkSession, *, always: bool = False) -> bool:
    """Give a cluster's executors this version of lakebed, unless they have it; whether it was sent.

    Executors of a local master run this Python. What lakebed depends on must be installed on them:
    pyarrow always, obstore for buckets, and what decodes OTLP for building from blocks.
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
    """Give the executors of a new session what those of the one that it stands beside were given:
    over Connect each session has its own."""
    if session not in _SENT:
        return
    archive = _SENT[own] = _SENT[session]
    if archive is not None and is_remote(own):
        own.addArtifacts(str(archive), pyfile=True)


def _runs_here(session: SparkSession) -> bool:
    return str(session.conf.get("spark.master", "")).startswith("local")


def _has_this_version(session: SparkSession) -> bool:
    """Asks as many tasks as there are cores; an executor that was not asked may still differ."""
    wanted = _version()

    def look(batches: Iterator[Any]) -> Iterator[Any]:  # sent by value: it must not need lakebed
        import importlib

        import pyarrow as pa

        try:
            has = importlib.import_module("lakebed").__version__ == wanted
        except ImportError:
            has = False
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"has": [has] * batch.num_rows})

    tasks = max(2, int(str(session.conf.get("spark.default.parallelism", "8"))))
    answers = session.range(0, tasks, 1, tasks).mapInArrow(look, "has boolean").collect()
    return all(answer[0] for answer in answers)


def _version() -> str:
    return str(importlib.import_module("lakebed").__version__)


def _zip_package(archive: Path) -> None:
    root = Path(__file__).parents[1]
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for file in sorted(root.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                target.write(file, Path("lakebed") / file.relative_to(root))
