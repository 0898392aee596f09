"""The Spark session that the pipeline runs on: local by default, any master, or Spark Connect.

    spark = open_session()                              # this machine, all cores
    spark = open_session(cores=2, quick=True)           # for one-shot commands and tests
    spark = open_session(master="spark://host:7077")    # a cluster
    spark = open_session(remote="sc://host:15002")      # Spark Connect; needs no Java here
    spark = open_session(remote="local[2]")             # a Connect server in this process

    with use_session(session) as spark: ...             # the caller's, or (None) one of our own

A session that the caller passes is neither configured nor stopped. Everything above this module
uses only what classic Spark and Spark Connect have in common: no RDDs, no ``_jvm``.

The JVM inherits this process's environment, so this module reads it, and changes it while a JVM is
started; see docs/decisions/0009-spark-session.md for what the settings are worth.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.errors import BadInput, Unavailable
from lakebed.extras import missing_extra, require_extra
from lakebed.model.arguments import checked
from lakebed.pipeline.sessions import jvm
from lakebed.pipeline.sessions.archive import Archive
from lakebed.pipeline.sessions.java import Java, cache_folder, find_java, make_wrapper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_FAILURES = 4
"""The number of times that a task may fail before its job does: Spark's default, but not for
local masters.
"""

_LOG4J = Path(__file__).with_name("log4j2.properties")
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
_RUNTIME = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


@checked
def open_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    app: str = "lakebed",
    cores: int | None = None,
    quick: bool = False,
    archive: bool = True,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a session, or return the one that this process has if nothing else is asked for.

    ``cores`` limits a local session; ``quick`` compiles less: it starts sooner, and long queries
    take several times as long; ``archive`` uses (and, the first time, makes) the archive of
    Spark's classes; ``settings`` are Spark's own and win over these. `BadInput` without pyspark or
    Java, or if another session runs in this process.
    """
    require_spark(remote=remote is not None)
    if master is not None and remote is not None:
        raise BadInput(
            "a session has a master or is remote, not both", hint="leave one of them out"
        )
    active = _find_active()
    if active is not None:
        if master is None and remote is None and settings is None:
            return active
        raise BadInput(
            "a spark session runs in this process already",
            hint="pass that one, or stop it before you open another",
        )
    own_settings = dict(settings or {})
    if remote is not None and not remote.startswith("local"):
        return _start(app, {"spark.remote": remote} | _RUNTIME | own_settings)
    where = _with_retries(remote or master or "local", cores)
    local = where.startswith("local")
    target = {"spark.master" if remote is None else "spark.remote": where}
    with _launching(local=local) as classes:
        java = _java_options(classes if archive else None, local=local, quick=quick)
        own = {name: f"{java[name]} {own_settings.get(name, '')}".strip() for name in java}
        return _start(app, target | _RUNTIME | _launch_options(local=local) | own_settings | own)


@contextmanager
def use_session(
    session: SparkSession | None = None,
    *,
    master: str | None = None,
    remote: str | None = None,
    quick: bool = False,
) -> Iterator[SparkSession]:
    """Yield the caller's session, untouched; or a new one, which is stopped at the end."""
    require_spark(remote=remote is not None)
    session = session or (_find_active() if master is None and remote is None else None)
    if session is not None:
        yield session
        return
    session = open_session(master=master, remote=remote, quick=quick)
    if not is_remote(session):
        jvm.take_its_end_quietly(session)
    try:
        yield session
    finally:
        if sys.is_finalizing():
            pass  # Python takes itself apart, and the JVM ends with it
        elif is_remote(session):
            session.stop()
        else:
            jvm.stop(session)


def own_java() -> Java:
    """Return the Java that a local session of this process runs on; raises as `find_java` does."""
    return find_java(os.environ)


