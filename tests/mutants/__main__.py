"""The mutation campaign: change the code on purpose, and count the changes that no test notices.

``make mutants`` runs a random sample; docs/proof.md says how to read its result.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from tests.mutants.line_map import TestRun, read_runs, write_runs
from tests.mutants.operators import (
    Mutant,
    find_import_line,
    list_mutants,
    names_of_module_statement,
)
from tests.mutants.run import KILLED, SURVIVED, TIMEOUT, UNTESTED, Job, Outcome, Worker, run_jobs

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "lakebed"
OUTPUT = ROOT / "build" / "mutants"
EXPLAINED = Path(__file__).with_name("explained.toml")

TARGETS = (
    "access",
    "catalog",
    "ingest",
    "lifecycle",
    "operations",
    "partitions.py",
    "query",
    "reading",
    "tables",
    "writing",
)
"""Packages with their subpackages, and modules."""
NO_TARGETS = (
    "catalog/migrations",  # a test compares what they make with the next one
    "catalog/schema.py",
    "query/embedded",  # what the engines do is compared with other engines
    "query/spark",
    "query/output/explanation.py",  # texts, as the next one
    "query/output/formats.py",
)

TESTS = (
    "tests/access",
    "tests/catalog",
    "tests/doctor/test_checks.py",
    "tests/ingest",
    "tests/lifecycle",
    "tests/model",
    "tests/operations",
    "tests/pipeline/test_plan.py",
    "tests/query",
    "tests/reading",
    "tests/storage",
    "tests/tables",
    "tests/upkeep",
    "tests/views",
    "tests/writing",
    "tests/test_arguments.py",
    "tests/test_lake.py",
    "tests/test_operation_logs.py",
    "tests/test_times.py",
    "tests/proof/test_concurrency.py",
    "tests/proof/test_faults.py",
    "tests/serve/test_http.py",
    "tests/serve/test_flight.py",
    "tests/serve/test_waiting.py",
    "tests/serve/test_who.py",
)
SLOW_TESTS = (
    "tests/query/test_differential.py",
    "tests/query/test_materialize.py",
    "tests/query/test_spark_engine.py",
    "tests/query/test_spark_user_tables.py",
    "tests/tables/test_machine.py",
)
"""On Spark, or random: a mutant should fail a test that is quick and says what is wrong."""

GOAL = 0.95
NOT_NOTICED = (SURVIVED, UNTESTED)
PASS = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; return 0 if enough of the sample was killed or explained."""
    options = _parse(arguments)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    line_map = OUTPUT / "lines.json"
    if options.map is not None or not line_map.exists():
        measure(line_map, options.map or TESTS, options.workers)
        if options.map is not None:
            return PASS
    runs = read_runs(line_map)
    mutants = [
        mutant
        for mutant in list_all()
        if not options.only or any(text in mutant.key for text in options.only)
    ]
    if options.again is not None:
        keys = read_survivors(options.again)
        mutants = [mutant for mutant in mutants if mutant.key in keys]
    sample = draw_sample(mutants, options.sample, options.seed)
    explained = read_explained()
    say(f"{len(sample)} of {len(mutants)} mutants, seed {options.seed}")
    existing = list_tests()
    missing = len(existing - runs.keys())
    if missing:
        say(f"{missing} of {len(existing)} tests are not in the line map: make mutants ARGS=--map")
    chooser = TestChooser(runs, options.seconds, existing)
    campaign = Campaign(explained)
    jobs = []
    for mutant in sample:
        tests, seconds = chooser.choose(mutant)
        if tests:
            jobs.append(Job(mutant, tests, 60 + 5 * seconds))
        else:
            campaign.report(Outcome(mutant, UNTESTED))
    if options.list:
        for job in jobs:
            say(f"{job.mutant.key}: {len(job.tests)} tests")
        return PASS
    end = time.monotonic() + options.minutes * 60
    preload()
    with new_workers(options.workers) as (workers, clean):
        require_control(workers)
        skipped = run_jobs(jobs, workers, campaign.report, end=end, clean=clean)
    return campaign.finish(options.seed, skipped)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants ARGS=…", description=__doc__)
    parser.add_argument("--sample", type=int, default=300, help="how many mutants (300)")
    parser.add_argument("--seed", type=int, help="of the sample (random, and printed)")
    parser.add_argument("--minutes", type=float, default=90, help="begin no mutant later (90)")
    parser.add_argument("--seconds", type=float, default=60, help="of tests for a mutant (60)")
    parser.add_argument("--workers", type=int, default=2, help="mutants at a time (2)")
    parser.add_argument(
        "--only", action="append", default=[], help="only mutants whose key contains this text"
    )
    parser.add_argument("--again", type=Path, help="only what survived, of a file of results")
    parser.add_argument("--list", action="store_true", help="list the sample and run nothing")
    parser.add_argument(
        "--map", nargs="*", help="measure again which lines these tests execute (all tests)"
    )
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = int.from_bytes(os.urandom(4), "big")
    return options


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# which lines which tests execute


