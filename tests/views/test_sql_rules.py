"""The rules for SQL of view sets, attacked: nothing that gives other rows the next time, reads
anything but view sets or does anything but read gets through, however it is spelled.
"""

from __future__ import annotations

import logging

import pytest

from lakebed.views.sql import functions
from lakebed.views.sql.rules import normalise, parse


def problems(text: str) -> str:
    return "\n".join(parse(normalise(text)).problems)


SPELLINGS = {
    "plain": "SELECT time, {} AS x FROM t",
    "in a subquery": "SELECT time FROM (SELECT time, {} AS x FROM t) AS s",
    "in a CTE": "WITH c AS (SELECT {} AS x FROM t) SELECT x FROM c",
    "in an unused CTE": "WITH c AS (SELECT {} AS x FROM t) SELECT time FROM t",
    "in the other half of a union": "SELECT time FROM t UNION ALL SELECT {} AS time FROM t",
    "in WHERE": "SELECT time FROM t WHERE x < {}",
    "in EXISTS": "SELECT time FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = {})",
    "in GROUP BY": "SELECT max(time) AS time FROM t GROUP BY {}",
    "in HAVING": "SELECT max(time) AS time FROM t GROUP BY a HAVING max(b) > {}",
    "in ORDER BY": "SELECT time FROM t ORDER BY {} LIMIT 3",
    "in a window": "SELECT sum(a) OVER (PARTITION BY {} ORDER BY time) AS x FROM t",
    "in a join": "SELECT t.time FROM t JOIN u ON t.a = {}",
    "in CASE": "SELECT CASE WHEN a THEN {} ELSE b END AS x FROM t",
    "in a lambda": "SELECT transform(list, x -> x + {}) AS x FROM t",
    "in FILTER": "SELECT sum(a) FILTER (WHERE b < {}) AS x FROM t GROUP BY c",
    "in an argument": "SELECT coalesce(a, abs({})) AS x FROM t",
    "in a lateral view": "SELECT k FROM t LATERAL VIEW explode(array({})) e AS k",
    "after a comment": "SELECT a -- harmless\n, {} AS x FROM t",
    "after a carriage return": "SELECT a -- harmless\r, {} AS x\nFROM t",
    "after a nested comment": "SELECT a /* /* */ */, {} AS x FROM t",
}