def is_remote(session: SparkSession) -> bool:
    """Return True if a session uses Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def runs_this_python(session: SparkSession) -> bool:
    """Return True if Spark starts this Python for its workers, as far as this process can tell."""
    return _is_this_python(find_worker_python(session))


def find_worker_python(session: SparkSession) -> str:
    """Return the program that Spark starts for its Python workers, as Spark names it."""
    if is_remote(session):
        return str(session.conf.get("spark.pyspark.python", "") or sys.executable)
    return str(session.sparkContext.pythonExec)


def _is_this_python(program: str) -> bool:
    """Compare folders and targets: the Pythons of two environments may be the same program."""
    path = shutil.which(program)
    if path is None:
        return False
    same_folder = os.path.realpath(Path(path).parent) == os.path.realpath(
        Path(sys.executable).parent
    )
    return same_folder and os.path.realpath(path) == os.path.realpath(sys.executable)


def require_spark(*, remote: bool = False) -> None:
    """Raise `MissingExtra` if pyspark, or for Spark Connect what its client needs, is missing."""
    require_extra("connect" if remote else "spark")
    try:
        if remote:
            import pyspark.sql.connect.session
        else:
            import pyspark.sql  # noqa: F401
    except ImportError as error:
        reason = f"it cannot be imported: {str(error).splitlines()[0]}"
        raise missing_extra("connect" if remote else "spark", reason) from error


def _find_active() -> SparkSession | None:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    jvm.forget_if_dead()
    try:
        return SparkSession.active()
    except (PySparkRuntimeError, AttributeError):
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)  # pyspark leaves it behind
        return None


def _with_retries(master: str, cores: int | None) -> str:
    """Return the master with retries: ``local`` and ``local[N]`` fail a job with its first lost
    worker."""
    match = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    if match is None:
        return master
    return f"local[{match[1] or cores or '*'},{TASK_FAILURES}]"


def _java_options(classes: Archive | None, *, local: bool, quick: bool) -> dict[str, str]:
    """Return the JVM options of the driver and of the executors that it starts."""
    common = f'"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"'
    if quick:
        common += " -XX:TieredStopAtLevel=1"
    executor = driver = common
    if classes is not None:
        recording = classes.record()
        if recording is not None:
            atexit.register(_finish, classes, os.getpid())
        driver = f"{common} {recording or classes.use()}"
        executor = f"{common} {classes.use()}"
    both = {_DRIVER_OPTIONS: driver, _EXECUTOR_OPTIONS: executor}
    return both if local else {_DRIVER_OPTIONS: driver}


def _finish(classes: Archive, recorder: int) -> None:
    if os.getpid() == recorder:  # not in a fork of it
        process = classes.finish()
        if process is not None:
            process.returncode = 0  # it outlives us, and Python need not watch it


def _launch_options(*, local: bool) -> dict[str, str]:
    """Return the launch options of a JVM that this process starts."""
    options = {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    }
    if local:
        options |= {
            "spark.ui.enabled": "false",
            # Nobody looks at what Spark keeps of jobs that are done, and a server runs for long.
            "spark.sql.ui.retainedExecutions": "20",
            "spark.ui.retainedJobs": "100",
            "spark.ui.retainedStages": "100",
            "spark.ui.retainedTasks": "2000",
            "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.python.worker.reuse": "true",
            "spark.pyspark.python": sys.executable,
            "spark.pyspark.driver.python": sys.executable,
        }
    return options


@contextmanager
def _launching(*, local: bool) -> Iterator[Archive | None]:
    """Set the environment that the JVM inherits while it is started. Yield its archive."""
    import pyspark

    java = own_java()
    cache = cache_folder(os.environ)
    folder = cache
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="lakebed-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    changes = {
        "JAVA_HOME": str(make_wrapper(java, folder)),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    if local:
        changes |= {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "localhost",
        }
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        own_spark = "SPARK_HOME" not in os.environ
        jars = Path(pyspark.__file__).with_name("jars")
        yield Archive(java, jars, cache) if own_spark and cache is not None else None
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _start(app: str, options: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder().appName(app)
    for name, value in options.items():
        builder = builder.config(name, value)
    try:
        with warnings.catch_warnings():
            # A local Connect server is started with all of these; then pyspark tries to set them
            # on its client as well.
            warnings.filterwarnings("ignore", r"Failed to set spark\.(?!sql\.(?!ui))", UserWarning)
            return builder.getOrCreate()
    except socket.gaierror as error:
        raise Unavailable(
            f"spark does not start: {error.strerror or error}",
            hint="this machine must know the name localhost: add 127.0.0.1 localhost to /etc/hosts",
        ) from error
    except PySparkException as error:
        reason = str(error).splitlines()[0]
        raise Unavailable(
            f"spark does not start: {reason}", hint="see what Java and Spark said above"
        ) from error
