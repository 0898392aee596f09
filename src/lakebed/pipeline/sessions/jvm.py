"""Everything that reaches into private parts of pyspark 4.3, where it offers nothing public.

A JVM that was killed, for example by the kernel for lack of memory: pyspark keeps its gateway until
the process ends and starts no other one, and the server of its counters prints a traceback
(SPARK-48711, SPARK-18523). Used: ``SparkContext._gateway``, ``_jvm``, ``_active_spark_context``,
``_accumulatorServer``; ``SparkSession._instantiatedSession``, ``_activeSession``.

Statements that have ended: Spark keeps the jobs of ``toLocalIterator`` until the context ends; no
upstream issue is known. Used: ``SparkSession._jsparkSession``, ``SparkContext._jsc`` and the
scheduler's ``activeQueryToJobs``.

`tests/pipeline/test_lost_jvm.py` fails if pyspark renames one of them or repairs the first fault.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from lakebed.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LAST_WAIT_SECONDS = 10


def is_dead() -> bool:
    """Return True if this process started a JVM that has ended."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


@contextmanager
def naming_its_end() -> Iterator[None]:
    """Raise `Unavailable` for what fails because the JVM of this process has ended."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        with _silencing_py4j():
            yield
    except Py4JJavaError:  # an answer of Java: it lives
        raise
    except (Py4JError, ConnectionError, EOFError) as error:
        if not _has_ended():
            raise
        raise Unavailable(
            "spark's JVM is gone: something killed it, perhaps the kernel for want of memory",
            hint="what was built stays; the next build starts another and goes on",
        ) from error


@contextmanager
def _silencing_py4j() -> Iterator[None]:
    """Keep py4j 0.10.9 from printing tracebacks of connections that break: it logs them with the
    functions of `logging`, which print to stderr if the root logger has no handler."""
    root, handler = logging.getLogger(), logging.NullHandler()
    if root.hasHandlers():
        yield
        return
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


def _has_ended() -> bool:
    """Return True if a JVM of this process has ended or is about to: connections break first."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LAST_WAIT_SECONDS)
    return is_dead()


@contextmanager
def logging_no_errors() -> Iterator[None]:
    """Keep Spark from logging what it raises, with its stack: the caller reports it."""
    from pyspark.logger import PySparkLogger

    loggers = [
        PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")
    ]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled


def take_its_end_quietly(session: SparkSession) -> None:
    """Keep pyspark from printing a traceback when the JVM of a classic session ends while it
    receives the JVM's counters."""
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is None:
        return
    complain = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            complain(request, address)

    server.handle_error = handle_error


def forget_if_dead() -> None:
    """Let pyspark start another JVM if its own has ended."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if not is_dead():
        return
    if SparkContext._gateway is not None:
        SparkContext._gateway.close()
    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def stop(session: SparkSession) -> None:
    """Stop a classic session. Its JVM may have ended, or may be ending, as when a terminal or a
    supervisor ends all processes of a group."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    if is_dead():
        return
    try:
        session.stop()
    except (Py4JError, OSError, EOFError):
        process = getattr(SparkContext._gateway, "proc", None)
        if process is None:
            raise
        try:
            process.wait(_LAST_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cancel_jobs(session: SparkSession) -> None:
    """Cancel the jobs of a classic session; nothing happens if its JVM has ended."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        session.sparkContext.cancelAllJobs()


def forget_jobs(session: SparkSession) -> None:
    """Let a JVM forget the jobs of a classic session that runs nothing any more.

    Spark 4.3 lists the jobs of each running statement, with all that their plans hold, and drops
    the list when the statement ends. Jobs that fetch a result partition by partition come after
    that: they are listed again, and stay until the context ends.
    """
    from py4j.protocol import Py4JError

    try:
        tag = session._jsparkSession.sessionJobTag()
        scheduler = session.sparkContext._jsc.sc().dagScheduler()
        for entry in _items(scheduler.activeQueryToJobs().entrySet()):
            jobs = _items(entry.getValue())
            tags = [job.properties().getProperty("spark.job.tags") for job in jobs]
            if any(tag in (job_tags or "").split(",") for job_tags in tags):
                scheduler.cleanupQueryJobs(entry.getKey())
    except (Py4JError, OSError):  # another Spark, without such a list; or no JVM any more
        return


def silence(session: SparkSession) -> None:
    """Let the JVM of a classic session print nothing from now on, because it is about to end."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):  # it may be gone already
        session.sparkContext.setLogLevel("OFF")


def _items(collection: Any) -> list[Any]:
    """Return the items of a Java collection. Its iterator would end in an exception, which costs
    pyspark tens of calls to translate."""
    array = collection.toArray()
    return [array[index] for index in range(len(array))]
