"""The mutation campaign finds a planted mutant that a test kills, and one that survives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import __main__ as campaign
from tests.mutants.__main__ import SOURCE as SOURCE_FOLDER
from tests.mutants.__main__ import (
    Campaign,
    TestChooser,
    draw_sample,
    list_all,
    list_targets,
    match_lines,
    read_explained,
    read_survivors,
)
from tests.mutants.line_map import TestRun, read_runs, write_runs
from tests.mutants.operators import (
    find_import_line,
    list_mutants,
    names_of_module_statement,
)
from tests.mutants.run import KILLED, SURVIVED, TIMEOUT, Outcome

SOURCE = '''
"""A module."""

LIMIT = 10


def is_within(value: int, end: int, *, closed: bool = False) -> bool:
    """Return True for a value before an end."""
    if closed and value == end:
        return True
    return value < end


def count(values):
    total = 0
    while values:
        values = values[1:]
        total += 1
    return total
'''
TESTS = """
from lakebed.planted import count, is_within

def test_values_far_from_the_end():
    assert is_within(1, 5)
    assert not is_within(9, 5)

def test_values_are_counted():
    assert count("abc") == 3
"""


def changes(source: str) -> set[tuple[str, str, str]]:
    return {
        (mutant.operator, mutant.original, mutant.replacement)
        for mutant in list_mutants(source.encode(), "planted.py")
    }


def test_list_mutants_makes_every_kind_of_change() -> None:
    assert changes(SOURCE) == {
        ("constant", "False", "True"),
        ("boolean", "closed and value == end", "(closed or value == end)"),
        ("dropped condition", "closed and value == end", "(value == end)"),
        ("dropped condition", "closed and value == end", "(closed)"),
        ("comparison", "value == end", "(value != end)"),
        ("dropped guard", "closed and value == end", "False"),
        ("constant", "True", "False"),
        ("comparison", "value < end", "(value <= end)"),
        ("constant", "0", "1"),
        ("constant", "1", "2"),
        ("constant", "1", "0"),
        ("dropped statement", "total += 1", "pass"),
        ("arithmetic", "total += 1", "total -= 1"),
    }


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("f(x, y=1)", ("dropped keyword", "f(x, y=1)", "f(x)")),
        ("f(x, y)", ("swapped arguments", "f(x, y)", "f(y, x)")),
        ("min(x)", ("counterpart", "min", "max")),
        ("q.where(a, b)", ("dropped condition", "q.where(a, b)", "q.where(b)")),
        ("[x for x in y if x]", ("dropped filter", "x", "True")),
        ("a if b else c", ("choice", "a if b else c", "(c)")),
        ("not a", ("dropped not", "not a", "(a)")),
        ("a - b", ("arithmetic", "a - b", "(a + b)")),
        ("raise E", ("dropped raise", "raise E", "pass")),
        ("if a:\n        b()", ("negated condition", "a", "not (a)")),
        (
            "try:\n        a()\n    except (B, C):\n        pass",
            ("dropped exception", "(B, C)", "(B,)"),
        ),
    ],
)
def test_list_mutants_makes_a_change(source: str, change: tuple[str, str, str]) -> None:
    assert change in changes(f"def g():\n    {source}\n")


@pytest.mark.parametrize(
    "source",
    [
        "LIMIT = 10",
        '"""A text of 1."""',
        "def f(x: A | B) -> C[1]: ...",
        "def f():\n    assert x == 1",
        "def f():\n    _log.info('x', y)",
        "def f():\n    return zip(x, strict=True)",
        "def f():\n    return pc.multiply(a, b)",
        "if TYPE_CHECKING:\n    import x",
    ],
)
def test_list_mutants_leaves_out_what_no_test_should_pin(source: str) -> None:
    assert changes(source) == set()


def test_key_does_not_depend_on_the_line_and_numbers_equal_changes() -> None:
    source = "def f(a, b):\n    return a < b or a < b\n"
    keys = [mutant.key for mutant in list_mutants(source.encode(), "m.py")]
    below = [mutant.key for mutant in list_mutants(("\n\n" + source).encode(), "m.py")]
    assert keys == below
    assert len(set(keys)) == len(keys)
    assert "m.py::f::comparison::a < b → (a <= b)" in keys
    assert "m.py::f::comparison::a < b → (a <= b) #2" in keys


CAMPAIGN = """
import json, sys
from pathlib import Path
from tests.mutants.operators import Mutant, list_mutants
from tests.mutants.run import Job, Worker, run_jobs

