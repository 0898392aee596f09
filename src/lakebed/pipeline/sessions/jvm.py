"""What pyspark and Spark are made to forget. A JVM that was killed, by the kernel for want of
memory or by somebody: pyspark keeps what it knows of its JVM for as long as the process lives, and
can start no other. And statements that have ended: Spark keeps the jobs of some.
"""

from __future__ import annotations

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
    """Whether this process started a JVM that is gone."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


@contextmanager
def naming_its_end() -> Iterator[None]:
    """What fails because a JVM of ours is gone, as `Unavailable`; anything else as it is."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
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


def _has_ended() -> bool:
    """Whether a JVM of this process is gone, or about to: its connections break before it ends."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LAST_WAIT_SECONDS)
    return is_dead()


@contextmanager
def logging_no_errors() -> Iterator[None]:
    """Spark logs what it raises, with its stack; here it is said by whoever catches it."""
    from pyspark.logger import PySparkLogger

    loggers = [
        PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")
    ]
    before = [each.disabled for each in loggers]
    for each in loggers:
        each.disabled = True
    try:
        yield
    finally:
        for each, was in zip(loggers, before, strict=True):
            each.disabled = was


def take_its_end_quietly(session: SparkSession) -> None:
    """Let pyspark print no trace when a classic session's JVM, whose counters it receives, goes
    away in the middle."""
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is None:
        return
    complain = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            complain(request, address)

    server.handle_error = handle_error


def forget_if_dead() -> None:
    """Let pyspark begin anew if its JVM is gone."""
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
    """Stop a classic session. Its JVM may be gone, or about to go by somebody else's hand, as when
    a terminal or a supervisor ends all processes of a group."""
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
    """End what a classic session does. A JVM that is gone does nothing."""
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
            if any(tag in (each or "").split(",") for each in tags):
                scheduler.cleanupQueryJobs(entry.getKey())
    except (Py4JError, OSError):  # another Spark, without such a list; or no JVM any more
        return


def silence(session: SparkSession) -> None:
    """Let a classic session's JVM print nothing from now on, because it is about to end."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):  # it may be gone already
        session.sparkContext.setLogLevel("OFF")


def _items(collection: Any) -> list[Any]:
    """What is in a collection of Java. Its iterator ends in an exception, which pyspark takes tens
    of questions to translate."""
    array = collection.toArray()
    return [array[place] for place in range(len(array))]
