"""Partitions that cannot hold an answer are never opened, and never a row is lost by it: whatever
the statement, it gives what it would give over all rows in memory.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import UnknownObject
from lakebed.lake import Lake
from lakebed.model.partition import Partition
from lakebed.model.time import format_instant
from lakebed.model.view_set import ViewSet
from lakebed.opening import init_lake
from lakebed.query.embedded import small
from lakebed.query.output.explanation import TableExplanation
from tests.conftest import CAMPAIGN
from tests.parts.data import HOUR, T0

EVENTS = ViewSet(
    "events",
    1,
    pa.schema(
        [
            ("time", pa.timestamp("us", "UTC")),
            ("number", pa.int32()),
            ("big", pa.int64()),
            ("text", pa.string()),
            ("real", pa.float64()),
            ("flag", pa.bool_()),
            ("other", pa.timestamp("ms", "UTC")),
        ]
    ),
    "time",
)
TEXTS = ["", "a", "b", "ba", "é", "日本", "z"]


def rows_of(part: int) -> pa.Table:
    """A few rows whose values differ from those of the next partition, with some NULLs."""
    texts = [TEXTS[part % 7], TEXTS[(part + 1) % 7], None]
    return pa.table(
        {
            "time": [T0 + part * HOUR + second * 1_000_000 for second in range(3)],
            "number": [part, part + 1, None],
            "big": [part * 10**12, None, -part],
            "text": texts,
            "real": [float(part), float("nan"), None],
            "flag": [part % 2 == 0, None, True],
            "other": [part * 1000, None, part * 1000 + 1],
        },
        schema=EVENTS.schema,
    )


PARTS = 8


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Eight hours of one partition each, which replaced one with a single row, and an empty one."""
    lake = init_lake(tmp_path_factory.mktemp("events"))
    lake.views.ensure([EVENTS])
    for part in range(PARTS):
        begin = T0 + part * HOUR
        old = lake.partitions.publish("events", begin, begin + HOUR, rows_of(part).slice(1, 1))
        lake.partitions.publish("events", begin, begin + HOUR, rows_of(part), replaces=[old])
    end = T0 + PARTS * HOUR
    lake.partitions.publish_completed_empty("events", end, end + HOUR)
    return lake


def explain(lake: Lake, sql: str, **options: object) -> TableExplanation:
    with lake.queries.query(sql, explained=True, **options) as result:  # type: ignore[arg-type]
        return result.explanation.tables[0]


def moment(part: float) -> str:
    import datetime

    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(hours=part)
    return at.isoformat()


@pytest.mark.parametrize(
    ("condition", "read"),
    [
        ("true", 8),
        (f"time >= '{moment(6)}'", 2),
        (f"time > timestamp '{moment(2)[:19]}' and time < '{moment(4)}'", 2),
        (f"'{moment(6)}' <= time", 2),
        (f"time between '{moment(1)}' and '{moment(1.5)}'", 1),
        (f"time = '{moment(3)}' or time = '{moment(5)}'", 2),
        (f"time < '{moment(0)}'", 0),
        (f"time > '{moment(3)}' and time < '{moment(2)}'", 0),
        ("number = 3", 2),
        ("number in (3, 5)", 4),
        ("number > 7", 1),
        ("number::bigint = 3", 2),
        ("number + 1 = 3", 8),
        ("number not in (1, 2)", 8),
        ("text = '日本'", 2),
        ("text > 'z'", 4),
        ("big >= 7000000000000", 1),
        ("number = 3 or text = 'nowhere'", 3),
        ("(number = 3 and flag) or number = 5", 4),
        ("real = 3.0", 8),
        ("other = '1970-01-01T00:00:03Z'", 8),
        ("number is null", 8),
        ("not (number > 2)", 3),
        ("case when number = 3 then true else false end", 8),
        ("time >= (select max(time) from events)", 8),
    ],
)
def test_conditions_rule_partitions_out(events: Lake, condition: str, read: int) -> None:
    sql = f"SELECT * FROM events WHERE {condition}"
    told = explain(events, sql)
    assert told.partitions_considered == 9
    assert told.partitions_read <= read
    if "select" not in condition:
        assert told.partitions_read == read
    assert told.partitions_pruned.get("empty") == 1
    pruned = sum(told.partitions_pruned.values())
    assert pruned + told.partitions_read == told.partitions_considered


