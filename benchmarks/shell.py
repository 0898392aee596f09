"""The command from a shell, a new process each time: its help, and the first answer of a statement
over a small lake of which nothing is built.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.harness import Places, Result, median_ms, percentile_ms, stopwatch
from lakebed.lake import Lake
from lakebed.samples.generator import Generator
from lakebed.views.builtin import built_in

TITLE = "The command from a shell"
_MOST_ANSWER_MS, _MOST_HELP_MS = 1500, 300


def run(places: Places) -> list[Result]:
    times = 3 if places.quick else 15
    with places.new_lake("sqlite") as lake:
        _fill(lake)
        folder = str(Path(lake.store.url.removeprefix("file://")).parent)
    command = str(Path(sys.executable).with_name("lakebed"))
    sql = "SELECT level, count(*) AS n FROM log_entries GROUP BY level"
    cases = {
        "lakebed --help": ([command, "--help"], _MOST_HELP_MS),
        "lakebed query --help": ([command, "query", "--help"], _MOST_HELP_MS),
        "lakebed query": ([command, "query", sql, "--lake", folder], _MOST_ANSWER_MS),
    }
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(times):
        for name, (arguments, _most) in cases.items():
            seconds[name].append(stopwatch(lambda each=arguments: _call(each)))  # type: ignore[misc]
    return [
        Result(
            name,
            {"median ms": median_ms(taken), "p95 ms": percentile_ms(taken, 95)},
            {f"median ≤ {cases[name][1]} ms": median_ms(taken) <= cases[name][1]},
        )
        for name, taken in seconds.items()
    ]


def _fill(lake: Lake) -> None:
    lake.views.ensure(built_in())
    generator = Generator(5)
    for _ in range(10):
        lake.telemetry.land("logs", generator.logs(500).SerializeToString())


def _call(arguments: list[str]) -> None:
    subprocess.run(arguments, check=True, capture_output=True)
