"""Declarations of SQL view sets: read from TOML, written back, and everything wrong said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import BadDefinition, BadInput
from lakebed.views.sql.declaration import SqlView, format_size, parse_size, read_toml, write_toml

MINIMAL = """
name = "errors"
time_column = "minute"
sql = "SELECT minute FROM log_entries"
merge_sql = "SELECT minute FROM errors"
"""


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(BadDefinition) as caught:
        read_toml(text, "f.toml")
    return caught.value.problems


def test_a_minimal_declaration_is_read() -> None:
    view = read_toml(MINIMAL, "f.toml")
    assert view == SqlView(
        "errors", "SELECT minute FROM log_entries", "minute", "SELECT minute FROM errors"
    )
    assert (view.target_bytes, view.retention_us) == (64 << 20, None)
    assert list(view.find_problems()) == []


def test_everything_can_be_declared() -> None:
    more = 'sort_order = ["minute"]\ntarget_size = "16MiB"\nretention = "30d"\ndescription = "x"'
    view = read_toml(MINIMAL + more, "f.toml")
    assert view.sort_order == ("minute",)
    assert view.target_bytes == 16 << 20
    assert view.retention_us == 30 * 24 * 3600 * 1_000_000
    assert view.description == "x"


def test_layout_around_sql_is_not_part_of_it() -> None:
    view = SqlView("a", "\r\n SELECT a\r\nFROM t ;\n ", "a", "SELECT a\rFROM a")
    assert view.sql == "SELECT a\nFROM t"
    assert view.merge_sql == "SELECT a\nFROM a"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", ["f.toml is not TOML: invalid value (at end of document)"]),
        ("", [f"f.toml: {key} is missing" for key in ("name", "sql", "time_column", "merge_sql")]),
        (
            MINIMAL + 'sorting = ["a"]\nretention = 30',
            [
                "f.toml: 'sorting' means nothing; known: name, sql, time_column, merge_sql, "
                "sort_order, target_size, retention, description",
                "f.toml: retention must be text, not 30",
            ],
        ),
        (MINIMAL + 'sort_order = "a"', ["f.toml: sort_order must be a list of columns"]),
        (MINIMAL + "sort_order = [1]", ["f.toml: sort_order must be a list of columns"]),
        (MINIMAL + 'name = "b"', ["f.toml is not TOML: cannot overwrite a value"]),
    ],
)
def test_a_wrong_shape_is_explained(text: str, said: list[str]) -> None:
    found = problems(text)
    assert len(found) == len(said)
    for one, other in zip(found, said, strict=True):
        assert one.startswith(other)


def test_wrong_values_are_explained_together() -> None:
    view = SqlView("Errors", "x", "", "y", ("a", "a"), "much", "long")
    assert [problem.split(";")[0] for problem in view.find_problems()] == [
        "'Errors' is not a view set name",
        "Errors: time_column is empty",
        "Errors: cannot use 'much' as a size",
        "Errors: cannot read 'long' as a duration",
        "Errors: sort_order names a column twice",
    ]


@pytest.mark.parametrize(
    "values", [{"name": 3}, {"sql": None}, {"sort_order": "minute"}, {"target_size": 5}]
)
def test_python_values_of_other_types_are_refused(values: dict[str, object]) -> None:
    parts: dict[str, object] = {"name": "a", "sql": "x", "time_column": "t", "merge_sql": "y"}
    with pytest.raises(BadInput):
        SqlView(**(parts | values))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["0", "2GiB", "1TiB", "-1", "1.5MiB", "", "64 mib", "9" * 30])
def test_absurd_sizes_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="as a size"):
        parse_size(text)


@given(st.integers(1, (1 << 31) - 1))
def test_sizes_round_trip(count: int) -> None:
    assert parse_size(format_size(count)) == count


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(TEXT, TEXT, TEXT, st.lists(TEXT, max_size=3), TEXT)
def test_a_declaration_round_trips_through_toml(
    sql: str, merge_sql: str, column: str, order: list[str], description: str
) -> None:
    view = SqlView("a", sql, column, merge_sql, tuple(order), "1KiB", "1w", description)
    assert read_toml(write_toml(view), "f.toml") == view


def test_sql_stays_readable_in_toml() -> None:
    view = SqlView("a", "SELECT 'x'\nFROM t", "time", "SELECT ''' FROM a")
    assert "sql = '''\nSELECT 'x'\nFROM t\n'''" in write_toml(view)
    assert read_toml(write_toml(view), "f.toml") == view
