"""micromegas' own clients, from their wheels in their own environments, against a lake that holds a
twin, an empty and an incompatible partition.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.lake import Lake
from lakebed.model.partition import hash_sources
from lakebed.model.view_set import ViewSet
from tests.parts.building import build, land, tick
from tests.serve.parts import serving

COUNT = "SELECT count(*) AS n FROM log_entries"
pytestmark = pytest.mark.campaign


def readings(version: int) -> ViewSet:
    schema = pa.schema([("time", pa.timestamp("us", "UTC")), ("device", pa.string())])
    return ViewSet("readings", version, schema, "time")


def fill(lake: Lake) -> None:
    begin = tick(lake)
    land(lake)
    build(lake)
    rows = pa.table(
        {"time": pa.array([1_794_800_000_000_000], pa.timestamp("us", "UTC")), "device": ["a"]}
    )
    landed = (begin, tick(lake) + 1)  # so that the rows count as built from what landed then
    source_hash = hash_sources(["block"])
    lake.views.register(readings(1))
    lake.partitions.publish("readings", *landed, rows, source_hash=source_hash)
    lake.partitions.publish_completed_empty(
        "readings", "2026-11-15T02:00:00Z", "2026-11-15T03:00:00Z"
    )
    lake.views.register(readings(2))
    lake.partitions.publish("readings", *landed, rows, source_hash=source_hash)


@pytest.mark.parametrize(("version", "names_the_twin"), [("0.16.1", False), ("0.32.0", True)])
def test_clients_work_unchanged(
    lake: Lake, tmp_path: Path, version: str, names_the_twin: bool
) -> None:
    fill(lake)
    home = tmp_path / "client"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    python = home / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", f"micromegas=={version}"], check=True
    )
    tour = Path(__file__).with_name("micromegas_tour.py")
    flight_port = 0 if version == "0.32.0" else 50051  # which is all that the older one knows
    with serving(lake, flight_port=flight_port) as served:
        done = subprocess.run(
            [python, tour, served.flight], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout.splitlines()[-1])
        if version == "0.32.0":
            shown = subprocess.run(
                [home / "bin" / "micromegas-query", COUNT, "--all", "--format", "json"],
                env={**os.environ, "MICROMEGAS_ANALYTICS_URI": served.flight, "HOME": str(home)},
                capture_output=True,
                text=True,
                check=False,
            )
            assert json.loads(shown.stdout) == [{"n": 20}], shown.stderr
    assert said == {
        "query": 20,
        "in range": 20,
        "out of range": 0,
        "arrow": {"n": [20]},
        "stream": 20,
        "empty columns": 32,
        "prepared": 3,
        "processes": 16,
        "streams": 9,
        "blocks": 1,
        "materialized": True,
        "stats": 20,
        "incompatible": 2,
        "columns": [
            *("view_set_name", "view_instance_id", "begin_insert_time", "end_insert_time"),
            *("incompatible_schema_hash", "current_schema_hash", "file_path", "file_size"),
        ],
        "retired": 2 if names_the_twin else 1,  # four fields cannot tell a twin from the other
        "failed": 0 if names_the_twin else 1,
        "left": 0,
        "bad": "ArrowInvalid: True",
    }