def test_the_range_of_the_call_prunes_too(events: Lake) -> None:
    told = explain(events, "SELECT * FROM events", begin=moment(2), end=moment(4))
    assert told.partitions_read == 2
    assert events.query("SELECT * FROM events", moment(2), moment(4)).to_arrow().num_rows == 6


def test_both_uses_of_a_table_get_what_they_need(events: Lake) -> None:
    sql = (
        f"SELECT a.number, b.number FROM events a JOIN events b ON a.number = b.number + 4 "
        f"WHERE a.time >= '{moment(6)}' AND b.time < '{moment(3)}'"
    )
    assert explain(events, sql).partitions_read == 5
    found = events.query(sql.replace("a.number, b.number", "a.number AS a, b.number AS b"))
    rows = found.to_arrow().sort_by("a").to_pylist()
    assert rows == [{"a": 6, "b": 2}, {"a": 6, "b": 2}, {"a": 7, "b": 3}, {"a": 7, "b": 3}]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT (SELECT max(number) FROM events) AS n", 8),
        ("SELECT count(*) AS n FROM events WHERE number = (SELECT max(number) FROM events)", 1),
        (
            f"SELECT count(*) AS n FROM events WHERE time < '{moment(2)}' "
            f"AND 8 = (SELECT max(number) FROM events WHERE time > '{moment(6)}')",
            6,
        ),
        ("SELECT CASE WHEN (SELECT count(*) FROM events) = 24 THEN 1 END AS n", 1),
        ("SELECT count(*) AS n FROM public.events", 24),
        ('SELECT count(*) AS n FROM lake.public."events" WHERE number = 3', 2),
        ("SELECT count(*) AS n FROM EVENTS", 24),
        (
            "SELECT sum((SELECT max(number) FROM events WHERE number < 3)) AS n "
            "FROM events WHERE number = 7",
            4,
        ),
        ("WITH events AS (SELECT * FROM events WHERE number = 3) SELECT count(*) n FROM events", 2),
        (
            "SELECT count(*) AS n FROM events WHERE number = 7 OR number IN "
            "(SELECT number + 1 FROM events WHERE number = 2)",
            4,
        ),
        ("SELECT count(*) AS n FROM events WHERE EXISTS (SELECT 1 FROM events WHERE number=1)", 24),
    ],
)
def test_tables_are_found_wherever_they_stand(events: Lake, sql: str, expected: int) -> None:
    assert events.query(sql).to_arrow()["n"].to_pylist() == [expected]


def test_a_partition_that_is_ruled_out_is_not_opened(events: Lake, tmp_path: Path) -> None:
    folder = Path(events.store.url.removeprefix("file://"))
    copy = tmp_path / "copy"
    shutil.copytree(folder.parent, copy)
    from lakebed.opening import open_lake

    with open_lake(copy) as lake:
        doomed = lake.partitions.list_partitions("events")[0]
        lake.store.delete([str(doomed.file_path)])
        with pytest.raises(UnknownObject):
            lake.store.size(str(doomed.file_path))
        found = lake.query(f"SELECT count(*) AS n FROM events WHERE time > '{moment(1)}'")
        assert found.to_arrow()["n"].to_pylist() == [20]


_OPERATORS = st.sampled_from(["=", "<", "<=", ">", ">=", "<>"])
_NUMBERS = st.integers(-2, PARTS + 2)
_OFFSETS = st.sampled_from([-1, 0, 1])
_EVENT_BOUNDS = st.builds(
    lambda part, second, offset: T0 + part * HOUR + second * 1_000_000 + offset,
    st.integers(0, PARTS - 1),
    st.sampled_from([0, 1, 2]),
    _OFFSETS,
)
"""The first, middle and last event of each partition, a microsecond before, on it, and after."""


