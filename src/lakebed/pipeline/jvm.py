"""A JVM that was killed, by the kernel for want of memory or by somebody. pyspark keeps what it
knows of its JVM for as long as the process lives, and can start no other; so it is made to forget.
"""

from __future__ import annotations


def is_dead() -> bool:
    """Whether this process started a JVM that is gone."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


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
