"""Sessions: one of our own that is quick, quiet and survives lost workers; somebody else's, left as
it is.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from lakebed.errors import BadInput, Unavailable
from lakebed.pipeline.sessions.executors import StoreAddress, ship
from lakebed.pipeline.sessions.session import _start, is_remote, open_session, use_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_session_that_runs_is_used_and_not_changed(spark: SparkSession) -> None:
    assert open_session() is spark
    with use_session() as same, use_session(spark) as given:
        assert same is spark
        assert given is spark
    assert spark.range(3).count() == 3  # it was not stopped
    assert not is_remote(spark)


def test_another_session_is_refused_while_one_runs(spark: SparkSession) -> None:
    with pytest.raises(BadInput, match="runs in this process already"):
        open_session(master="local[1]")
    with pytest.raises(BadInput, match="not both"):
        open_session(master="local", remote="sc://localhost")


def test_a_machine_without_the_name_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", look_up)
    with pytest.raises(Unavailable, match="Name or service not known") as refused:
        _start("lakebed", {})
    assert "add 127.0.0.1 localhost to /etc/hosts" in (refused.value.hint or "")


def test_the_session_is_set_for_small_jobs(spark: SparkSession) -> None:
    assert spark.conf.get("spark.master") == "local[2,4]"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ  # only the JVM's environment was changed


def test_a_killed_python_worker_does_not_fail_the_job(spark: SparkSession) -> None:
    def die_once(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    assert spark.range(10).mapInArrow(die_once, "id long").count() == 10


def test_nothing_is_shipped_to_executors_that_run_this_python(spark: SparkSession) -> None:
    assert ship(spark) is False


def test_a_bucket_is_opened_from_its_address_alone(
    s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakebed.storage.objects import open_store, put

    store = open_store(f"s3://{s3_bucket}/lake")
    put(store, "probe-x", b"bytes")
    without = StoreAddress.of(store)
    assert not {"AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"} & dict(without.environment).keys()
    address = StoreAddress.of(store, pass_credentials=True)
    for name, _ in address.environment:
        monkeypatch.delenv(name)
    assert address.open().read("probe-x", 0, 5) == b"bytes"
    assert "AWS_ENDPOINT_URL" not in os.environ