@pytest.mark.parametrize("place", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("call", ["rand()", "now()", "current_timestamp", "current_user()"])
def test_no_place_hides_what_changes(place: str, call: str) -> None:
    name = call.removesuffix("()")
    assert f"uses {name}" in problems(place.format(call))


@pytest.mark.parametrize("name", functions.FORBIDDEN)
@pytest.mark.parametrize(
    "spelling",
    [
        "{}()",
        "{} ( )",
        "`{}`()",
        '"{}"()',
        "{}/* */(1, 2)",
        "builtin.{}()",
        "system.builtin.`{}`()",
    ],
)
def test_no_spelling_hides_a_forbidden_function(name: str, spelling: str) -> None:
    for cased in (name, name.upper(), name.title()):
        said = problems(f"SELECT {spelling.format(cased)} AS x FROM t")
        assert said, cased
        assert "cannot be parsed" in said or f"uses {name}(), which" in said


@pytest.mark.parametrize("name", sorted(functions.WITHOUT_PARENTHESES))
def test_functions_without_parentheses_are_refused(name: str) -> None:
    for spelling in (name, name.upper(), f"`{name}`", f'"{name.title()}"'):
        said = problems(f"SELECT {spelling} AS x FROM t WHERE a > 1")
        assert f"uses {name}, which" in said
        assert "if a column is meant, write its table before it" in said
    assert problems(f"SELECT t.`{name}` AS x FROM t") == ""
    assert problems(f"SELECT count(*) AS `{name}` FROM t GROUP BY a") == ""


@pytest.mark.parametrize(
    "moment",
    [
        "TIMESTAMP 'now'",
        "date'Today'",
        "DATE /* */ ' tomorrow '",
        "timestamp_ntz 'yesterday UTC'",
        "CAST('now' AS TIMESTAMP)",
        "'NOW'::timestamp",
        "try_cast('\ttoday' AS date)",
        "to_timestamp('now')",
        "'now'",
        "'no' 'w'",
        "CAST('no' 'w' AS timestamp)",
        r"TIMESTAMP 'n\u006fw'",
        r"CAST('\156ow' AS timestamp)",
        "CAST(concat('no', 'w') AS timestamp)",
        "TIMESTAMP '12:34'",
        "CAST('T12:34:56' AS timestamp)",
        "TIMESTAMP r'now'",
    ],
)
def test_no_words_hide_the_clock(moment: str) -> None:
    assert problems(f"SELECT a FROM t WHERE time < {moment}")


@pytest.mark.parametrize(
    "moment",
    [
        "TIMESTAMP '2026-01-01'",
        "DATE '2026-11-15'",
        "CAST('2026' AS timestamp)",
        "CAST(a AS timestamp)",
        "CAST(concat(a, 'x') AS date)",
        "'2026-01-01 10:00:00'",
        "to_timestamp(a, 'HH:mm')",
    ],
)
def test_fixed_moments_are_fine(moment: str) -> None:
    text = f"SELECT a FROM t WHERE time < {moment} AND b LIKE 'now' AND c = 'know nowhere'"
    assert problems(text) == ""


@pytest.mark.parametrize("space", ["\xa0", "\u2003", "\x0b", "\x0c", "\x85", "\u3000"])
def test_spaces_that_are_not_spaces_everywhere_are_refused(space: str) -> None:
    code = f"U+{ord(space):04X}"
    for text in (f"SELECT rand{space}() AS a FROM t", f"SELECT a,{space}now() AS b FROM t"):
        assert code in problems(text)


def test_unix_timestamp_is_fine_about_a_value() -> None:
    assert problems("SELECT unix_timestamp(time) AS x FROM t") == ""
    said = problems("SELECT a, unix_timestamp(/* now */) AS x FROM t")
    assert "uses unix_timestamp() without arguments, which reads the clock" in said


@pytest.mark.parametrize(
    "call",
    ["array_agg(a)", "collect_list(a)", "collect_set(a)", "listagg(a)", "string_agg(a, ',')"],
)
def test_lists_in_any_order_are_refused_unless_sorted(call: str) -> None:
    assert "whose order is by chance" in problems(f"SELECT {call} AS x FROM t GROUP BY b")
    assert "whose order is by chance" in problems(
        f"SELECT {call} AS x FROM (SELECT array_sort(a) AS a, b FROM t) AS s GROUP BY b"
    )
    for sorting in ("array_sort({})", "sort_array({})", "array_sort(flatten({}))"):
        assert problems(f"SELECT {sorting.format(call)} AS x FROM t GROUP BY b") == ""


def test_a_list_with_an_order_is_fine() -> None:
    listed = "listagg(a, ',') WITHIN GROUP (ORDER BY a)"
    assert problems(f"SELECT {listed} AS x FROM t GROUP BY b") == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (" ;; ", "is empty"),
        ("-- nothing", "must be a SELECT"),
        ("SELEC a FROM t", "must be a SELECT, not SELEC"),
        ("SELECT a FROM t WHERE", "cannot be parsed"),
        ("SELECT 'a FROM t", "cannot be parsed"),
        ("SELECT a FROM t; SELECT b FROM t", "must be one SELECT"),
        ("SELECT a FROM t; DROP TABLE t", "must be one SELECT"),
        ("DROP TABLE t", "must be a SELECT, not DROP"),
        ("CREATE TABLE x AS SELECT a FROM t", "must be a SELECT, not CREATE"),
        ("INSERT INTO t SELECT 1", "must be a SELECT, not INSERT"),
        ("INSERT OVERWRITE DIRECTORY 'x' SELECT 1", "must be a SELECT, not INSERT"),
        ("WITH c AS (SELECT 1 AS a) INSERT INTO t SELECT a FROM c", "must be a SELECT"),
        ("WITH c AS (SELECT 1 AS a) DELETE FROM t", "must be a SELECT"),
        ("MERGE INTO t USING u ON a = b WHEN MATCHED THEN DELETE", "must be a SELECT"),
        ("SET spark.x = y", "must be a SELECT, not SET"),
        ("USE a", "must be a SELECT, not USE"),
        ("CACHE TABLE x AS SELECT 1", "must be a SELECT"),
        ("EXPLAIN SELECT a FROM t", "must be a SELECT, not EXPLAIN"),
        ("COPY t TO 'x'", "must be a SELECT, not COPY"),
        ("VALUES (1)", "must be a SELECT, not VALUES"),
        ("TABLE t", "must be a SELECT, not TABLE"),
        ("FROM t SELECT a", "must be a SELECT, not FROM"),
        ("SELECT a INTO x FROM t", "must only read"),
        ("SELECT a FROM t |> WHERE a > 1", "uses |>"),
        ("SELECT a FROM parquet.`s3://x/y`", "reads parquet.s3://x/y; only view sets"),
        ("SELECT a FROM `csv`.`etc`", "reads csv.etc"),
        ("SELECT a FROM default.t", "reads default.t"),
        ("SELECT a FROM spark_catalog.default.t", "reads spark_catalog.default.t"),
        ("SELECT a FROM session.t", "reads session.t"),
        ("SELECT a FROM t WHERE b IN (SELECT b FROM json.`x`)", "reads json.x"),
        ("SELECT a FROM range(10)", "uses a table function"),
        ("SELECT a FROM t, range(10)", "uses a table function"),
        ("SELECT a FROM explode(array(1))", "uses a table function"),
        ("SELECT a FROM TABLE(range(10))", "uses a table function"),
        ("SELECT a FROM t, LATERAL explode(m)", "uses a table function"),
        ("SELECT a FROM t LATERAL VIEW my_function(m) e AS k", "uses a table function"),
        ("SELECT a FROM read_files('x')", "uses a table function"),
        ("SELECT a FROM IDENTIFIER('t')", "uses identifier()"),
        ("SELECT IDENTIFIER('a') AS a FROM t", "uses identifier()"),
        ("SELECT a FROM t TABLESAMPLE (10 PERCENT)", "uses TABLESAMPLE"),
        ("SELECT a FROM t VERSION AS OF 3", "in a way that view sets do not have"),
        ("SELECT a FROM t LIMIT 5", "without ORDER BY"),
        ("SELECT a FROM t OFFSET 5", "without ORDER BY"),
        ("SELECT a FROM (SELECT a FROM t LIMIT 5) AS s ORDER BY a", "without ORDER BY"),
        ("SELECT a FROM t SORT BY a LIMIT 5", "without ORDER BY"),
        ("SELECT a FROM t UNION ALL SELECT a FROM u LIMIT 5", "without ORDER BY"),
        ("SELECT /*+ REPARTITION(3) */ a FROM t", "has a hint"),
        ("SELECT a FROM (SELECT /*+ BROADCAST(t) */ a FROM t) AS s", "has a hint"),
        ("SELECT TRANSFORM(a) USING 'cat' AS (x) FROM t", "runs a script"),
        ("SELECT '${env:HOME}' AS x FROM t", "has ${…} in it"),
        ("SELECT a FROM t WHERE a = :p", "has a parameter"),
        ("SELECT a FROM t WHERE a = ?", "has a parameter"),
        ("WITH RECURSIVE c AS (SELECT 1 AS a) SELECT a FROM c", "is recursive"),
        ("SELECT spark_catalog.default.own(a) AS x FROM t", "of a schema"),
        ("SELECT reflect('java.util.UUID', 'randomUUID') AS x FROM t", "runs code outside SQL"),
        ("SELECT max(a) AS a FROM t", "aggregates without GROUP BY"),
        ("SELECT a FROM t UNION ALL SELECT count(*) AS a FROM t", "aggregates without GROUP BY"),
        ("SELECT max(a) FROM t GROUP BY b", "has a column without a name; write MAX(a) AS"),
        ("SELECT a + 1 FROM t", "has a column without a name"),
        ("SELECT " + "(" * 3000 + "a" + ")" * 3000 + " AS a FROM t", "is nested too deeply"),
        ("(" * 500 + "SELECT a FROM t" + ")" * 500, "is nested too deeply"),
        ("SELECT '" + "x" * 200_000 + "' AS a FROM t", "is longer than 100,000 characters"),
    ],
)
def test_what_is_refused(text: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert said in problems(text)
    parser_logs = [record for record in caplog.records if record.name.startswith("sqlglot")]
    assert parser_logs == []


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("SELECT * FROM t", ["t"]),
        ("select A from T as x where X.a > 1;", ["t"]),
        ('SELECT "a.b", "c" AS d FROM "t"', ["t"]),
        ("(SELECT a FROM t) UNION ALL (SELECT a FROM u)", ["t", "u"]),
        ("WITH c AS (SELECT a FROM t), d AS (SELECT a FROM c) SELECT a FROM d", ["t"]),
        ("SELECT t.a FROM t JOIN u USING (a) LEFT JOIN v ON v.a = u.a", ["t", "u", "v"]),
        ("SELECT a FROM t WHERE b IN (SELECT b FROM u)", ["t", "u"]),
        ("SELECT (SELECT max(a) FROM u) AS a FROM t", ["u", "t"]),
        ("SELECT a, k FROM t LATERAL VIEW explode(m) e AS k, v", ["t"]),
        ("SELECT explode(m) AS (k, v) FROM t", ["t"]),
        ("SELECT a FROM t ORDER BY a LIMIT 5", ["t"]),
        ("SELECT max(a) OVER (PARTITION BY b) AS a FROM t", ["t"]),
        ("SELECT t.a, n.b FROM t JOIN (VALUES (1, 'x')) AS n(a, b) ON t.a = n.a", ["t"]),
        ("SELECT user_id, now_and_then, uuid, version, mode FROM t", ["t"]),
        ("SELECT 'rand() now() ; DROP TABLE t' AS a FROM t", ["t"]),
        ("SELECT a /* rand() */ FROM t -- now()", ["t"]),
        ("SELECT date_trunc('minute', time) AS m, count(*) AS n FROM t GROUP BY 1", ["t"]),
        ("SELECT a, transform(list, x -> x + 1) AS l FROM t", ["t"]),
    ],
)
def test_what_is_allowed(text: str, reads: list[str]) -> None:
    parsed = parse(normalise(text))
    assert parsed.problems == ()
    assert sorted(parsed.reads) == sorted(reads)


