"""The page about view sets cannot drift: its tables are made from the code."""

from __future__ import annotations

from pathlib import Path

from lakebed.views.builtin import COLUMNS, built_in
from lakebed.views.reference import MARK, rewrite
from lakebed.views.sql.functions import FORBIDDEN

PAGE = Path(__file__).parents[2] / "docs" / "views.md"


def test_the_built_in_view_sets_are_documented_from_the_code() -> None:
    page = PAGE.read_text()
    assert MARK in page
    assert rewrite(page) == page, "run: make docs"


def test_every_column_has_a_meaning() -> None:
    for view_set in built_in():
        assert list(COLUMNS[view_set.name]) == view_set.schema.names
        assert all(COLUMNS[view_set.name].values())


def test_every_forbidden_function_has_a_reason() -> None:
    assert all(FORBIDDEN.values())
    assert all(name == name.lower() for name in FORBIDDEN)
