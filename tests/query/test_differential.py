"""The embedded engine, Spark and DuckDB answer generated queries alike, over the same snapshot:
part built, part fresh tail, with an empty partition and one of another schema beside.

What differs on purpose is in docs/dialects.md. Replay a run with LAKEBED_SEED; a query that fails
is printed whole.
"""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from lakebed.lake import Lake
from lakebed.model.time import to_instant
from lakebed.opening import init_lake
from lakebed.query.planning.conditions import Scan
from lakebed.query.planning.content import choose_bounds
from lakebed.samples.generator import BEGIN_NS, Generator
from lakebed.views.builtin import built_in
from tests.conftest import CAMPAIGN
from tests.parts.data import HOUR, T0
from tests.query.grammar import TABLES, Grammar, Query, Values

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

SEED = int(os.environ.get("LAKEBED_SEED", "20261115"))
QUERIES = 2_000 if CAMPAIGN else 80
VIEW_SETS = {each.name: each for each in built_in()}


def strange_numbers() -> bytes:
    """What samples never have: values that are no numbers, infinite, and zeros of both signs."""
    request = ExportMetricsServiceRequest()
    group = request.resource_metrics.add()
    metric = group.scope_metrics.add().metrics.add(name="strange – ßΩ", unit="'%_")
    numbers = (math.nan, math.inf, -math.inf, -0.0, 0.0, math.nan, 1e300, 5e-324)
    for place, number in enumerate(numbers):
        metric.gauge.data_points.add(time_unix_nano=BEGIN_NS + place, as_double=number)
    return request.SerializeToString()


def land(lake: Lake, generator: Generator, requests: int, size: int) -> None:
    for signal in ("logs", "metrics", "traces"):
        for _ in range(requests):
            lake.telemetry.land(signal, generator.serialized(signal, size))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Lake]:
    with init_lake(tmp_path_factory.mktemp("lake")) as lake:
        stats, entries = VIEW_SETS["log_stats"], VIEW_SETS["log_entries"]
        lake.views.ensure([entries])
        older = replace(stats, version=stats.version - 1)
        lake.views.register(older)
        decoy = dict.fromkeys(stats.schema.names) | {"time_bin": T0, "level": 99, "count": 99}
        rows = pa.Table.from_pylist([decoy], stats.schema)
        lake.partitions.publish("log_stats", T0, T0 + HOUR, rows)
        lake.views.ensure(built_in())
        lake.partitions.publish_completed_empty("log_entries", T0 + HOUR, T0 + 2 * HOUR)
        generator = Generator(SEED)
        lake.telemetry.land("metrics", strange_numbers())
        land(lake, generator, 2, 60)
        assert lake.pipeline.build(spark=spark).problems == []
        lake.telemetry.land("metrics", strange_numbers().replace(b"strange", b"unusual"))
        land(lake, generator, 1, 40)
        yield lake


@pytest.fixture(scope="module")
def values(lake: Lake) -> Values:
    """Some values of every column that the grammar compares; its keys tell rows apart."""
    found: dict[tuple[str, str], Sequence[Any]] = {}
    for table in TABLES:
        rows = lake.query(f"SELECT * FROM {table.name}").to_arrow()
        names = [each.strip('"') for each in (*table.texts, *table.ints)]
        keys = Counter(zip(*(rows[name].to_pylist() for name in table.key), strict=True))
        assert keys.most_common(1)[0][1] == 1, f"{table.key} is no key of {table.name}"
        for name in names:
            some = [each for each in rows[name].unique().to_pylist() if each is not None]
            written = name if "." not in name else f'"{name}"'
            found[table.name, written] = sorted(some)[:40] or ["x"]
        for name in table.times:
            times = rows[name].unique().to_pylist()
            found[table.name, name] = [
                each.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f") for each in sorted(times)
            ]
    return found


class Duck:
    """DuckDB on the files and the tail of one snapshot, read with its own reader."""

    def __init__(self, lake: Lake) -> None:
        import duckdb

        self._connection: duckdb.DuckDBPyConnection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        # The others have no capital ß.
        self._connection.execute("CREATE MACRO upper_(x) AS replace(upper(x), 'ẞ', 'SS')")
        queries = lake.queries
        with queries._taker.begin() as beginning:
            snapshot = beginning.take([Scan(name) for name in VIEW_SETS])
        tails = queries._read_tails(snapshot)
        assert len(snapshot.tables["log_entries"].files) > 0
        assert tails["log_entries"].num_rows > 0
        for name, table in snapshot.tables.items():
            paths = [str(lake.store.locate(each.file_path)) for each in table.files]  # type: ignore[attr-defined]
            parts = [f"SELECT * FROM read_parquet({paths})"] if paths else []
            tail = pa.concat_tables([table.view_set.schema.empty_table(), *tails[name].tables])
            self._connection.register("tail", tail)
            parts.append("SELECT * FROM tail")
            raw = " UNION ALL ".join(parts)
            self._connection.execute(f"CREATE TABLE raw_{name} AS {raw}")
            source = getattr(table.view_set.source, "merge_sql", f"SELECT * FROM {name}")
            merged = source.replace("first_value(", "any_value(")
            merged = re.sub(rf"\bFROM {name}\b", f"FROM raw_{name}", merged)
            self._connection.execute(f"CREATE TABLE all_{name} AS {merged}")
            self._connection.unregister("tail")
        snapshot.close()

    def ask(self, query: Query) -> pa.Table:
        for name, view_set in VIEW_SETS.items():
            within = None
            if query.begin is not None:
                from lakebed.model.time import TimeRange

                end = 1 << 61 if query.end is None else to_instant(query.end)
                within = TimeRange(to_instant(query.begin), end)
            begin, end_at = choose_bounds(view_set, within)
            bounds = [
                f"{view_set.time_column} {sign} make_timestamptz({at})"
                for sign, at in ((">=", begin), ("<", end_at))
                if at is not None
            ]
            where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
            self._connection.execute(
                f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM all_{name}{where}"
            )
        return self._connection.sql(query.sql.replace("upper(", "upper_(")).to_arrow_table()


