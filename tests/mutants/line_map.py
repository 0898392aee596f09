"""Record which lines of the package each test executes: a pytest plugin, and the file it writes.

Load it with ``-p tests.mutants.line_map`` and name the file in LAKEBED_LINE_MAP. Each worker of
xdist writes a file of its own beside it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

Lines = dict[str, set[int]]


@dataclass(slots=True)
class TestRun:
    """One test: how long it took, whether it passed, and the lines that it executed, by file."""

    __test__ = False

    seconds: float = 0.0
    passed: bool = True
    lines: Lines = field(default_factory=lambda: defaultdict(set))


class LineRecorder:
    """Traces the files of one folder while tests run."""

    def __init__(self, root: Path, output: Path) -> None:
        self._files = {
            os.path.realpath(file): str(file.relative_to(root)) for file in root.rglob("*.py")
        }
        self._output = output
        self._runs: dict[str, TestRun] = defaultdict(TestRun)
        self._shared: dict[str, Lines] = {}
        self._current: Lines = defaultdict(set)

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        name = self._files.get(frame.f_code.co_filename)
        if name is None:
            return None
        executed = self._current[name]
        executed.add(frame.f_lineno)

        def trace_line(frame: FrameType, event: str, _argument: object) -> Any:
            if event == "line":
                executed.add(frame.f_lineno)
            return trace_line

        return trace_line

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._current = self._runs[item.nodeid].lines
        sys.settrace(self._trace)
        threading.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Share with all tests of a file what its first test's fixtures executed."""
        try:
            return (yield)
        finally:
            file = item.nodeid.split("::")[0]
            if file not in self._shared:
                self._shared[file] = {
                    name: set(executed) for name, executed in self._current.items()
                }

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        run = self._runs[report.nodeid]
        run.seconds += report.duration
        run.passed = run.passed and report.passed

    def pytest_sessionfinish(self) -> None:
        for test, run in self._runs.items():
            for name, executed in self._shared.get(test.split("::")[0], {}).items():
                run.lines[name] |= executed
        write_runs(self._output, self._runs)


def pytest_configure(config: pytest.Config) -> None:
    output = os.environ.get("LAKEBED_LINE_MAP")
    is_controller = hasattr(config.option, "numprocesses") and config.option.numprocesses
    if output and not (is_controller and not hasattr(config, "workerinput")):
        import lakebed

        worker = getattr(config, "workerinput", {}).get("workerid", "main")
        root = Path(lakebed.__file__).parent
        config.pluginmanager.register(LineRecorder(root, Path(f"{output}.{worker}")))


def write_runs(file: Path, runs: dict[str, TestRun]) -> None:
    """Write runs; the lines of a file as the bits of one number."""
    content = {
        test: [
            round(run.seconds, 3),
            run.passed,
            {
                name: hex(sum(1 << line for line in executed))
                for name, executed in run.lines.items()
                if executed
            },
        ]
        for test, run in runs.items()
    }
    file.write_text(json.dumps(content))


def read_runs(file: Path) -> dict[str, TestRun]:
    """Read what `write_runs` wrote."""
    runs = {}
    for test, (seconds, passed, lines) in json.loads(file.read_text()).items():
        runs[test] = TestRun(seconds, passed, {name: _bits(text) for name, text in lines.items()})
    return runs


def _bits(text: str) -> set[int]:
    bits = bin(int(text, 16))[:1:-1]
    return {line for line, bit in enumerate(bits) if bit == "1"}
