"""`python -m benchmarks`: print the environment, run the benchmarks that were named, or all."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from benchmarks import (
    build,
    commit,
    decode,
    environment,
    find,
    flight,
    footers,
    fresh,
    insert,
    inserters,
    landing,
    one_trace,
    pages,
    planning,
    query,
    replan,
    serve,
    shell,
    sweep,
    upsert,
    writers,
)
from benchmarks.harness import Places, postgres_server, table

BENCHMARKS = {
    "commit": commit,
    "writers": writers,
    "find": find,
    "footers": footers,
    "sweep": sweep,
    "landing": landing,
    "decode": decode,
    "build": build,
    "replan": replan,
    "trace": one_trace,
    "query": query,
    "planning": planning,
    "fresh": fresh,
    "shell": shell,
    "insert": insert,
    "upsert": upsert,
    "inserters": inserters,
    "serve": serve,
    "flight": flight,
    "pages": pages,
}

_QUICK_US = 60
"""More than it takes to create a file where nothing hinders it."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="a small size, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there as well")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")

    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as temporary:
        folder = Path(temporary)
        with postgres_server(folder / "postgres") as server_url:
            where = environment.describe(folder, server_url)
            for name, value in where.items():
                print(f"{name:16} {value}")
            measured = {}
            with ExitStack() as made:  # nothing is deleted before the end: see creating_a_file_us
                for name in options.names or BENCHMARKS:
                    places = Places(folder / name, server_url, options.quick)
                    made.callback(places.clear)
                    measured[name] = _run(name, places)
    if options.json:
        report = {"environment": where, "quick": options.quick, "benchmarks": measured}
        options.json.write_text(json.dumps(report, indent=2) + "\n")


def _run(name: str, places: Places) -> list[dict[str, object]]:
    module = BENCHMARKS[name]
    print(f"\n## {name}: {module.TITLE}\n")
    taken = environment.creating_a_file_us(places.new_folder())
    print(f"creating a file takes {taken:.0f} µs{_judge(taken)}\n", flush=True)
    before = time.perf_counter()
    results = module.run(places)
    print(table(results), flush=True)
    print(f"{name} took {time.perf_counter() - before:.0f} s", file=sys.stderr, flush=True)
    return [asdict(result) for result in results]


def _judge(taken_us: float) -> str:
    if taken_us < _QUICK_US:
        return ""
    return ", because many were deleted lately: what makes small files is slower for some minutes"


if __name__ == "__main__":
    main()