def measure(line_map: Path, tests: Sequence[str], workers: int) -> None:
    """Run tests under the tracer, and add what they execute to the line map."""
    say(f"measuring which lines {' '.join(tests)} execute …")
    sources = {str(file.relative_to(SOURCE)): file.read_text() for file in list_targets()}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers)]
        command += ["-p", "tests.mutants.line_map", *tests]
        command += [f"--ignore={file}" for file in SLOW_TESTS]
        paths = f"{SOURCE.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        environment = {**os.environ, "PYTHONPATH": paths, "LAKEBED_LINE_MAP": f"{folder}/lines"}
        subprocess.run(command, cwd=ROOT, env=environment, check=False)
        new: dict[str, TestRun] = {}
        for file in sorted(Path(folder).iterdir()):
            new |= read_runs(file)
    merge(line_map, new, sources)


def list_tests() -> set[str]:
    """Return the tests that exist now: a line map may name tests that were moved since."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *TESTS]
    command += [f"--ignore={file}" for file in SLOW_TESTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line for line in done.stdout.splitlines() if "::" in line}


def merge(line_map: Path, new: dict[str, TestRun], sources: dict[str, str]) -> None:
    """Add runs to the line map, in place of older runs of the same files; older line numbers are
    translated to those of the sources."""
    older = read_runs(line_map) if line_map.exists() else {}
    files = {test.split("::")[0] for test in new}
    older = {test: run for test, run in older.items() if test.split("::")[0] not in files}
    before = _read_sources(line_map)
    for path, text in sources.items():
        if before.get(path, text) != text:
            lines = match_lines(text, before[path])
            for run in older.values():
                executed = run.lines.get(path, set())
                run.lines[path] = {line for line, old in lines.items() if old in executed}
    write_runs(line_map, older | new)
    line_map.with_suffix(".sources").write_text(json.dumps(sources))


def _read_sources(line_map: Path) -> dict[str, str]:
    file = line_map.with_suffix(".sources")
    return dict(json.loads(file.read_text())) if file.exists() else {}


def match_lines(one: str, other: str) -> dict[int, int]:
    """Return for each line of a text its number in another; a changed line has that of the last
    line before it that did not change."""
    lines, other_lines = one.splitlines(), other.splitlines()
    matches: dict[int, int] = {}
    for block in difflib.SequenceMatcher(
        None, lines, other_lines, autojunk=False
    ).get_matching_blocks():
        matches |= {block.a + offset + 1: block.b + offset + 1 for offset in range(block.size)}
    last = 1
    for line in range(1, len(lines) + 1):
        last = matches.setdefault(line, last)
    return matches


class TestChooser:
    """Chooses the tests that execute a mutant's lines."""

    __test__ = False

    def __init__(self, runs: dict[str, TestRun], seconds: float, existing: Collection[str]) -> None:
        self._runs = {test: run for test, run in runs.items() if run.passed and test in existing}
        self._seconds = seconds
        self._sources = _read_sources(OUTPUT / "lines.json")
        self._lines: dict[str, dict[int, int]] = {}
        self._sizes = {
            test: sum(len(lines) for lines in run.lines.values())
            for test, run in self._runs.items()
        }

    def choose(self, mutant: Mutant) -> tuple[list[str], float]:
        """Return the tests to run, the most specific first, and how long they took before."""
        line = find_import_line((SOURCE / mutant.path).read_bytes(), mutant)
        if line is None:
            lines = {mutant.path: self._translate(mutant)}
        else:
            lines = self._lines_that_use(mutant.path, line)
        tests = [
            test
            for test, run in self._runs.items()
            if any(run.lines.get(path, set()) & span for path, span in lines.items())
        ]
        package = mutant.path.split("/")[0]

        def rank(test: str) -> tuple[bool, bool, int]:
            is_second = "postgresql" in test.partition("::")[2]
            return (is_second, f"tests/{package}/" not in test, self._sizes[test])

        ranked = sorted(tests, key=rank)
        tests_to_run, seconds = [], 0.0
        for test in ranked:
            if tests_to_run and seconds + self._runs[test].seconds > self._seconds:
                continue
            tests_to_run.append(test)
            seconds += self._runs[test].seconds
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in tests_to_run:
            by_file[test.split("::")[0]].append(test)
        return [test for tests in by_file.values() for test in tests], seconds

    def _translate(self, mutant: Mutant) -> set[int]:
        """Return the lines of a mutant as they were numbered when the map was measured."""
        lines = range(mutant.first_line, mutant.last_line + 1)
        if mutant.path not in self._sources:
            return set(lines)
        if mutant.path not in self._lines:
            now = (SOURCE / mutant.path).read_text()
            self._lines[mutant.path] = match_lines(now, self._sources[mutant.path])
        return {self._lines[mutant.path][line] for line in lines}

    def _lines_that_use(self, path: str, line: int) -> dict[str, set[int]]:
        """Return the lines that mention what a statement of a module's top level assigns."""
        names = names_of_module_statement((SOURCE / path).read_bytes(), line)
        lines: dict[str, set[int]] = defaultdict(set)
        for file in list_targets():
            for number, line in enumerate(file.read_text().splitlines(), 1):
                if any(name in line for name in names):
                    lines[str(file.relative_to(SOURCE))].add(number)
        return lines


