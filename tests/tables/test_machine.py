"""Everything that can be done to a table, in any order, against a dict: a Hypothesis rule machine
drives a real lake and `model.Model`, and after every step compares what readers see.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lakebed.catalog import clock
from lakebed.catalog.records import tables
from lakebed.errors import BadRecords, Conflict, NotFound, SnapshotExpired
from lakebed.lifecycle.check import Level, Severity
from lakebed.model.partition import Partition
from lakebed.opening import init_lake, open_lake
from lakebed.query.snapshot import user_tables
from lakebed.storage.local import LocalStore
from lakebed.tables.fold import fold_rows
from tests.conftest import CAMPAIGN
from tests.parts import servers
from tests.proof.seams import HookedDisk, hook_engine
from tests.tables.model import Model, Unit, count_rows, spell
from tests.tables.parts import (
    BY_ID,
    BY_TIME,
    HOUR_US,
    LOOSE,
    jump,
    partitions_of,
    retire,
    rows_of,
    sweep,
)

SHRINK = bool(os.environ.get("LAKEBED_SEED"))
"""Shrinking takes minutes: only when a failure is replayed."""

BATCHES = 40
"""Of the campaign. A few are enough for every rule to run; the default run has one."""
USUAL = user_tables._SMALL_BYTES, fold_rows.MANY_PARTITIONS

KINDS = {"by id": BY_ID, "by time": BY_TIME, "loose": LOOSE}
FIRST = datetime(2026, 3, 2, tzinfo=UTC)
TIMES = [FIRST + timedelta(hours=hours) for hours in (1, 5, 25, 30, 49)]

bounds = st.builds(
    lambda time, offset: time + timedelta(microseconds=offset),
    st.sampled_from(TIMES),
    st.sampled_from([-1, 0, 1]),
)
"""For conditions: the exact times of rows, and a microsecond before and after them."""
times, values, ids = st.sampled_from(TIMES), st.sampled_from([None, 0, 1, 2, 3]), st.integers(0, 4)
records = st.fixed_dictionaries(
    {
        "id": ids,
        "device": st.sampled_from(["a", "b"]),
        "time": times,
        "value": values,
        "note": st.sampled_from([None, "x", "y"]),
    }
)
batches = st.lists(records, min_size=1, max_size=5)


class Crash(BaseException):
    """Stands for the process's death at this point."""


