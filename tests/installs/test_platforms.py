"""The platforms on which Lakebed installs: Linux and macOS, and never Windows."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = [
    Requirement(line)
    for lines in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for line in lines
]


def test_import_on_windows_names_the_platforms_that_work() -> None:
    code = "import sys; sys.platform = 'win32'; import lakebed"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last == "ImportError: lakebed runs on Linux and macOS, not on Windows: use it in WSL 2"


def test_build_on_windows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))["PlatformHook"]
    hook.initialize(None, "standard", {})
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match="not on Windows: install it in WSL 2"):
        hook.initialize(None, "standard", {})


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=str)
def test_every_dependency_has_bounds(requirement: Requirement) -> None:
    if requirement.name != "lakebed":
        operators = {one.operator for one in requirement.specifier}
        assert operators == {">=", "<"}, f"{requirement} needs a lower and an upper bound"


@pytest.mark.parametrize(
    ("system", "machine", "expected"),
    [
        ("linux", "x86_64", True),
        ("linux", "aarch64", False),
        ("darwin", "arm64", False),
    ],
)
def test_pysqlite3_is_required_only_where_it_has_wheels(
    system: str, machine: str, expected: bool
) -> None:
    requirement = next(one for one in REQUIREMENTS if one.name == "pysqlite3")
    assert requirement.marker is not None
    environment = {"sys_platform": system, "platform_machine": machine}
    assert requirement.marker.evaluate(environment) is expected


def test_metadata_names_the_platforms_and_no_address() -> None:
    systems = [name for name in PROJECT["classifiers"] if name.startswith("Operating System")]
    assert systems == ["Operating System :: MacOS", "Operating System :: POSIX :: Linux"]
    assert "urls" not in PROJECT


def test_lock_files_have_no_address() -> None:
    for file in (ROOT / "requirements").glob("*.txt"):
        assert not re.search(r"https?:|--(extra-)?index", file.read_text()), file.name


def test_pages_install_from_a_checkout() -> None:
    """No index has lakebed yet."""
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "docs/examples").iterdir(),
    ]
    for page in pages:
        text = page.read_text().replace("such as `pip install 'lakebed[spark]'`, adds", "")
        assert not re.search(r"pip install (-\S+ )*['\"]?lakebed", text), page
