"""Random queries over the built-in view sets, in the SQL that the engines have in common; what they
read differently is in docs/dialects.md and is not written here.

Every choice has a name and is counted; what was used least is chosen most, so that a few dozen
queries use everything at least once. The same seed gives the same queries.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

Make = Callable[[], str]
OFFSETS = (-1, 0, 0, 1)
"""From a value of the lake to the one before it, itself and the one after it."""


@dataclass(frozen=True)
class Table:
    """A view set as the grammar knows it: columns by kind, and columns that tell rows apart."""

    name: str
    key: tuple[str, ...]
    ints: tuple[str, ...]
    texts: tuple[str, ...]
    times: tuple[str, ...]
    floats: tuple[str, ...] = ()
    bools: tuple[str, ...] = ()


TABLES = (
    Table(
        "log_entries",
        ("block_id", "time", "time_unix_nano", "observed_time_unix_nano", "msg", "severity_number"),
        ("level", "severity_number", "flags", "dropped_attributes_count"),
        ("msg", "target", "exe", "severity_text", "trace_id", "event_name", "body_kind"),
        ("time", "insert_time"),
    ),
    Table(
        "measures",
        ("block_id", "name", "time_unix_nano"),
        ("int_value", "count", "scale", "flags"),
        ("name", "unit", "kind", "temporality", "computer", "description"),
        ("time", "insert_time"),
        ("value", "sum", "min", "max"),
        ("is_monotonic",),
    ),
    Table(
        "spans",
        ("span_id",),
        ("flags", "dropped_events_count", "dropped_links_count"),
        ("name", "kind", "status_code", "status_message", "trace_id", "parent_span_id"),
        ("time", "end_time"),
    ),
    Table(
        "blocks",
        ("block_id",),
        ("nb_objects", "payload_size"),
        ("encoding", '"processes.exe"', '"streams.format"', "stream_id"),
        ("begin_time", "insert_time"),
    ),
    Table(
        "processes",
        ("process_id",),
        ("tsc_frequency",),
        ("exe", "username", "computer"),
        ("start_time", "last_update_time"),
    ),
    Table(
        "streams",
        ("stream_id",),
        (),
        ("stream_id", "process_id", "format"),
        ("insert_time", "last_update_time"),
    ),
    Table(
        "log_stats",
        ("time_bin", "process_id", "level", "target"),
        ("level", "count"),
        ("target", "process_id"),
        ("time_bin",),
    ),
)
BY_NAME = {each.name: each for each in TABLES}
JOINS = (
    ("log_entries", "processes", "process_id"),
    ("measures", "streams", "stream_id"),
    ("log_entries", "spans", "trace_id"),
    ("spans", "blocks", "block_id"),
    ("blocks", "streams", "stream_id"),
    ("log_stats", "processes", "process_id"),
)

Values = Mapping[tuple[str, str], Sequence[Any]]
"""By table and column, values that are there."""


@dataclass
class Query:
    """One statement, whether its rows come in a certain order, and the range it is asked for."""

    sql: str
    ordered: bool = False
    begin: str | None = None
    end: str | None = None


class Grammar:
    """Makes queries."""

    def __init__(self, seed: int, values: Values) -> None:
        self._random = random.Random(seed)
        self._values = values
        self.names: set[str] = set()
        self.used: Counter[str] = Counter()
        self._ordered = False

    def query(self) -> Query:
        """The next one."""
        self._ordered = False
        sql = self.pick(
            "query",
            plain=self.plain,
            grouped=self.grouped,
            aggregated=self.aggregated,
            joined=self.joined,
            windowed=self.windowed,
            set_operation=self.set_operation,
            with_cte=self.with_cte,
            over_subquery=self.over_subquery,
        )
        made = Query(sql, self._ordered)
        self.pick(
            "range",
            of_all_times=lambda: "",
            of_a_range=lambda: self.range_of(made),
            of_all_the_same=lambda: "",
        )
        return made

    # choices

    def pick(self, place: str, **options: Make) -> str:
        """One of the options, by their names; those that were used least are likeliest."""
        named = {f"{place}: {name}": make for name, make in options.items()}
        self.names.update(named)
        least = min(self.used[name] for name in named)
        rare = [name for name in named if self.used[name] == least]
        name = self.one(rare if not least or self._random.random() < 0.7 else list(named))
        self.used[name] += 1
        return named[name]()

    def one(self, options: Sequence[Any]) -> Any:
        return self._random.choice(options)

    def some(self, options: Sequence[Any], least: int = 1, most: int = 3) -> list[Any]:
        count = min(len(options), self._random.randint(least, most))
        return self._random.sample(list(options), count)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def table(self, **needs: bool) -> Table:
        fitting = [each for each in TABLES if all(getattr(each, kind) for kind in needs)]
        name = self.pick("table", **{each.name: (lambda name=each.name: name) for each in fitting})
        return BY_NAME[name]

    # queries

    def plain(self) -> str:
        table = self.table()
        values = [self.scalar(table) for _ in range(self.number(2, 5))]
        values += [self.real(table) for _ in range(4) if table.floats]
        columns = [f"{value} AS c{place}" for place, value in enumerate(values)]
        sql = f"FROM {table.name} AS t WHERE {self.condition(table)}"
        return self.pick(
            "rows",
            all=lambda: f"SELECT {', '.join(columns)} {sql}",
            distinct=lambda: f"SELECT DISTINCT {', '.join(columns)} {sql}",
            first_of_an_order=lambda: self.first_rows(table, columns, sql),
        )

    def first_rows(self, table: Table, columns: Sequence[str], rest: str) -> str:
        self._ordered = True
        order = ", ".join(
            f"t.{column} {self.pick('order', up=lambda: 'ASC', down=lambda: 'DESC')} "
            f"{self.pick('nulls', first=lambda: 'NULLS FIRST', last=lambda: 'NULLS LAST')}"
            for column in table.key
        )
        limit = f"LIMIT {self.number(3, 30)}"
        cut = self.pick(
            "limit",
            limited=lambda: limit,
            with_offset=lambda: f"{limit} OFFSET {self.number(1, 5)}",
        )
        return f"SELECT {', '.join(columns)} {rest} ORDER BY {order} {cut}"

    def grouped(self) -> str:
        table = self.table()
        keys = [self.group_key(table) for _ in range(self.number(1, 2))]
        keys = list(dict.fromkeys(keys))
        measures = [f"{self.aggregate(table)} AS a{place}" for place in range(self.number(2, 4))]
        columns = [f"{key} AS k{place}" for place, key in enumerate(keys)] + measures
        columns += self.of_floats(table)
        having = self.pick(
            "having",
            nothing=lambda: "",
            a_count=lambda: f" HAVING count(*) >= {self.number(1, 3)}",
            an_aggregate=lambda: f" HAVING {self.total(table)} IS NOT NULL",
        )
        by = self.pick(
            "group by",
            expressions=lambda: ", ".join(keys),
            positions=lambda: ", ".join(str(place + 1) for place in range(len(keys))),
        )
        return (
            f"SELECT {', '.join(columns)} FROM {table.name} AS t "
            f"WHERE {self.condition(table)} GROUP BY {by}{having}"
        )

    def aggregated(self) -> str:
        table = self.table()
        measures = [f"{self.aggregate(table)} AS a{place}" for place in range(self.number(3, 6))]
        measures += self.of_floats(table)
        condition = self.pick(
            "aggregate over",
            some_rows=lambda: self.condition(table),
            no_rows=lambda: f"t.{table.texts[0]} = 'nothing is called this'",
        )
        return f"SELECT {', '.join(measures)} FROM {table.name} AS t WHERE {condition}"

    def of_floats(self, table: Table) -> list[str]:
        """More of the one view set that has them."""
        if not table.floats:
            return []
        return [f"{self.float_aggregate(table)} AS f{place}" for place in range(3)]

    def float_aggregate(self, table: Table) -> str:
        """Extremes are asked of numbers only: among values that are none they are by chance."""
        real = f"t.{self.one(table.floats)}"
        numbers = f"FILTER (WHERE {real} <> CAST('NaN' AS DOUBLE))"
        return self.pick(
            "float aggregate",
            sum=lambda: f"sum({self.real(table)})",
            average=lambda: f"avg({self.real(table)})",
            least=lambda: f"min({real}) {numbers}",
            greatest=lambda: f"max({real}) {numbers}",
        )

    def joined(self) -> str:
        left_name, right_name, column = self.one(JOINS)
        left, right = BY_NAME[left_name], BY_NAME[right_name]
        kind = self.pick(
            "join",
            inner=lambda: "JOIN",
            left=lambda: "LEFT JOIN",
            right=lambda: "RIGHT JOIN",
            full=lambda: "FULL JOIN",
        )
        on = f"t.{column} = u.{column}"
        on = self.pick(
            "join on",
            a_column=lambda: on,
            more=lambda: f"{on} AND {self.comparison(right, 'u')}",
        )
        source = f"FROM {left.name} AS t {kind} {right.name} AS u ON {on}"
        is_right = kind == "RIGHT JOIN"  # above which the engine refuses conditions on the left
        return self.pick(
            "joined",
            rows=lambda: (
                f"SELECT {self.scalar(left)} AS c0, {self.scalar(right, 'u')} AS c1, "
                f"{self.text(right, 'u')} AS c2, {self.scalar(left)} AS c3 "
                f"{source} WHERE "
                f"{self.comparison(right, 'u') if is_right else self.condition(left)}"
            ),
            groups=lambda: (
                f"SELECT {self.group_key(right, 'u')} AS k0, count(*) AS a0, "
                f"{self.aggregate(left)} AS a1 {source} GROUP BY 1"
            ),
            exists=lambda: self.semi(left, right, column, "EXISTS"),
            not_exists=lambda: self.semi(left, right, column, "NOT EXISTS"),
        )

    def semi(self, left: Table, right: Table, column: str, word: str) -> str:
        return (
            f"SELECT {self.scalar(left)} AS c0, {self.scalar(left)} AS c1 FROM {left.name} AS t "
            f"WHERE {word} (SELECT 1 FROM {right.name} AS u "
            f"WHERE t.{column} = u.{column} AND {self.comparison(right, 'u')})"
        )

    def windowed(self) -> str:
        table = self.table()
        functions = [f"{self.window(table)} AS w{place}" for place in range(self.number(2, 3))]
        inner = (
            f"SELECT t.{table.key[0]} AS k, {', '.join(functions)} FROM {table.name} AS t "
            f"WHERE {self.condition(table)}"
        )
        return self.pick(
            "windowed",
            rows=lambda: inner,
            filtered=lambda: f"SELECT k, w0, w1 FROM ({inner}) AS x WHERE w0 IS NOT NULL",
        )

    def partition_key(self, table: Table) -> str:
        """Return a key in which zeros of both signs are one; see docs/dialects.md."""
        key = self.group_key(table)
        return f"{key} + 0.0e0" if key.removeprefix("t.") in table.floats else key

    def window(self, table: Table) -> str:
        part = self.pick(
            "partition by",
            a_column=lambda: f"PARTITION BY {self.partition_key(table)} ",
            nothing=lambda: "",
        )
        total = "ORDER BY " + ", ".join(f"t.{column} ASC NULLS LAST" for column in table.key)
        by_text = f"ORDER BY {self.text_column(table)} ASC NULLS FIRST"
        value = self.pick(
            "window over",
            a_number=lambda: self.integer(table),
            a_text=lambda: self.text(table),
        )
        recent = "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"
        return self.pick(
            "window",
            row_number=lambda: f"row_number() OVER ({part}{total})",
            rank=lambda: f"rank() OVER ({part}{by_text})",
            dense_rank=lambda: f"dense_rank() OVER ({part}{by_text})",
            lag=lambda: f"lag({value}, 1) OVER ({part}{total})",
            lead=lambda: f"lead({value}, 2) OVER ({part}{total})",
            whole=lambda: f"{self.total(table)} OVER ({part})",
            running=lambda: f"count(*) OVER ({part}{total} {recent})",
            peers=lambda: f"count({value}) OVER ({part}{by_text})",
            first=lambda: f"first_value({value}) OVER ({part}{total})",
            ntile=lambda: f"ntile(4) OVER ({part}{total})",
        )

    def set_operation(self) -> str:
        operator = self.pick(
            "set",
            union=lambda: "UNION",
            union_all=lambda: "UNION ALL",
            intersect=lambda: "INTERSECT",
            difference=lambda: "EXCEPT",
        )
        one = self.table()
        other = self.table() if operator.startswith("UNION") else one
        sides = [
            f"SELECT {self.text_column(each)} AS c0, {self.whole(each)} AS c1 "
            f"FROM {each.name} AS t WHERE {self.condition(each)}"
            for each in (one, other)
        ]
        return f"{sides[0]} {operator} {sides[1]}"

    def whole(self, table: Table) -> str:
        return self.pick(
            "set column",
            a_length=lambda: f"length({self.text_column(table)})",
            a_constant=lambda: "7",
        )

    def with_cte(self) -> str:
        table = self.table()
        inner = (
            f"SELECT {self.partition_key(table)} AS k, count(*) AS n, {self.total(table)} AS s "
            f"FROM {table.name} AS t WHERE {self.condition(table)} GROUP BY 1"
        )
        return self.pick(
            "cte",
            once=lambda: f"WITH x AS ({inner}) SELECT k, n, s FROM x WHERE n >= 2",
            twice=lambda: (
                f"WITH x AS ({inner}), y AS (SELECT max(n) AS most FROM x) "
                "SELECT x.k, x.n, y.most FROM x CROSS JOIN y WHERE x.n <= y.most"
            ),
            joined_to_itself=lambda: (
                f"WITH x AS ({inner}) SELECT a.n AS n0, b.n AS n1 FROM x AS a JOIN x AS b "
                "ON a.k = b.k"
            ),
        )

    def over_subquery(self) -> str:
        table = self.table()
        text = self.text_column(table)
        return self.pick(
            "subquery",
            scalar=lambda: (
                f"SELECT {self.scalar(table)} AS c0, (SELECT count(*) FROM {table.name}) AS c1 "
                f"FROM {table.name} AS t WHERE {self.condition(table)}"
            ),
            of_the_most=lambda: (
                f"SELECT count(*) AS n, min({text}) AS c1 FROM {table.name} AS t WHERE "
                f"t.{table.times[0]} >= (SELECT min(u.{table.times[0]}) FROM {table.name} AS u)"
            ),
            in_rows=lambda: (
                f"SELECT {self.scalar(table)} AS c0 FROM {table.name} AS t WHERE {text} IN "
                f"(SELECT u{text[1:]} FROM {table.name} AS u WHERE {self.comparison(table, 'u')})"
            ),
            derived=lambda: (
                f"SELECT c1, count(*) AS n FROM (SELECT {self.scalar(table)} AS c0, "
                f"{self.group_key(table)} AS c1 FROM {table.name} AS t) AS x GROUP BY c1"
            ),
        )

    def range_of(self, query: Query) -> str:
        """Limit the query to a range whose bounds are those of rows, or a microsecond beside."""
        times = self._values["log_entries", "time"]
        query.begin = self.bound(times[: len(times) // 2]) + "Z"
        by_insert_time = " blocks AS" in query.sql or " streams AS" in query.sql
        until = self.pick(
            "until",
            ever=lambda: "",
            later=lambda: "2027-01-01T00:00:00Z",
            then=lambda: "" if by_insert_time else self.bound(times[-3:]) + "Z",
        )
        query.end = until or None
        return ""

    # conditions

    def condition(self, table: Table, alias: str = "t") -> str:
        simple = [self.comparison(table, alias) for _ in range(2)]
        return self.pick(
            "condition",
            none=lambda: "1 = 1",
            one=lambda: simple[0],
            both=lambda: f"{simple[0]} AND {simple[1]}",
            either=lambda: f"({simple[0]} OR {simple[1]})",
            negated=lambda: f"NOT ({simple[0]})",
        )

    def comparison(self, table: Table, alias: str = "t") -> str:
        text = self.text_column(table, alias)
        time = f"{alias}.{self.one(table.times)}"
        options: dict[str, Make] = {
            "equals": lambda: f"{text} = {self.literal(table, text)}",
            "differs": lambda: f"{text} <> {self.literal(table, text)}",
            "is_null": lambda: f"{text} IS NULL",
            "is_not_null": lambda: f"{text} IS NOT NULL",
            "in_texts": lambda: (
                f"{text} IN ({self.literal(table, text)}, {self.literal(table, text)}, 'x')"
            ),
            "like": lambda: f"{text} LIKE '{self.pattern(table, text)}'",
            "not_like": lambda: f"{text} NOT LIKE '{self.pattern(table, text)}'",
            "text_order": lambda: f"{text} >= {self.literal(table, text)}",
            "distinct_from": lambda: f"({text} IS DISTINCT FROM {self.literal(table, text)})",
            "since": lambda: f"{time} >= {self.literal(table, time)}",
            "since_elsewhere": lambda: f"{time} >= {self.elsewhere(table, time)}",
            "until": lambda: f"{time} <= TIMESTAMP {self.literal(table, time)}",
            "after_an_interval": lambda: (
                f"{time} > TIMESTAMP {self.literal(table, time)} - INTERVAL '2' SECOND"
            ),
        }
        if table.ints:
            number = f"{alias}.{self.one(table.ints)}"
            options |= {
                "between": lambda: (
                    f"{number} BETWEEN {self.literal(table, number)} "
                    f"AND {self.literal(table, number)} + 1000"
                ),
                "in_numbers": lambda: f"{number} IN ({self.literal(table, number)}, 2, NULL)",
                "less": lambda: f"{number} <= {self.literal(table, number)}",
                "computed": lambda: f"{self.integer(table, alias)} >= 2",
            }
        if table.floats:
            real = f"{alias}.{self.one(table.floats)}"
            options |= {
                "float_order": lambda: f"{real} > {self.number(-5, 50)}",
                "float_nan": lambda: f"{real} = CAST('NaN' AS DOUBLE)",
            }
        if table.bools:
            options["bool"] = lambda: f"{alias}.{self.one(table.bools)}"
            options["bool_is_not"] = lambda: f"{alias}.{self.one(table.bools)} IS NOT TRUE"
        return self.pick("comparison", **options)

    def literal(self, table: Table, column: str) -> str:
        """Return a value of the column; of a number or a time also the one before or after."""
        name = column.split(".", 1)[1]
        values = self._values[table.name, name]
        value = self.bound(values) if name in table.times else self.one(values)
        if isinstance(value, int):
            return str(value + self.one(OFFSETS))
        return "'" + str(value).replace("'", "''") + "'"

    def bound(self, times: Sequence[Any]) -> str:
        """Return a time, often the first or last there is, or a microsecond before or after it."""
        time = datetime.fromisoformat(str(self.one([times[0], times[-1], self.one(times)])))
        return str(time + timedelta(microseconds=self.one(OFFSETS)))

    def pattern(self, table: Table, column: str) -> str:
        """A pattern that fits a value of the column."""
        value = str(self.one(self._values[table.name, column.split(".", 1)[1]]))
        plain = "".join("_" if char in "%_'\\" else char for char in value)[:12]
        cut = self.number(1, max(1, len(plain)))
        return self.pick(
            "pattern",
            begins=lambda: plain[:cut] + "%",
            holds=lambda: "%" + plain[cut // 2 : cut] + "%",
            one_differs=lambda: "_" + plain[1:] + "%",
        )

    def elsewhere(self, table: Table, column: str) -> str:
        """The same instant as clocks elsewhere show it."""
        value = str(self.one(self._values[table.name, column.split(".", 1)[1]]))
        zone = timezone(timedelta(minutes=self.one([60, -480, 330, 765])))
        return f"'{datetime.fromisoformat(value).astimezone(zone).isoformat()}'"

    # values

    def text_column(self, table: Table, alias: str = "t") -> str:
        return f"{alias}.{self.one(table.texts)}"

    def scalar(self, table: Table, alias: str = "t") -> str:
        options: dict[str, Make] = {
            "text": lambda: self.text(table, alias),
            "time": lambda: self.time(table, alias),
            "integer": lambda: self.integer(table, alias),
            "truth": lambda: f"({self.comparison(table, alias)})",
        }
        if table.floats:
            options["float"] = lambda: self.real(table, alias)
        return self.pick("scalar", **options)

    def integer(self, table: Table, alias: str = "t") -> str:
        text = self.text_column(table, alias)
        options: dict[str, Make] = {
            "length": lambda: f"length({text})",
            "position": lambda: f"position('e' IN {text})",
            "part_of_time": lambda: f"extract(MINUTE FROM {alias}.{self.one(table.times)})",
            "case": lambda: (
                f"CASE WHEN {self.comparison(table, alias)} THEN 1 "
                f"WHEN {text} IS NULL THEN -1 ELSE 0 END"
            ),
        }
        if table.ints:
            number = f"{alias}.{self.one(table.ints)}"
            options |= {
                "column": lambda: number,
                "sum": lambda: f"{number} + {self.number(1, 9)}",
                "remainder": lambda: f"{number} % {self.number(2, 7)}",
                "absolute": lambda: f"abs({number} - 3)",
                "coalesce": lambda: f"coalesce({number}, -1)",
                "nullif": lambda: f"nullif({number}, {self.literal(table, number)})",
                "least": lambda: f"CASE WHEN {number} > 3 THEN 3 ELSE {number} END",
            }
        return self.pick("integer", **options)

    def real(self, table: Table, alias: str = "t") -> str:
        real = f"{alias}.{self.one(table.floats)}"
        return self.pick(
            "float",
            column=lambda: real,
            scaled=lambda: f"{real} * 0.5",
            divided=lambda: f"{real} / 3",
            absolute=lambda: f"abs({real})",
            coalesce=lambda: f"coalesce({real}, -1.5)",
            rooted=lambda: f"sqrt(abs({real}))",
            case=lambda: f"CASE WHEN {real} > 1 THEN {real} ELSE 0 END",
            from_integer=lambda: f"CAST({alias}.{self.one(table.ints)} AS DOUBLE) / 7",
        )

    def text(self, table: Table, alias: str = "t") -> str:
        text = self.text_column(table, alias)
        return self.pick(
            "text",
            column=lambda: text,
            upper=lambda: f"upper({text})",
            lower=lambda: f"lower({text})",
            part=lambda: f"substr({text}, {self.number(1, 4)}, {self.number(1, 8)})",
            joined=lambda: f"{text} || '-é-' || {self.text_column(table, alias)}",
            trimmed=lambda: f"trim({text})",
            replaced=lambda: f"replace({text}, 'e', 'ß')",
            coalesce=lambda: f"coalesce({text}, 'nichts – 無')",
            left=lambda: f"left({text}, {self.number(1, 6)})",
            case=lambda: (
                f"CASE {text} WHEN {self.literal(table, text)} THEN 'this' ELSE 'other' END"
            ),
            of_number=lambda: f"CAST({self.integer(table, alias)} AS VARCHAR(20))",
        )

    def time(self, table: Table, alias: str = "t") -> str:
        time = f"{alias}.{self.one(table.times)}"
        return self.pick(
            "time",
            column=lambda: time,
            second=lambda: f"date_trunc('second', {time})",
            minute=lambda: f"date_trunc('minute', {time})",
            day=lambda: f"date_trunc('day', {time})",
            date=lambda: f"CAST({time} AS DATE)",
            later=lambda: f"{time} + INTERVAL '90' MINUTE",
        )

    def group_key(self, table: Table, alias: str = "t") -> str:
        options: dict[str, Make] = {
            "text": lambda: self.text_column(table, alias),
            "second": lambda: f"date_trunc('second', {alias}.{self.one(table.times)})",
            "computed": lambda: self.integer(table, alias),
        }
        if table.ints:
            options["number"] = lambda: f"{alias}.{self.one(table.ints)}"
        if table.bools:
            options["truth"] = lambda: f"{alias}.{self.one(table.bools)}"
        if table.floats:
            options["float"] = lambda: f"{alias}.{self.one(table.floats)}"
        return self.pick("key", **options)

    def total(self, table: Table) -> str:
        return f"sum({self.integer(table)})"

    def aggregate(self, table: Table) -> str:
        text = self.text_column(table)
        options: dict[str, Make] = {
            "count_rows": lambda: "count(*)",
            "count_values": lambda: f"count({text})",
            "count_distinct": lambda: f"count(DISTINCT {text})",
            "sum": lambda: self.total(table),
            "average": lambda: f"avg({self.integer(table)})",
            "least_text": lambda: f"min({text})",
            "greatest_text": lambda: f"max({self.text(table)})",
            "least_time": lambda: f"min({self.time(table)})",
            "greatest_time": lambda: f"max(t.{self.one(table.times)})",
            "filtered": lambda: f"count(*) FILTER (WHERE {self.comparison(table)})",
            "conditional": lambda: f"sum(CASE WHEN {self.comparison(table)} THEN 1 ELSE 0 END)",
            "every": lambda: f"bool_and({self.comparison(table)})",
            "any": lambda: f"bool_or({self.comparison(table)})",
            "spread": lambda: f"stddev_pop({self.integer(table)})",
        }
        return self.pick("aggregate", **options)