def _comparisons() -> st.SearchStrategy[str]:
    def compare(column: str, values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        plain = st.tuples(_OPERATORS, values, st.booleans()).map(
            lambda made: (
                f"{column} {made[0]} {made[1]}" if made[2] else f"{made[1]} {made[0]} {column}"
            )
        )
        among = st.tuples(st.sampled_from(["", "NOT "]), st.lists(values, min_size=1, max_size=5))
        return plain | among.map(lambda made: f"{column} {made[0]}IN ({', '.join(made[1])})")

    times = st.floats(-1, PARTS + 1, allow_nan=False).map(lambda hour: f"'{moment(hour)}'")
    return st.one_of(
        compare("number", _NUMBERS.map(str)),
        compare("big", st.tuples(_NUMBERS, _OFFSETS).map(lambda n: str(n[0] * 10**12 + n[1]))),
        compare("text", st.sampled_from([*TEXTS, "bb"]).map(lambda text: f"'{text}'")),
        compare("real", st.sampled_from(["0.0", "3.5", "'NaN'", "7"])),
        compare("time", times | _EVENT_BOUNDS.map(lambda at: f"'{format_instant(at)}'")),
        compare(
            "other",
            st.tuples(st.integers(0, PARTS), _OFFSETS).map(
                lambda ms: f"to_timestamp_millis({ms[0] * 1000 + ms[1]})"
            ),
        ),
        st.sampled_from(["flag", "number IS NULL", "text IS NOT NULL", "real IS NULL"]),
        st.sampled_from(["text LIKE 'b%'", "number BETWEEN 2 AND 4", "text BETWEEN 'a' AND 'b'"]),
    )


def _conditions() -> st.SearchStrategy[str]:
    return st.recursive(
        _comparisons(),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
                lambda made: f"({made[0]} {made[1]} {made[2]})"
            ),
            inner.map(lambda each: f"NOT ({each})"),
            inner.map(lambda each: f"CASE WHEN {each} THEN true ELSE flag END"),
        ),
        max_leaves=6,
    )


_RANGES = st.none() | st.lists(_EVENT_BOUNDS, min_size=2, max_size=2, unique=True).map(sorted)


@settings(max_examples=3000 if CAMPAIGN else 120)
@given(condition=_conditions(), within=_RANGES, change=st.none() | st.integers(0), offset=_OFFSETS)
def test_no_condition_loses_a_row(
    events: Lake, condition: str, within: list[int] | None, change: int | None, offset: int
) -> None:
    """Now or at a tick at which something changed, one before it or one after."""
    history = events.partitions.list_partitions("events", include_retired=True)
    as_of = None
    if change is not None:
        ticks = [partition.published_at for partition in history]
        as_of = ticks[change % len(ticks)] + offset
        history = [
            partition
            for partition in history
            if partition.published_at <= as_of
            and (partition.retired_at is None or partition.retired_at > as_of)
        ]
    else:
        history = [partition for partition in history if partition.is_live]
    everything = pa.concat_tables(
        [EVENTS.schema.empty_table(), *(read_rows(partition) for partition in history)]
    )
    options: dict[str, int | None] = {"as_of": as_of}
    if within is not None:
        begin, end = within
        options |= {"begin": begin, "end": end}
        times = everything["time"].cast("int64")
        everything = everything.filter(pc.and_(pc.greater_equal(times, begin), pc.less(times, end)))
    sql = f"SELECT * FROM events WHERE {condition} ORDER BY time"
    expected = small.run(sql, {"events": everything})
    rows = events.query(sql, **options).to_arrow()  # type: ignore[arg-type]
    assert str(rows.to_pylist()) == str(expected.cast(rows.schema).to_pylist())


def read_rows(partition: Partition) -> pa.Table:
    """Return the rows that the fixture gave a partition."""
    part = (partition.insert_range.begin - T0) // HOUR
    if partition.num_rows == 3:
        return rows_of(part)
    return rows_of(part).slice(1, partition.num_rows)