# mutants


def list_targets() -> list[Path]:
    """Return the files whose mutants are made."""
    left_out = {file for path in NO_TARGETS for file in _list_modules(path)}
    return sorted({file for path in TARGETS for file in _list_modules(path)} - left_out)


def _list_modules(path: str) -> list[Path]:
    """Return a module, or the modules of a package; raise if there is neither."""
    root = SOURCE / path
    modules = [root] if root.is_file() else list(root.rglob("*.py"))
    if not modules:
        raise FileNotFoundError(f"the package or module {path} was moved: change the targets")
    return modules


def list_all() -> Iterator[Mutant]:
    """Yield every mutant of every target."""
    for file in list_targets():
        yield from list_mutants(file.read_bytes(), str(file.relative_to(SOURCE)))


def draw_sample(mutants: Sequence[Mutant], size: int, seed: int) -> list[Mutant]:
    """Return a random sample of mutants that compile to something else than the original."""
    shuffled = list(mutants)
    random.Random(seed).shuffle(shuffled)
    sample: list[Mutant] = []
    originals: dict[str, tuple[bytes, object]] = {}
    for mutant in shuffled:
        if len(sample) == size:
            break
        if mutant.path not in originals:
            source = (SOURCE / mutant.path).read_bytes()
            originals[mutant.path] = source, compile(source, mutant.path, "exec")
        source, original = originals[mutant.path]
        try:
            changed = compile(mutant.apply(source), mutant.path, "exec")
        except SyntaxError:
            continue
        if changed != original:
            sample.append(mutant)
    return sample


def read_explained() -> dict[str, str]:
    """Return the mutants that no test can notice, with the reason of each."""
    content = tomllib.loads(EXPLAINED.read_text())
    return {entry["key"]: entry["reason"] for entry in content.get("mutant", [])}


def read_survivors(results: Path) -> set[str]:
    """Return the keys of the mutants that no test noticed in a campaign."""
    return {key for key, state, *_ in json.loads(results.read_text()) if state in NOT_NOTICED}


# running


def preload() -> None:
    """Import what every fork needs and what is the same for all of them. Not Hypothesis: pytest
    warns of plugins that are imported before it."""
    import alembic
    import datafusion
    import psycopg
    import pyarrow.compute
    import pyarrow.parquet
    import pytest
    import sqlalchemy.dialects.postgresql
    import sqlalchemy.dialects.sqlite
    import sqlglot

    assert all([alembic, datafusion, psycopg, pyarrow, pytest, sqlalchemy, sqlglot])
    assert not any(name.split(".")[0] == "lakebed" for name in sys.modules)


