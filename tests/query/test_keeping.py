"""Which merges keep rows of different times apart, so that a range may cut them."""

from __future__ import annotations

import pytest
import sqlglot

from lakebed.query.planning.merged_columns import keeps_apart, keeps_as_it_is


@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        ("SELECT * FROM v", True),
        ("SELECT h, n FROM v", True),
        ("SELECT h, sum(n) AS n FROM v GROUP BY h", True),
        ("SELECT h, exe, sum(n) AS n FROM v GROUP BY 1, 2", True),
        ("SELECT exe, h, sum(n) AS n FROM v GROUP BY 1", False),
        ("SELECT h, exe, sum(n) AS n FROM v GROUP BY ALL", True),
        ("SELECT h, exe, sum(n) AS n FROM v GROUP BY H, exe", True),
        (
            "SELECT date_trunc('hour', t) AS h, sum(n) AS n FROM v GROUP BY date_trunc('hour', t)",
            True,
        ),
        ("SELECT exe, max(h) AS h, sum(n) AS n FROM v GROUP BY exe", False),
        (
            "SELECT exe, h, n FROM (SELECT exe, max(h) AS h, sum(n) AS n FROM v GROUP BY exe) z",
            False,
        ),
        ("WITH z AS (SELECT exe, max(h) AS h FROM v GROUP BY exe) SELECT exe, h FROM z", False),
        ("WITH z AS (SELECT h, sum(n) AS n FROM v GROUP BY h) SELECT h, n FROM z", True),
        ("SELECT h, n FROM v JOIN v AS w USING (h)", False),
        ("SELECT h FROM v UNION ALL SELECT h FROM v", False),
        ("SELECT exe FROM v", False),
    ],
)
def test_rows_of_different_times_stay_apart(sql: str, kept: bool) -> None:
    assert keeps_apart(sqlglot.parse_one(sql, dialect="spark"), "h") is kept


@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        ("SELECT * FROM v", True),
        ("SELECT h, sum(n) AS n FROM v GROUP BY H", True),
        ("SELECT exe, max(h) AS h FROM v GROUP BY exe", False),
        ("SELECT date_trunc('hour', h) AS h FROM v GROUP BY date_trunc('hour', h)", False),
        ("SELECT t AS h, sum(n) AS n FROM v GROUP BY t", False),
        ("WITH z AS (SELECT h AS x, sum(n) AS n FROM v GROUP BY h) SELECT x AS h, n FROM z", True),
        ("WITH z AS (SELECT t AS h, sum(n) AS n FROM v GROUP BY t) SELECT h, n FROM z", False),
        ("SELECT h FROM (SELECT date_trunc('hour', h) AS h, n FROM v) z GROUP BY h", False),
        ("SELECT h FROM v UNION ALL SELECT h FROM v", False),
    ],
)
def test_times_that_stay_as_they_are(sql: str, kept: bool) -> None:
    assert keeps_as_it_is(sqlglot.parse_one(sql, dialect="spark"), "h") is kept