class TableMachine(RuleBasedStateMachine):
    """One table and its model. Subclasses say on which catalog."""

    server: ClassVar[str] = ""
    template: ClassVar[str] = ""
    runs: ClassVar[Counter[str]] = Counter()

    @initialize(kind=st.sampled_from(list(KINDS)), small=st.sampled_from([0, 1_700, 4 << 20]))
    def make_a_table(self, kind: str, small: int) -> None:
        user_tables._SMALL_BYTES = small
        fold_rows.MANY_PARTITIONS = 5
        self.folder = Path(tempfile.mkdtemp(dir=servers.quick_folder()))
        self.database = None
        store = None
        if self.server:
            self.database = servers.new_database(self.server, self.template)
            store = f"file://{self.folder}/store"
        else:
            shutil.copyfile(self.template, self.folder / "catalog.sqlite3")
        self.lake = init_lake(self.folder, catalog=self.database, store=store, grace="1h")
        self.url = self.lake.catalog.url
        self.lake.tables.create_database("d")
        self.table = self.lake.tables.create_table("d", "t", KINDS[kind])
        definition = self.table.definition
        self.model = Model(definition.key, "time", definition.bucket)
        self.rejected = 0
        self.repeatable: list[tuple[str, list[dict[str, Any]], int]] = []
        self.past: list[tuple[int, Counter[Any], list[str]]] = []
        self.names = list(definition.schema.names)
        self.ran(kind)

    def teardown(self) -> None:
        if not hasattr(self, "lake"):
            return
        try:
            self.lake_is_sound(Level.PAGES)
        finally:
            user_tables._SMALL_BYTES, fold_rows.MANY_PARTITIONS = USUAL
            self.lake.close()
            if self.database:
                servers.drop_database(self.database)
            shutil.rmtree(self.folder)

    # -- helpers ------------------------------------------------------------------------------

    def ran(self, name: str) -> None:
        TableMachine.runs[name] += 1

    def fit(self, batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
        names = self.names
        return [{n: v for n, v in row.items() if n in names} for row in batch]

    def now(self) -> int:
        with self.lake.catalog.read() as connection:
            return clock.now(connection)

    def live(self) -> list[Partition]:
        return [
            partition for partition in partitions_of(self.lake, self.table) if partition.is_live
        ]

    def settle(self) -> None:
        """Inserts fold what has become many; the model follows."""
        if self.model.fold(self.live()):
            self.ran("folded by an insert")

    def gone(self, unit: Unit) -> Partition:
        """The newest retired row of a unit that can come back."""
        partitions = [
            partition
            for partition in partitions_of(self.lake, self.table)
            if not partition.is_live
            and not partition.replaced
            and (partition.instance, partition.insert_range.begin, partition.insert_range.end)
            == (unit.instance, unit.begin, unit.end)
        ]
        return max(partitions, key=lambda partition: partition.published_at)

    # -- inserting ----------------------------------------------------------------------------

    @rule(batch=batches)
    def insert(self, batch: list[dict[str, Any]]) -> None:
        done = self.table.insert(self.fit(batch))
        self.model.insert(done.tick, self.fit(batch))
        self.settle()
        self.ran("insert")

    @rule(row=records)
    def insert_often(self, row: dict[str, Any]) -> None:
        """Until inserts fold by themselves."""
        for value in range(6):
            (fitted,) = self.fit([row | {"value": value}])
            self.model.insert(self.table.insert(fitted).tick, [fitted])
        self.settle()

    @precondition(lambda self: self.model.key and self.model.visible())
    @rule(data=st.data(), time=times, value=values)
    def upsert(self, data: st.DataObject, time: datetime, value: int | None) -> None:
        """A key that is there, with other values and, if it can, in another bucket."""
        row = dict(data.draw(st.sampled_from(self.model.visible()))) | {"value": value}
        if "time" not in self.model.key:
            row["time"] = time
        done = self.table.insert(row)
        self.model.insert(done.tick, [row])
        self.settle()
        self.ran("upsert")

    @rule(batch=batches)
    def ignore(self, batch: list[dict[str, Any]]) -> None:
        done = self.table.insert(self.fit(batch), if_exists="ignore")
        assert self.model.ignore(done.tick, self.fit(batch)) == done.rows
        self.settle()
        self.ran("ignore")

    @rule(batch=batches, keep=st.booleans())
    def insert_something_bad(self, batch: list[dict[str, Any]], keep: bool) -> None:
        bad = [*self.fit(batch), {"time": FIRST, "value": "bad"}]
        if not keep:
            with pytest.raises(BadRecords):
                self.table.insert(bad)
            self.ran("refused")
            return
        done = self.table.insert(bad, on_error="keep")
        self.model.insert(done.tick, self.fit(batch))
        self.rejected += 1
        self.settle()
        self.ran("kept")

    @rule(batch=batches)
    def insert_once(self, batch: list[dict[str, Any]]) -> None:
        key = f"key {len(self.repeatable)}"
        done = self.table.insert(self.fit(batch), key=key)
        self.model.insert(done.tick, self.fit(batch))
        self.repeatable.append((key, self.fit(batch), done.tick))
        self.settle()
        self.ran("insert once")

    @rule(data=st.data(), first=batches)
    def repeat(self, data: st.DataObject, first: list[dict[str, Any]]) -> None:
        if not self.repeatable:
            self.insert_once(first)
        key, batch, tick = data.draw(st.sampled_from(self.repeatable))
        again = self.table.insert(batch, key=key)
        assert again.repeated
        assert again.tick == tick
        with pytest.raises(Conflict):
            self.table.insert([*batch, batch[0] | {"value": 9}], key=key)
        self.ran("repeat")

    # -- deleting -----------------------------------------------------------------------------

    @rule(time=bounds, value=values, by_time=st.booleans())
    def delete(self, time: datetime, value: int | None, by_time: bool) -> None:
        where, is_meant = self.condition(time, value, by_time)
        seen_tick = self.now()
        count = self.table.delete_rows(where)
        at = max((partition.insert_range.begin for partition in self.live()), default=0)
        assert self.model.delete(seen_tick, at, is_meant) == count
        self.ran("delete" if count else "delete nothing")

    def condition(
        self, time: datetime, value: int | None, by_time: bool
    ) -> tuple[str, Callable[[Any], bool]]:
        if by_time:
            return f"time <= {spell(time)}", lambda row: row["time"] <= time
        if value is None:
            return "value IS NULL", lambda row: row["value"] is None
        return (
            f"value >= {value}",
            lambda row: (row["value"] or -1) >= value or row["value"] == value,
        )

    @precondition(lambda self: self.model.visible())
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        """By a column that no version of a row can have had another value in: what is folded has
        no older versions any more."""
        row = data.draw(st.sampled_from(self.model.visible()))
        column = data.draw(st.sampled_from(self.model.key or ["time"]))
        value = row[column]
        assert self.table.forget(**{column: value})
        self.model.forget(lambda row: row[column] == value)
        self.ran("forget")

    # -- the table itself ---------------------------------------------------------------------

    @rule()
    def alter(self) -> None:
        version = self.table.definition.version
        if version == 1:
            self.table.alter(add={"more": "int"})
        elif version == 2:
            self.table.alter(widen=["value"])
        elif version == 3:
            self.table.alter(add={"less": "string"}, widen=["more"])
        else:
            return
        self.names = list(self.table.schema.names)
        self.ran("alter")

    @rule()
    def delete_and_restore_the_table(self) -> None:
        self.lake.tables.delete_table("d", "t")
        with pytest.raises(NotFound):
            self.lake.tables.get("d", "t")
        self.lake.tables.restore_table("d", "t")
        self.ran("delete and restore the table")

    @rule()
    def fold(self) -> None:
        self.table.fold()
        if self.model.fold(self.live()):
            self.ran("fold")

    # -- retiring and restoring ---------------------------------------------------------------

    @precondition(lambda self: self.model.live)
    @rule(data=st.data(), hold=st.booleans())
    def retire(self, data: st.DataObject, hold: bool) -> None:
        choice = data.draw(st.sampled_from(self.live()))
        unit = self.model.find(choice)
        retire(self.lake, choice, hold=hold)
        unit.retired = unit.restorable = True
        self.ran("hold" if hold else "retire")

    @precondition(lambda self: self.model.live)
    @rule(data=st.data())
    def retire_a_bucket(self, data: st.DataObject) -> None:
        instance = data.draw(
            st.sampled_from(sorted({partition.instance for partition in self.live()}))
        )
        plan = self.lake.retirement.plan_by_range(
            self.table.definition.stored_as, 0, 1 << 60, instance=instance
        )
        self.lake.retirement.carry_out(plan, confirmed=plan.confirm)
        for unit in self.model.live:
            if unit.instance == instance:
                unit.retired = unit.restorable = True
        self.ran("retire a bucket")

    @precondition(lambda self: self.model.gone or self.model.live)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        if not self.model.gone:
            self.retire(data, hold=False)
        unit = data.draw(st.sampled_from(self.model.gone))
        self.lake.retirement.restore(self.gone(unit).partition_id)
        unit.retired = False
        self.ran("restore")

    @rule(data=st.data())
    def restore_what_was_replaced(self, data: st.DataObject) -> None:
        partitions = partitions_of(self.lake, self.table)
        replaced = [partition.partition_id for partition in partitions if partition.replaced]
        if replaced:
            with pytest.raises(Conflict):
                self.lake.retirement.restore(data.draw(st.sampled_from(replaced)))
            self.ran("restore refused")

    # -- time and death -----------------------------------------------------------------------

    @rule(hours=st.sampled_from([0, 2]), leases_die=st.booleans())
    def sweep(self, hours: int, leases_die: bool) -> None:
        jump(self.lake, hours * HOUR_US)
        result = sweep(self.lake, leases_die=leases_die)
        live_ranges = {
            (
                partition.instance,
                partition.insert_range.begin,
                partition.insert_range.end,
                partition.is_live,
            )
            for partition in partitions_of(self.lake, self.table)
        }
        for unit in self.model.units:
            remains = (unit.instance, unit.begin, unit.end, not unit.retired) in live_ranges
            assert remains or unit.retired, "something live was swept"
            if not remains:
                unit.restorable = False
        self.ran("sweep" if not result.files else "sweep deleted files")

    @precondition(lambda self: self.model.live)
    @rule(data=st.data())
    def live_to_the_end(self, data: st.DataObject) -> None:
        """Retired, past its grace period, and swept; seldom a row of chances."""
        self.retire(data, hold=False)
        self.sweep(hours=2, leases_die=False)
        self.read_the_past(data, first=True)

    @rule()
    def reopen(self) -> None:
        self.lake.close()
        self.open()
        self.ran("reopen")

    def open(self) -> None:
        self.lake = open_lake(self.url)
        self.table = self.lake.tables.get("d", "t")

    @precondition(lambda self: len(self.past) % 3 != 1)
    @rule(
        verb=st.sampled_from(["insert", "delete", "fold", "forget"]),
        batch=batches,
        point=st.integers(1, 45),
        time=times,
    )
    def kill(self, verb: str, batch: list[dict[str, Any]], point: int, time: datetime) -> None:
        """Die before some statement or some operation on disk: it happened, or it did not."""
        column = self.model.key[0] if self.model.key else "time"
        value = self.fit(batch)[0][column]
        known_ids, states = {partition.partition_id for partition in self.live()}, self.states()
        rows, seen_tick = self.fit(batch), self.now()
        verbs: dict[str, Callable[[], object]] = {
            "insert": lambda: self.table.insert(rows),
            "delete": lambda: self.table.delete_rows(f"time <= {spell(time)}"),
            "fold": self.table.fold,
            "forget": lambda: self.table.forget(**{column: value}),
        }
        if verb == "fold":  # often there is little to fold, and it is over soon
            point = 1 + point % 12
        died = self.die_during(verbs[verb], point)
        new = [partition for partition in self.live() if partition.partition_id not in known_ids]
        fresh = [
            partition.insert_range.begin
            for partition in new
            if partition.insert_range.begin > seen_tick
        ]
        if verb == "insert":
            if new:
                self.model.insert(max(partition.insert_range.end for partition in new) - 1, rows)
        elif verb == "delete" and new:
            self.model.delete(seen_tick, max(fresh, default=0), lambda row: row["time"] <= time)
        elif verb == "forget" and self.states() != states:
            self.model.forget(lambda row: row[column] == value)
        self.model.fold(self.live())
        assert died or verb != "insert" or new
        self.ran(f"kill {verb}" if died else "kill too late")

    def states(self) -> set[tuple[str, bool, bool]]:
        """Of every partition, whether it is live, and whether it was replaced or condemned."""
        partitions = partitions_of(self.lake, self.table)
        return {
            (partition.partition_id, partition.is_live, partition.replaced)
            for partition in partitions
        }

    def die_during(self, act: Callable[[], object], point: int) -> bool:
        steps_left = point

        def die(_event: str) -> None:
            nonlocal steps_left
            steps_left -= 1
            if steps_left == 0:
                raise Crash

        assert isinstance(self.lake.store, LocalStore)
        self.lake.leases.beat()
        self.lake.store.disk = HookedDisk(die)
        hook_engine(self.lake.catalog.engine, die)
        try:
            act()
        except Crash:
            died = True
        else:
            died = False
        steps_left = -1  # and nobody dies any more
        self.lake.leases._stop.set()
        self.lake.catalog.close()
        self.open()
        return died

    # -- what must always hold ----------------------------------------------------------------

    def shown(self, **options: Any) -> Counter[Any]:
        return count_rows(rows_of(self.table, **options), self.names)

    @invariant()
    def readers_see_the_model(self) -> None:
        if not hasattr(self, "lake"):
            return
        result = self.table.query()
        names = self.names
        counts = count_rows(result.to_arrow().to_pylist(), names)
        assert counts == count_rows(self.model.visible(), names)
        self.past.append((result.explanation.tick, counts, names))
        rejects = self.lake.tables.get("d", "t_rejects")
        if len(self.past) % 5 == 0:
            assert rejects.count() == self.rejected
            self.lake_is_sound()

    @rule(time=bounds, value=values, by_time=st.booleans())
    def ask_for_a_part(self, time: datetime, value: int | None, by_time: bool) -> None:
        where, is_meant = self.condition(time, value, by_time)
        for bucket in sorted({self.model.bucket_of({"time": time}) for time in TIMES})[:2]:
            result = rows_of(self.table, f"{where} AND partition_date = '{bucket}'")
            expected = [
                row
                for row in self.model.visible()
                if is_meant(row) and self.model.bucket_of(row) == bucket
            ]
            assert count_rows(result, self.names) == count_rows(expected, self.names)
        self.ran("ask for a part")

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def read_the_past(self, data: st.DataObject, first: bool = False) -> None:
        tick, expected, names = data.draw(st.sampled_from(self.past[:1] if first else self.past))
        with self.lake.catalog.read() as connection:
            horizon = clock.sweep_horizon(connection)
        if tick < horizon:
            with pytest.raises(SnapshotExpired):
                rows_of(self.table, as_of=tick)
            self.ran("as_of refused")
            return
        assert count_rows(rows_of(self.table, as_of=tick), names) == expected
        self.ran("as_of")

    @rule(data=st.data(), offset=st.sampled_from([-1, 0, 1]))
    def list_the_past(self, data: st.DataObject, offset: int) -> None:
        """At each tick at which a partition came or went, one before and one after."""
        history = partitions_of(self.lake, self.table)
        ticks = {p.published_at for p in history} | {p.retired_at for p in history if p.retired_at}
        if not ticks:
            return
        tick = data.draw(st.sampled_from(sorted(ticks))) + offset
        live = {
            p.partition_id
            for p in history
            if p.published_at <= tick and (p.retired_at is None or p.retired_at > tick)
        }
        stored_as = self.table.definition.stored_as
        with self.lake.catalog.read() as connection:
            listed = tables.list_partitions(connection, stored_as, as_of=tick)
        assert {partition.partition_id for partition in listed} == live
        self.ran("list the past")

    @invariant()
    def whatever_may_come_back_has_room(self) -> None:
        """Nothing that was folded covers what can be restored."""
        if not hasattr(self, "lake"):
            return
        live = self.live() if self.model.gone else []
        for unit in self.model.gone:
            for partition in live:
                if partition.instance == unit.instance:
                    within = partition.insert_range
                    assert unit.end <= within.begin or within.end <= unit.begin

    def lake_is_sound(self, level: Level = Level.CATALOG) -> None:
        report = self.lake.checker.run(level)
        assert [e for e in report.findings if e.severity is Severity.DAMAGE] == []


RULES = {
    *KINDS, "insert", "upsert", "ignore", "refused", "kept", "insert once", "repeat", "delete",
    "forget", "alter", "delete and restore the table", "fold", "folded by an insert", "retire",
    "hold", "retire a bucket", "restore", "restore refused", "sweep", "sweep deleted files",
    "reopen", "kill insert", "kill delete", "kill fold", "kill forget", "ask for a part", "as_of",
    "as_of refused", "list the past",
}  # fmt: skip

EXAMPLES = {"sqlite": 8, "postgresql": 3}
"""Of the default run. Hypothesis begins with one in which next to nothing happens."""

SETTINGS = settings(
    max_examples=8,
    stateful_step_count=50 if CAMPAIGN else 30,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink] if SHRINK else [Phase.generate],
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


def run_machine(dialect: str, request: pytest.FixtureRequest) -> Counter[str]:
    """Run all batches; how often each rule ran."""
    fixtures = {"server": "", "template": str(request.getfixturevalue("migrated_sqlite"))}
    if dialect == "postgresql":
        fixtures["server"] = request.getfixturevalue("postgres_url")
        fixtures["template"] = request.getfixturevalue("migrated_postgres")
    machine = type("Machine", (TableMachine,), fixtures)
    TableMachine.runs.clear()
    seed = int(os.environ.get("LAKEBED_SEED", int.from_bytes(os.urandom(4), "big")))
    sys.stdout.write(f"seed {seed}; replay with LAKEBED_SEED={seed}\n")
    for batch in range(BATCHES if CAMPAIGN else 1):
        machine._hypothesis_internal_use_seed = seed + batch  # type: ignore[attr-defined]
        examples = SETTINGS.max_examples if CAMPAIGN else EXAMPLES[dialect]
        run_state_machine_as_test(machine, settings=settings(SETTINGS, max_examples=examples))
    return TableMachine.runs


def test_any_sequence_of_operations_keeps_every_promise(
    dialect: str, request: pytest.FixtureRequest
) -> None:
    """In the campaign every rule runs; by default, on SQLite, most do, and others in the next
    run."""
    counts = run_machine(dialect, request)
    sys.stdout.write("".join(f"{count:6} {name}\n" for name, count in sorted(counts.items())))
    missed = RULES - set(counts)
    sys.stdout.write(f"these never ran: {sorted(missed)}\n")
    if CAMPAIGN or dialect == "sqlite":
        assert len(missed) <= (0 if CAMPAIGN else len(RULES) // 2)
    assert set(counts) - RULES <= {"delete nothing", "kill too late"}
