"""Folding users' tables by builds: here what is small, on Spark what is large; the rows are the
same before and after, whatever happens meanwhile.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import msgspec
import pyarrow as pa
import pytest

from lakebed.catalog.records import files
from lakebed.errors import UnknownDatabase, UnknownTable
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.model.partition import FileState, Identity, Partition
from lakebed.model.tables.declaration import parse_schema
from lakebed.model.tables.schema import Bucket
from lakebed.model.tables.table import UserTable
from lakebed.model.time import TimeRange
from lakebed.opening import open_lake
from lakebed.pipeline.pipeline import Progress
from lakebed.pipeline.plan import Limits, TableState, plan_folds
from lakebed.pipeline.sessions.executors import StoreAddress
from lakebed.pipeline.steps import Fold
from lakebed.pipeline.tasks import FoldOrder, build_task
from lakebed.settings import Settings
from lakebed.tables.fold import fold_rows
from lakebed.tables.table import Table
from tests.parts.data import stored_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
SCHEMA = {
    "id": {"type": "int", "unique": True},
    "time": "datetime",
    "value": "int",
}
MIB = 1 << 20
EVER = TimeRange(0, 1 << 61)


@pytest.fixture
def dialect() -> str:
    return "sqlite"


def some_seed() -> int:
    seed = int(os.environ.get("LAKEBED_SEED", int.from_bytes(os.urandom(4), "big")))
    sys.stdout.write(f"seed {seed}; replay with LAKEBED_SEED={seed}\n")
    return seed


def fill(lake: Lake, name: str = "moves", rng: random.Random | None = None) -> Table:
    """A table in which keys were replaced, moved to other days, deleted, and altered."""
    rng = rng or random.Random(7)
    if "home" not in lake.tables.list_databases():
        lake.tables.create_database("home")
    table = lake.tables.create_table("home", name, SCHEMA)
    for turn in range(6):
        rows = [
            {"id": rng.randrange(20), "time": f"2026-11-0{rng.randint(1, 3)}T00:00:00Z", "value": n}
            for n in range(8)
        ]
        table.insert(rows)
        if turn == 2:
            table.alter(add={"note": "string"}, widen=["value"])
        if turn == 4:
            table.delete_rows(f"id < {rng.randint(2, 8)}")
    return table


def rows_of(table: Table) -> list[dict[str, Any]]:
    found = table.query(f"SELECT * FROM {table.name} ORDER BY id").to_arrow()
    return list(found.to_pylist())


def on_spark(lake: Lake) -> None:
    """From now on nothing is small enough to be folded here."""
    lake.pipeline.limits = replace(lake.pipeline.limits, fold_here_bytes=-1)


def is_folded(table: Table) -> bool:
    partitions = table.partitions()
    return len(partitions) == len({each.instance for each in partitions})


def written_and_staged(lake: Lake) -> set[str]:
    """Files that nobody published."""
    with lake.catalog.read() as connection:
        staged = [each.file_path for each in files.list_files(connection, [FileState.STAGED])]
    return stored_files(lake).intersection(staged)


# ---- deciding -----------------------------------------------------------------------------------

TABLE = UserTable("t", "home", "x", Bucket.DAY, (parse_schema(SCHEMA),))


def partition(at: int, size: int, instance: str = "2026-11-01", *, rows: int = 1) -> Partition:
    identity = Identity(
        TABLE.stored_as, instance, TimeRange(at, at + 1), TABLE.view_set.schema_hash
    )
    return Partition(f"p{at}", identity, None, f"f{at}", size, rows, b"", (), 2, {}, at)


def folded(sizes: list[int], *, asked: bool, barriers: list[int] = []) -> list[list[int]]:  # noqa: B006
    """By place, which partitions of one bucket become one."""
    live = [partition(place * 10, size) for place, size in enumerate(sizes)]
    retired = [partition(at, 1) for at in barriers]
    steps = plan_folds(TableState(TABLE, live, retired), EVER, Limits(), is_requested=asked)
    return [[each.insert_range.begin // 10 for each in step.replaces] for step in steps]


@pytest.mark.parametrize(
    ("sizes", "due", "wanted"),
    [
        ([MIB], [], []),
        ([MIB, MIB], [[0, 1]], [[0, 1]]),
        ([MIB - 1, 1], [[0, 1]], [[0, 1]]),  # cheap
        ([100 * MIB, 1, 1], [[1, 2]], [[0, 1, 2]]),  # the large one is not written again for two
        ([1, 100 * MIB, 1], [], [[0, 1, 2]]),
        ([40 * MIB, 30 * MIB, 30 * MIB], [[0, 1, 2]], [[0, 1, 2]]),
        ([200 * MIB, 100 * MIB], [], []),  # too much to be one
        ([200 * MIB, 100 * MIB, 100 * MIB], [[1, 2]], [[1, 2]]),
        ([600 * MIB, MIB, MIB], [[1, 2]], [[1, 2]]),
    ],
)
def test_what_is_folded(sizes: list[int], due: list[list[int]], wanted: list[list[int]]) -> None:
    assert folded(sizes, asked=False) == due
    assert folded(sizes, asked=True) == wanted


def test_what_may_come_back_is_not_folded_over() -> None:
    assert folded([MIB] * 4, asked=True, barriers=[15]) == [[0, 1], [2, 3]]
    assert folded([MIB] * 3, asked=True, barriers=[5]) == [[1, 2]]


def test_buckets_are_folded_by_themselves_and_in_a_range() -> None:
    days = ["2026-11-01", "2026-11-02"]
    live = [partition(at, MIB, days[at % 2]) for at in range(8)]
    steps = plan_folds(TableState(TABLE, live), EVER, Limits(), is_requested=False)
    assert [(each.run.instance, len(each.replaces)) for each in steps] == [(d, 4) for d in days]
    assert [each.marks_from for each in steps] == [1, 0], "of the other bucket: a key may move"
    assert steps[0].describe() == "fold 2026-11-01: 4 partitions of 4.0 MiB into one"
    steps = plan_folds(TableState(TABLE, live), TimeRange(2, 7), Limits(), is_requested=False)
    assert [[each.insert_range.begin for each in step.replaces] for step in steps] == [
        [2, 4, 6],
        [3, 5],
    ]


def test_a_row_is_folded_a_few_times_however_often_a_build_runs() -> None:
    """A build after each insert of 1 MiB: what it writes grows with the logarithm, not with the
    square, of what there is."""
    sizes: list[int] = []
    written = 0
    for _ in range(200):
        sizes.append(MIB)
        for group in reversed(folded(sizes, asked=False)):
            size = sum(sizes[place] for place in group)
            written += size
            sizes[group[0] : group[-1] + 1] = [size]
    assert written < 200 * MIB * 20


# ---- folding here -------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_a_build_folds_small_tables_and_the_next_has_nothing_to_do(lake: Lake) -> None:
    tables = [fill(lake, "one"), fill(lake, "two")]
    before = [rows_of(each) for each in tables]
    steps = lake.pipeline.plan("home.two").steps
    assert {step.name for step in steps} == {"home.two"}
    report = lake.pipeline.build("home.two")
    assert (report.rounds, len(report.published), report.problems) == (1, len(steps), [])
    assert [is_folded(each) for each in tables] == [False, True]
    assert lake.pipeline.build().problems == []
    assert [is_folded(each) for each in tables] == [True, True]
    assert [rows_of(each) for each in tables] == before
    assert lake.pipeline.build().rounds == 0
    assert lake.checker.run(Level.PAGES).is_clean
    tables[0].insert([{"id": 1, "time": "2026-11-01T00:00:00Z"}])
    assert len(lake.pipeline.plan().steps) == 1


def test_rejects_are_folded_too(lake: Lake) -> None:
    table = fill(lake)
    for _ in range(2):
        table.insert([{"id": "no"}], on_error="keep")
    names = {step.name for step in lake.pipeline.plan().steps}
    assert names == {"home.moves", "home.moves_rejects"}


def test_small_folds_need_no_spark(lake: Lake) -> None:
    table = fill(lake)
    before = rows_of(table)
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from lakebed.cli.main import main\n"
        "sys.argv = ['lakebed', *sys.argv[1:]]; main()\n"
    )

    def run(*arguments: str) -> str:
        folder = str(Path(lake.catalog.url.removeprefix("sqlite:///")).parent)
        command = [sys.executable, "-c", code, "build", *arguments, "--lake", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout

    planned = json.loads(run("--plan", "--json"))["steps"]
    assert [(each["view_set_name"], each["step"].split(":")[0]) for each in planned] == [
        ("home.moves", f"fold 2026-11-0{day}") for day in (1, 2, 3)
    ]
    assert "3 partitions published" in run()
    assert "nothing is due" in run("home.moves")
    assert rows_of(table) == before


def test_names_that_are_nobodys(lake: Lake) -> None:
    fill(lake)
    with pytest.raises(UnknownTable):
        lake.pipeline.build("home.nothing")
    with pytest.raises(UnknownDatabase):
        lake.pipeline.build("nowhere.moves")


def test_a_damaged_file_is_said_and_stops_no_other_fold(lake: Lake) -> None:
    table = fill(lake)
    gone = table.partitions()[0]
    lake.store.delete([gone.file_path or ""])
    other = fill(lake, "other")
    report = lake.pipeline.build()
    assert report.problems
    for each in report.problems:
        assert each.step.replaces[0].partition_id == gone.partition_id
        assert f"{gone.file_path} of table home.moves is missing" in (each.problem or "")
    assert is_folded(other)
    assert gone.partition_id in {each.partition_id for each in table.partitions()}


# ---- folding on Spark ---------------------------------------------------------------------------


def test_larger_runs_are_folded_on_spark(lake: Lake, spark: SparkSession) -> None:
    rng = random.Random(some_seed())
    table, here = fill(lake, "large", rng), fill(lake, "small", rng)
    plain = lake.tables.create_table("home", "plain", {"time": "datetime", "value": "int"})
    for value in range(3):
        plain.insert([{"time": "2026-11-01T00:00:00Z", "value": value}] * 2)
    before = rows_of(table)
    here.fold()
    on_spark(lake)
    planned = lake.pipeline.plan().steps
    report = lake.pipeline.build(spark=spark)
    assert report.problems == []
    assert {each.step.name for each in report.published} == {"home.large", "home.plain"}
    assert len(report.published) == len(planned)
    assert rows_of(table) == before
    assert plain.count() == 6
    assert is_folded(table)
    assert lake.pipeline.build(spark=spark).rounds == 0
    assert written_and_staged(lake) == set()
    assert lake.checker.run(Level.PAGES).is_clean
    (folded_by_spark,) = [each for each in table.partitions() if each.instance == "2026-11-01"]
    assert folded_by_spark.file_path is not None
    assert "/rows/" in folded_by_spark.file_path


def test_a_bucket_of_which_everything_was_deleted_is_empty(lake: Lake, spark: SparkSession) -> None:
    table = fill(lake)
    table.delete_rows("true")
    on_spark(lake)
    report = lake.pipeline.build("home.moves", spark=spark)
    assert report.problems == []
    report = lake.pipeline.build("home.moves", spark=spark)
    assert (report.rounds, table.count()) == (0, 0)
    assert lake.checker.run(Level.PAGES).is_clean


def test_executors_need_nothing_but_the_address_of_the_store(lake: Lake, tmp_path: Path) -> None:
    """A task runs in a process of its own while the catalog is not there at all."""
    fill(lake)
    step = lake.pipeline.plan("home.moves").steps[0]
    assert isinstance(step, Fold)
    names = [f"partitions/{step.view_set.name}/rows/2026-11/{n:036}.parquet" for n in range(2)]
    order = FoldOrder(step.table, step.replaces, step.marks_from, tuple(names))
    task, batch, answer = (tmp_path / name for name in ("task", "batch", "answer"))
    task.write_bytes(cloudpickle.dumps(build_task(StoreAddress.of(lake.store))))
    batch.write_bytes(msgspec.msgpack.encode(order))
    code = (
        "import pickle, sys, pyarrow as pa\n"
        "task, work, answer = sys.argv[1:]\n"
        "rows = pa.RecordBatch.from_pydict({'step': [4], 'work': [open(work, 'rb').read()]})\n"
        "(said,) = pickle.load(open(task, 'rb'))(iter([rows]))\n"
        "pa.ipc.new_file(answer, said.schema).write(said)\n"
    )
    catalog = Path(lake.catalog.url.removeprefix("sqlite:///"))
    hidden = catalog.with_suffix(".hidden")
    catalog.rename(hidden)
    try:
        command = [sys.executable, "-c", code, str(task), str(batch), str(answer)]
        subprocess.run(command, check=True, env={**os.environ, "LAKEBED_LAKE": "/nowhere"})
    finally:
        hidden.rename(catalog)
    assert stored_files(lake) >= {names[0]}
    reader = fold_rows.RowReader(lake.store)
    expected = fold_rows.fold_partitions(reader, step.table, step.replaces, step.marks_from)
    with lake.store.open(names[0]) as source:
        found = pa.parquet.read_table(source)
    assert found.sort_by("id").to_pylist() == expected.sort_by("id").to_pylist()


# ---- what others do meanwhile -------------------------------------------------------------------


def at_first(act: Callable[[], object]) -> Callable[[Progress], None]:
    """Something that happens after the first plan was made and before it is carried out."""

    def progress(at: Progress) -> None:
        if (at.round, at.done) == (1, 0):
            act()

    return progress


@pytest.mark.parametrize("where", ["here", "spark"])
@pytest.mark.parametrize(
    "what", ["fold", "alter", "insert", "delete rows", "delete table", "retire", "forget"]
)
def test_what_others_change_meanwhile_is_planned_again(
    lake: Lake, spark: SparkSession, where: str, what: str
) -> None:
    table, twin = fill(lake), fill(lake, "twin")
    if where == "spark":
        on_spark(lake)

    def act(table: Table) -> None:
        if what == "fold":
            table.fold()
        elif what == "alter":
            table.alter(add={"more": "float"})
        elif what == "insert":
            table.insert([{"id": n, "time": "2026-11-02T00:00:00Z"} for n in range(5)])
        elif what == "delete rows":
            table.delete_rows("id > 10")
        elif what == "delete table":
            lake.tables.delete_table("home", table.name)
        elif what == "retire":
            old = table.partitions()[0]
            begin, end = old.insert_range.begin, old.insert_range.end
            lake.retirement.retire_partition_by_metadata(
                old.view_set, old.instance, begin, end, confirmed=[old.view_set]
            )
        elif what == "forget":
            table.forget(id=11)

    report = lake.pipeline.build("home.moves", spark=spark, progress=at_first(lambda: act(table)))
    assert report.problems == []
    if what == "delete table":
        assert report.published == []
        lake.tables.restore_table("home", "moves")
    act(twin)
    if what == "delete table":
        lake.tables.restore_table("home", "twin")
    assert rows_of(table) == rows_of(twin)
    if what != "delete table":
        assert lake.pipeline.plan("home.moves").steps == ()
    lake.sweeper.run()
    assert written_and_staged(lake) == set()
    assert lake.checker.run(Level.PAGES).is_clean


# ---- killed -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "event"),
    [
        ("here", "sql INSERT partition_metadata"),
        ("here", "sql DELETE temporary_files"),
        ("spark", "sql DELETE temporary_files"),
    ],
)
def test_a_killed_driver_leaves_names_to_a_sweep_and_the_rows_as_they_were(
    new_lake: Any, where: str, event: str
) -> None:
    settings = Settings(lease_seconds=1)
    lake: Lake = new_lake(settings=settings)
    table = fill(lake)
    before = rows_of(table)
    lake.sweeper.run()
    known = stored_files(lake)
    done = subprocess.run(
        [sys.executable, "-m", "tests.proof.folding", lake.catalog.url, where, event],
        cwd=ROOT,
        env={**os.environ, "LAKEBED_LEASE_SECONDS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == -9, done.stderr
    left = stored_files(lake) - known
    assert len(left) == (3 if where == "spark" else 1), "written, and not published"
    assert left == written_and_staged(lake)
    assert rows_of(table) == before
    with open_lake(lake.catalog.url, settings=settings) as again:
        again.sweeper.watch_leases()
        again.sweeper.run()
        assert stored_files(lake) == known
        report = again.pipeline.build("home.moves")
        assert report.problems == []
    assert rows_of(table) == before
    assert is_folded(table)
    assert lake.checker.run(Level.PAGES).is_clean