def test_the_columns_of_which_one_is_picked_are_known() -> None:
    parsed = parse(
        "SELECT first_value(A) AS a, any_value(b) FILTER (WHERE c) AS b, last(d, true) AS d, "
        "max_by(e, f) AS e, max(g) AS g FROM t GROUP BY h"
    )
    assert parsed.problems == ()
    assert parsed.picked == {"a", "b", "d", "e"}


def test_names_for_parts_of_itself_are_known() -> None:
    assert parse("WITH Mine AS (SELECT a FROM t) SELECT a FROM mine").own == {"mine"}


def test_everything_wrong_is_said_at_once() -> None:
    said = problems("SELECT now(), rand() AS b FROM a.b LIMIT 3").splitlines()
    assert len(said) == 5


@pytest.mark.parametrize(
    ("text", "cuts", "compares"),
    [
        ("SELECT a, count(*) AS n FROM t GROUP BY a HAVING count(*) > 60", ("HAVING",), False),
        (
            "SELECT a, n FROM (SELECT a, count(*) AS n FROM t GROUP BY a HAVING count(*) > 6) AS s",
            ("HAVING",),
            False,
        ),
        ("SELECT * FROM (SELECT a FROM t ORDER BY a LIMIT 60) AS s", ("LIMIT",), False),
        ("SELECT a FROM t WHERE b < (SELECT avg(b) FROM t)", (), True),
        ("SELECT a FROM t WHERE b IN (SELECT max(b) FROM t GROUP BY a)", (), True),
        ("SELECT a, (SELECT max(b) FROM t) AS m FROM t", (), True),
        ("SELECT a FROM t WHERE EXISTS (SELECT count(*) FROM u)", (), True),
        ("SELECT a FROM t WHERE b IN (SELECT b FROM u)", (), False),
        ("SELECT a, n FROM (SELECT a, count(*) AS n FROM t GROUP BY a) AS s", (), False),
        ("WITH s AS (SELECT a, sum(b) AS n FROM t GROUP BY a) SELECT a, n FROM s", (), False),
        ("(SELECT a, sum(b) AS n FROM t GROUP BY a) UNION ALL (SELECT a, b FROM u)", (), False),
    ],
)
def test_what_does_not_add_up_is_seen_wherever_it_stands(
    text: str, cuts: tuple[str, ...], compares: bool
) -> None:
    parsed = parse(text)
    assert (parsed.problems, parsed.cuts, parsed.compares) == ((), cuts, compares)