@pytest.fixture(scope="module")
def duck(lake: Lake) -> Duck:
    return Duck(lake)


def normalise(value: Any) -> Any:
    """A value as it is compared: numbers by what they are worth, to nine digits; times in UTC."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        if isinstance(value, float) and not math.isfinite(value):
            return f"number {value}"
        if value == int(value) and abs(value) < 1e15:
            return f"number {int(value)}"
        return f"number {float(value):.9g}"
    if isinstance(value, datetime):
        aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return f"time {aware.isoformat()}"
    if isinstance(value, date):
        return f"date {value.isoformat()}"
    return value


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [[normalise(each) for each in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True))


def are_near(one: Any, other: Any) -> bool:
    """Sums of floats depend on the order of the summands."""
    if one == other:
        return True
    if not all(isinstance(each, str) and each.startswith("number ") for each in (one, other)):
        return False
    numbers = (float(one[7:]), float(other[7:]))
    return math.isclose(*numbers, rel_tol=1e-7, abs_tol=1e-9)


def differ(ours: pa.Table, theirs: pa.Table, *, ordered: bool) -> str | None:
    """What is different between two results; None if nothing is."""
    one, other = rows_of(ours), rows_of(theirs)
    if ours.num_columns != theirs.num_columns or len(one) != len(other):
        return f"{len(one)} rows and {len(other)} rows: {only(one, other)} | {only(other, one)}"
    if not ordered:
        left, right = only(one, other), only(other, one)
        one, other = sorted(left, key=repr), sorted(right, key=repr)
    for left_row, right_row in zip(one, other, strict=True):
        if not all(map(are_near, left_row, right_row)):
            return f"{left_row} and {right_row}"
    return None


def only(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    return list((Counter(one) - Counter(other)).elements())[:1000]


@dataclass
class Differences:
    """What was found, to be shown at the end."""

    asked: int = 0
    with_rows: int = 0
    found: list[str] | None = None

    def note(self, query: Query, said: str) -> None:
        self.found = [*(self.found or []), f"{query.sql}\n  {query.begin} {query.end}\n  {said}"]


def run(lake: Lake, spark: SparkSession, duck: Duck, query: Query, so_far: Differences) -> None:
    options = {"begin": query.begin, "end": query.end}
    answers = {}
    for name, ask in {
        "embedded": lambda: lake.query(query.sql, **options).to_arrow(),
        "spark": lambda: lake.query(query.sql, engine="spark", spark=spark, **options).to_arrow(),
        "duckdb": lambda: duck.ask(query),
    }.items():
        try:
            answers[name] = ask()
        except Exception as error:  # noqa: BLE001
            so_far.note(query, f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
    so_far.asked += 1
    if "embedded" not in answers:
        return
    ours = answers.pop("embedded")
    so_far.with_rows += bool(ours.num_rows)
    for name, theirs in answers.items():
        said = differ(ours, theirs, ordered=query.ordered)
        if said is not None:
            so_far.note(query, f"embedded and {name}: {said[:600]}")


def test_the_engines_agree(
    lake: Lake, spark: SparkSession, duck: Duck, values: Values, capsys: pytest.CaptureFixture[str]
) -> None:
    grammar = Grammar(SEED, values)
    so_far = Differences()
    begin = time.monotonic()
    for _ in range(QUERIES):
        run(lake, spark, duck, grammar.query(), so_far)
    never = sorted(grammar.names - set(grammar.used))
    used = ", ".join(f"{name} {count}" for name, count in sorted(grammar.used.items()))
    with capsys.disabled():
        sys.stdout.write(
            f"\nLAKEBED_SEED={SEED}: {so_far.asked} queries, {so_far.with_rows} with rows, "
            f"{time.monotonic() - begin:.0f} s, {len(grammar.names)} productions: {used}\n"
        )
    found = so_far.found or []
    assert not found, f"LAKEBED_SEED={SEED}, {len(found)} differences:\n" + "\n".join(found[:20])
    assert never == []
    assert so_far.with_rows >= 0.8 * so_far.asked


def test_a_difference_is_seen() -> None:
    one = pa.table({"a": [1, 2, 2], "b": [math.nan, 0.1 + 0.2, None]})
    assert (
        differ(one, pa.table({"a": [2, 1, 2], "b": [0.3, math.nan, None]}), ordered=False) is None
    )
    assert differ(one, pa.table({"a": [2, 1, 1], "b": [0.3, math.nan, None]}), ordered=False)
    assert differ(one, pa.table({"a": [1, 2, 2], "b": [math.nan, None, 0.3]}), ordered=True)
    assert differ(one, one.slice(0, 2), ordered=False)
    assert differ(pa.table({"a": [-0.0]}), pa.table({"a": [0]}), ordered=False) is None
    assert differ(pa.table({"a": ["1"]}), pa.table({"a": [1]}), ordered=False)