@contextlib.contextmanager
def new_workers(count: int) -> Iterator[tuple[list[Worker], object]]:
    """Make workers, each with a PostgreSQL of its own, whose databases go after each mutant."""
    from tests.parts import servers

    with contextlib.ExitStack() as stack:
        workers, urls = [], []
        for number in range(count):
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(dir=servers.quick_folder()))
            )
            url = stack.enter_context(servers.postgres(folder / "postgres"))
            urls.append(url)
            environment = {"LAKEBED_TEST_POSTGRES": url}
            workers.append(Worker(ROOT / "src", "lakebed", folder / str(number), environment))
        yield workers, lambda number: servers.drop_databases(urls[number])


def require_control(workers: Sequence[Worker]) -> None:
    """Raise unless an unchanged package passes and a broken one fails, on both catalogs."""
    file = SOURCE / "catalog" / "clock.py"
    line = b"    if as_of < horizon:"
    start = file.read_bytes().index(line)
    test = "tests/reading/test_snapshot.py::test_the_past_is_read_as_it_was_until_it_is_swept"
    tests = [f"{test}[{dialect}]" for dialect in ("sqlite", "postgresql")]
    for text, state in ((line.decode(), SURVIVED), ("    if False:", KILLED)):
        control = Mutant(
            "catalog/clock.py", "control", "", line.decode(), text, start, start + len(line), 1, 1
        )
        outcomes: list[Outcome] = []
        run_jobs([Job(control, tests, 600)] * len(workers), workers, outcomes.append)
        if any(outcome.state != state for outcome in outcomes):
            raise RuntimeError(f"the control mutant should be {state}: {outcomes}")


class Campaign:
    """Collects outcomes, and says what they add up to."""

    def __init__(self, explained: dict[str, str], output: Path = OUTPUT) -> None:
        self._explained = explained
        self._output = output
        self._outcomes: list[Outcome] = []

    def report(self, outcome: Outcome) -> None:
        """Print one outcome."""
        self._outcomes.append(outcome)
        state = outcome.state
        if outcome.mutant.key in self._explained and state not in (KILLED, TIMEOUT):
            state = "explained"
        say(
            f"{len(self._outcomes):4} {state:9} {outcome.seconds:5.1f} s {outcome.tests:4} tests  "
            f"{outcome.mutant.key}"
        )

    def finish(self, seed: int, skipped: int) -> int:
        """Print the table and the score, write the results, and return the exit code."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        survivors = []
        for outcome in self._outcomes:
            package = outcome.mutant.path.split("/")[0]
            state = outcome.state
            if state in NOT_NOTICED:
                if outcome.mutant.key in self._explained:
                    state = "explained"
                else:
                    survivors.append(outcome)
            for row in (package, "all"):
                counts[row][state] += 1
        columns = [KILLED, TIMEOUT, "explained", SURVIVED, UNTESTED]
        say("")
        say(f"{'':12}" + "".join(f"{name.split()[0]:>10}" for name in [*columns, "score"]))
        for row in sorted(counts, key=lambda name: (name == "all", name)):
            score = _score(counts[row])
            numbers = "".join(f"{counts[row][name]:10}" for name in columns)
            say(f"{row:12}{numbers}{score:10.1%}")
        for outcome in survivors:
            say(f"{outcome.state}: {outcome.mutant.key}  (line {outcome.mutant.first_line})")
        if skipped:
            say(f"{skipped} mutants of the sample were not begun in time")
        results = self._output / f"results-{seed}.json"
        results.write_text(
            json.dumps(
                [
                    [outcome.mutant.key, outcome.state, outcome.test, round(outcome.seconds, 1)]
                    for outcome in self._outcomes
                ],
                indent=0,
                ensure_ascii=False,
            )
        )
        score = _score(counts["all"])
        say(f"seed {seed}: {score:.1%} killed or explained; results in {results}")
        return PASS if score >= GOAL else 1


def _score(counts: Counter[str]) -> float:
    total = sum(counts.values())
    noticed = counts[KILLED] + counts[TIMEOUT] + counts["explained"]
    return noticed / total if total else 1.0


if __name__ == "__main__":
    sys.exit(main())
