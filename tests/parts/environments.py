"""Virtual environments for tests: empty ones, and ones with distributions of this environment."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def read_metadata(wheel: Path) -> metadata.Distribution:
    """Return the metadata of the built wheel; that of this environment may be older."""
    name = "-".join(wheel.name.split("-")[:2])
    return metadata.PathDistribution(zipfile.Path(wheel, f"{name}.dist-info/"))


def run_pip(python: str | Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "--quiet", *arguments],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def make_environment(folder: Path, python: str = sys.executable) -> Path:
    """Make an empty virtual environment; return its Python."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


def list_requirements(package: metadata.Distribution, extras: frozenset[str]) -> set[str]:
    """Return the names of the distributions that a package needs with these extras."""
    needed: dict[str, set[str]] = {}
    waiting = [(package, extra) for extra in ("", *extras)]
    while waiting:
        current, extra = waiting.pop()
        for line in current.requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                name = canonicalize_name(requirement.name)
                distribution = package if name == "lakebed" else metadata.distribution(name)
                for further in {"", *requirement.extras} - needed.setdefault(name, set()):
                    needed[name].add(further)
                    waiting.append((distribution, further))
    return needed.keys() - {"lakebed"}


def link_distributions(python: Path, names: Iterable[str]) -> None:
    """Link distributions of this environment into an empty one."""
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    for name in names:
        distribution = metadata.distribution(name)
        for file in distribution.files or ():
            source = Path(str(distribution.locate_file(file)))
            if ".." not in file.parts and source.exists():
                target = site / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(source)