folder = Path(sys.argv[1])
source = (folder / "source/lakebed/planted.py").read_bytes()
mutants = {
    (mutant.operator, mutant.replacement): mutant
    for mutant in list_mutants(source, "planted.py")
}
start = source.index(b"[1:]")
endless = Mutant("planted.py", "count", "", "[1:]", "[0:]", start, start + 4, 17, 17)
jobs = [
    Job(mutants["constant", "2"], [str(folder / "tests")], 600),
    Job(mutants["comparison", "(value <= end)"], [str(folder / "tests")], 600),
    Job(endless, [str(folder / "tests")], 5),
]
outcomes = []
worker = Worker(folder / "source", "lakebed", folder / "work", {})
skipped = [run_jobs(jobs, [worker], outcomes.append), run_jobs(jobs, [worker], print, end=0.0)]
print(json.dumps([[outcome.state, outcome.test] for outcome in outcomes] + [skipped]))
"""


def test_find_import_line_knows_what_runs_on_import() -> None:
    source = (
        b"def f():\n    return 1\n\nX = f()\nY = 1 < 2\n\ndef g():\n    return f() + 1\n\n"
        b"class C:\n    Z = f(a=X)\n    def h(self):\n        return not X\n"
    )
    lines = {
        (mutant.function, mutant.operator): find_import_line(source, mutant)
        for mutant in list_mutants(source, "m.py")
    }
    assert lines == {
        ("f", "constant"): 4,
        ("module", "comparison"): 5,
        ("module", "constant"): 5,
        ("g", "arithmetic"): None,
        ("g", "constant"): None,
        ("C", "dropped keyword"): 10,
        ("C.h", "dropped not"): None,
    }
    assert names_of_module_statement(source, 10) == {"C"}
    assert names_of_module_statement(source, 4) == {"X"}


def test_worker_kills_a_mutant_that_a_test_notices_and_not_one_at_a_bound(tmp_path: Path) -> None:
    """In a process of its own: a campaign forks, and has not imported the package."""
    package = tmp_path / "source" / "lakebed"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "planted.py").write_text(SOURCE)
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "pytest.ini").touch()
    (tests / "test_planted.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-c", CAMPAIGN, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        check=True,
    )
    killed, survived, timeout, skipped = json.loads(done.stdout)
    assert killed[0] == KILLED
    assert "test_values_are_counted" in killed[1]
    assert survived == [SURVIVED, ""]
    assert timeout[0] == TIMEOUT
    assert skipped == [0, 3]
    assert (tmp_path / "work" / "src" / "lakebed" / "planted.py").read_text() == SOURCE


def test_campaign_fails_below_its_goal_and_counts_explained_mutants(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    killed, survivor = list_mutants(b"def f(a):\n    return a + 1\n", "catalog/m.py")[:2]
    for explained, code in (({}, 1), ({survivor.key: "no difference"}, 0)):
        campaign = Campaign(explained, tmp_path)
        campaign.report(Outcome(killed, KILLED, "test_f"))
        campaign.report(Outcome(survivor, SURVIVED))
        assert campaign.finish(seed=7, skipped=0) == code
    assert read_survivors(tmp_path / "results-7.json") == {survivor.key}
    output = capsys.readouterr().out
    assert "seed 7: 50.0% killed or explained" in output
    assert "seed 7: 100.0% killed or explained" in output
    assert f"survived: {survivor.key}" in output


def test_line_map_is_read_as_it_was_written(tmp_path: Path) -> None:
    runs = {"a.py::test": TestRun(0.5, True, {"m.py": {1, 70, 1000}})}
    write_runs(tmp_path / "lines.json", runs)
    assert read_runs(tmp_path / "lines.json") == runs


def test_match_lines_finds_lines_that_moved() -> None:
    assert match_lines("a\nb\nc", "x\na\nc\nd") == {1: 2, 2: 2, 3: 3}


def test_targets_are_every_module_of_their_packages() -> None:
    targets = {str(file.relative_to(SOURCE_FOLDER)) for file in list_targets()}
    assert {"catalog/clock.py", "partitions.py", "tables/insert/__init__.py"} <= targets
    assert not {"catalog/schema.py", "query/embedded/engine.py"} & targets
    assert not any(path.startswith("catalog/migrations/") for path in targets)


def test_target_that_was_moved_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TARGETS", "NO_TARGETS"):
        with monkeypatch.context() as patch:
            patch.setattr(campaign, name, ("no_such_package",))
            with pytest.raises(FileNotFoundError, match="no_such_package was moved"):
                list_targets()


def test_tests_that_were_moved_or_failed_are_not_chosen() -> None:
    """A test that does not exist would fail, and count as one that killed the mutant."""
    mutant = next(mutant for mutant in list_all() if mutant.path == "catalog/clock.py")
    lines = {mutant.path: set(range(1, 1000))}
    runs = {
        "tests/a.py::here": TestRun(1.0, True, lines),
        "tests/a.py::moved": TestRun(1.0, True, lines),
        "tests/a.py::failed": TestRun(1.0, False, lines),
    }
    chooser = TestChooser(runs, 60, {"tests/a.py::here", "tests/a.py::failed"})
    assert chooser.choose(mutant) == (["tests/a.py::here"], 1.0)


def test_sample_depends_only_on_the_seed() -> None:
    mutants = [mutant for mutant in list_all() if mutant.path.startswith("access/")]
    assert draw_sample(mutants, 20, 1) == draw_sample(mutants, 20, 1)
    assert draw_sample(mutants, 20, 1) != draw_sample(mutants, 20, 2)
    assert len(draw_sample(mutants, 10_000, 1)) <= len(mutants)


def test_explained_mutants_have_a_reason() -> None:
    assert all(len(reason) > 20 for reason in read_explained().values())
