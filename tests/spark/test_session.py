"""Sessions: one of our own that is quick, quiet and survives lost workers; somebody else's, left as
it is; Connect; executors in processes of their own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakebed.errors import BadInput
from lakebed.pipeline.executors import StoreAddress, ship
from lakebed.pipeline.session import is_remote, open_session, use_session
from tests.parts.spark import path_without_java, result_of, run_script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")
SCRIPT = Path(__file__).with_name("whole_way.py")


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


def test_missing_pyspark_is_one_clear_line() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from lakebed.pipeline.session import open_session\n"
        "from lakebed.errors import BadInput\n"
        "try: open_session()\n"
        "except BadInput as error: print(error.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "pip install 'lakebed[spark]'\n"


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


def test_connect_goes_the_whole_way_on_a_machine_without_java(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    environment = {"PATH": path_without_java(tmp_path / "bin"), "JAVA_HOME": ""}
    environment["SPARK_TESTING"] = "1"  # any free port
    done = run_script(SCRIPT, tmp_path / "lake", "remote", "local[2]", environment=environment)
    assert result_of(done) == {"remote": True, "native": 6, "source": 2, "written": 6, "sum": 21}


def test_executors_in_processes_of_their_own_go_the_whole_way(tmp_path: Path) -> None:
    done = run_script(SCRIPT, tmp_path / "lake", "master", "local-cluster[2,1,1024]")
    assert result_of(done) == {"remote": False, "native": 6, "source": 2, "written": 6, "sum": 21}
