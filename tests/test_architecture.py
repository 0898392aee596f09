"""docs/architecture.md names functions and files that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
SOURCE = ROOT / "src" / "lakebed"


def _list_definitions(path: Path) -> set[str]:
    """Return the functions and classes of a module, and methods as ``Class.method``."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{member.name}"
                for member in node.body
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return names


def test_every_function_of_a_walk_is_defined_in_the_file_that_is_named() -> None:
    hops = re.findall(r"^\| \d+ \| `([\w.]+)` \| `([\w/]+\.py)` \|", PAGE, re.MULTILINE)
    hops += re.findall(r"`([\w.]+)` \(`([\w/]+\.py)`\)", PAGE)
    assert len(hops) > 45
    missing = [
        (name, file)
        for name, file in hops
        if not (SOURCE / file).exists()
        or (name not in _list_definitions(SOURCE / file) and not name.isupper())
    ]
    assert missing == []


def test_every_package_is_in_the_picture() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    picture = PAGE.partition("## An OTLP request")[0]
    assert [name for name in packages if not re.search(rf"\b{name}\b", picture)] == []


def test_every_file_and_folder_that_is_named_exists() -> None:
    paths = set(re.findall(r"`([a-z_]+(?:/[\w]+)*(?:/|\.py))`", PAGE)) - {
        "tests/test_architecture.py"
    }
    assert {path for path in paths if not (SOURCE / path).exists()} == set()
