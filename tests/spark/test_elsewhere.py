"""Sessions that need a process of their own: no pyspark, no Java, Connect, real executors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts.spark import path_without_java, result_of, run_script

SCRIPT = Path(__file__).with_name("whole_way.py")
CLUSTER = "local-cluster[2,1,1024]"


def test_missing_pyspark_is_one_clear_line() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from lakebed.pipeline.sessions.session import open_session\n"
        "from lakebed.errors import BadInput\n"
        "try: open_session()\n"
        "except BadInput as error: print(error.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "pip install 'lakebed[spark]'\n"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        pytest.param("remote", CLUSTER, id="both"),
        pytest.param("remote", "local[2]", id="Connect", marks=pytest.mark.campaign),
        pytest.param("master", CLUSTER, id="executors", marks=pytest.mark.campaign),
    ],
)
def test_the_whole_way(tmp_path: Path, kind: str, value: str) -> None:
    """Over Connect, on a machine that has no Java of its own, and with executors in processes of
    their own; in the campaign also each without the other."""
    environment = {}
    if kind == "remote":
        (tmp_path / "bin").mkdir()
        environment = {"PATH": path_without_java(tmp_path / "bin"), "JAVA_HOME": ""}
        environment["SPARK_TESTING"] = "1"  # any free port
    done = run_script(SCRIPT, tmp_path / "lake", kind, value, environment=environment)
    assert result_of(done) == {
        "remote": kind == "remote",
        "shipped": True,
        "native": 6,
        "source": 2,
        "written": 6,
        "built": 120,
        "counted": 120,
        "queried": 130,
        "streamed": 130 * 130,
        "sum": 21,
        "refused": True,
        "table": [10, 4, 10, 2],
    }


@pytest.mark.campaign
def test_a_lake_that_was_not_closed_ends_without_a_word(tmp_path: Path) -> None:
    code = (
        "import lakebed\n"
        f"lake = lakebed.init({str(tmp_path / 'lake')!r})\n"
        "print(lake.query('SELECT 1 AS n', engine='spark').to_arrow()['n'].to_pylist())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1]\n", "")
