"""Every operation in any order, against a plain model: a Hypothesis rule machine drives a real
catalog and store, and after every step compares what is stored, what is live and what readers see.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
import sqlalchemy as sa
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
from lakebed.catalog.records import files
from lakebed.catalog.schema import lake_clock
from lakebed.errors import Ambiguous, Conflict, SnapshotExpired, StalePlan
from lakebed.lifecycle.check import Level, Severity
from lakebed.lifecycle.sweep import LeaseObserver, Sweeper
from lakebed.model.partition import FileState, Partition
from lakebed.model.time import SECOND
from lakebed.opening import init_lake, open_lake
from lakebed.reading.snapshot import Snapshot
from lakebed.writing.publish import NewPartition
from tests.conftest import CAMPAIGN
from tests.parts import servers
from tests.parts.data import HOUR, T0, readings, rows, stored_files
from tests.proof.seams import HookedDisk

SHRINK = bool(os.environ.get("LAKEBED_SEED"))
"""Shrinking takes minutes: only when a failure is replayed."""

BATCHES = 80 if CAMPAIGN else 20
"""Two to four are enough for every rule to run; the rest is for bad luck."""

HOURS = 6
GRACE = 3600 * SECOND
hours = st.integers(0, HOURS - 1)
counts = st.integers(0, 4)
offsets = st.sampled_from([-1, 0, 1])
"""From a tick or an event of the lake to the one before it, itself and the one after it."""


class Crash(BaseException):
    """Stands for the process's death at this point."""


@dataclass
class Row:
    """What the model knows of one partition."""

    hour: int
    length: int
    version: int
    numbers: list[int]
    path: str | None
    published_at: int
    retired_at: int | None = None
    held: bool = False
    swept: bool = False

    def overlaps(self, hour: int, length: int) -> bool:
        return self.hour < hour + length and hour < self.hour + self.length


@dataclass
class Model:
    """The lake as plain Python."""

    rows: dict[str, Row] = field(default_factory=dict)
    version: int = 1
    horizon: int = 0
    defined_at: int = 0

    def live(self) -> dict[str, Row]:
        return {key: row for key, row in self.rows.items() if row.retired_at is None}

    def ticks(self) -> list[int]:
        """Return every tick at which a partition came or went."""
        ticks = {row.published_at for row in self.rows.values()}
        return sorted(ticks | {row.retired_at for row in self.rows.values() if row.retired_at})

    def event_bounds(self) -> list[int]:
        """Return the first and last event time of every partition."""
        begins = [(T0 + row.hour * HOUR, len(row.numbers)) for row in self.rows.values()]
        return sorted({t for begin, count in begins if count for t in (begin, begin + count - 1)})

    def visible(self, at: int | None = None, within: tuple[int, int] | None = None) -> Counter[int]:
        """The numbers that a reader of the active version sees, of events in a range."""
        shown: Counter[int] = Counter()
        for row in self.rows.values():
            if row.version != self.version:
                continue
            if at is None:
                seen = row.retired_at is None
            else:
                seen = row.published_at <= at and (row.retired_at is None or row.retired_at > at)
            if seen:
                shown.update(
                    number
                    for time, number in enumerate(row.numbers, T0 + row.hour * HOUR)
                    if within is None or within[0] <= time < within[1]
                )
        return shown

    def taken(self, hour: int, length: int) -> bool:
        return any(
            row.overlaps(hour, length)
            and ((row.retired_at is None and row.version == self.version) or row.held)
            for row in self.rows.values()
        )


@dataclass
class Held:
    """A snapshot that a reader keeps, and what it must go on seeing."""

    snapshot: Snapshot
    numbers: Counter[int]


class LifecycleMachine(RuleBasedStateMachine):
    """One lake and its model. Subclasses say on which catalog."""

    server: ClassVar[str] = ""
    template: ClassVar[str] = ""
    runs: ClassVar[Counter[str]] = Counter()

    @initialize()
    def make_a_lake(self) -> None:
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
        self.model = Model()
        self.held: list[Held] = []
        self.seconds = 0.0
        self.lake.views.register(readings(1))

    def teardown(self) -> None:
        if not hasattr(self, "lake"):
            return
        for held in self.held:
            held.snapshot.close()
        self.lake.close()
        if self.database:
            servers.drop_database(self.database)
        shutil.rmtree(self.folder)

    # -- helpers ------------------------------------------------------------------------------

    def ran(self, name: str) -> None:
        LifecycleMachine.runs[name] += 1

    def new(self, hour: int, length: int, count: int) -> NewPartition:
        view_set = readings(self.model.version)
        begin, end = T0 + hour * HOUR, T0 + (hour + length) * HOUR
        if count == 0:
            return NewPartition.completed_empty(view_set, begin, end)
        table = rows(count, hour, self.model.version)
        return NewPartition.of_rows(view_set, begin, end, table)

    def record(self, made: list[Partition], new: list[NewPartition]) -> None:
        for partition, each in zip(made, new, strict=True):
            numbers = [] if each.rows is None else each.rows["number"].to_pylist()
            self.model.rows[partition.partition_id] = Row(
                (partition.insert_range.begin - T0) // HOUR,
                (partition.insert_range.end - partition.insert_range.begin) // HOUR,
                self.model.version,
                numbers,
                partition.file_path,
                partition.published_at,
            )

    def draw_tick(self, data: st.DataObject) -> int:
        """Return a tick at which a partition came or went, or the one before or after it."""
        with self.lake.catalog.write():
            pass  # so that the one after the last change is in the past
        return data.draw(st.sampled_from(self.model.ticks())) + data.draw(offsets)

    def last_tick(self) -> int:
        with self.lake.catalog.read() as connection:
            return clock.now(connection)

    def reconcile(self) -> None:
        """After a retirement: let the model know at which tick it happened."""
        for each in self.lake.partitions.list_partitions(include_retired=True):
            row = self.model.rows[each.partition_id]
            if row.retired_at is not None:
                row.retired_at = each.retired_at

    def mark_retired(self, ids: list[str], *, hold: bool = False) -> None:
        for key in ids:
            self.model.rows[key].retired_at = 0
            self.model.rows[key].held = hold
        self.reconcile()

    def partition(self, key: str) -> Partition:
        listed = self.lake.partitions.list_partitions(include_retired=True)
        return next(each for each in listed if each.partition_id == key)

    # -- publishing ---------------------------------------------------------------------------

    @rule(hour=hours, length=st.integers(1, 2), count=counts)
    def publish(self, hour: int, length: int, count: int) -> None:
        new = self.new(hour, length, count)
        if self.model.taken(hour, length):
            with pytest.raises(Conflict):
                self.lake.partitions.publish_many([new])
            self.ran("publish refused")
        else:
            self.record(self.lake.partitions.publish_many([new]), [new])
            self.ran("publish empty" if count == 0 else "publish")

    @rule(hour=hours, sizes=st.lists(counts, min_size=2, max_size=3))
    def publish_many(self, hour: int, sizes: list[int]) -> None:
        new = [self.new(hour + i, 1, count) for i, count in enumerate(sizes)]
        if self.model.taken(hour, len(sizes)):
            with pytest.raises(Conflict):
                self.lake.partitions.publish_many(new)
            self.ran("publish many refused")
        else:
            self.record(self.lake.partitions.publish_many(new), new)
            self.ran("publish many")

    @precondition(lambda self: self.model.live())
    @rule(data=st.data(), stale=st.booleans())
    def replace(self, data: st.DataObject, stale: bool) -> None:
        current = [k for k, r in self.model.live().items() if r.version == self.model.version]
        if not current:
            return
        key = data.draw(st.sampled_from(current))
        row, old = self.model.rows[key], self.partition(key)
        new = self.new(row.hour, row.length, data.draw(counts))
        if stale:
            self.lake.retirement.retire_partition_by_metadata(
                "readings",
                "global",
                old.insert_range.begin,
                old.insert_range.end,
                old.schema_hash,
                confirmed=["readings"],
            )
            self.mark_retired([key])
            with pytest.raises(StalePlan):
                self.lake.partitions.publish_many([new], replaces=[old])
            self.ran("replace refused")
        else:
            made = self.lake.partitions.publish_many([new], replaces=[old])
            self.record(made, [new])
            self.mark_retired([key])
            self.ran("replace")

    @rule()
    def evolve(self) -> None:
        if self.model.version < 3:
            self.model.version += 1
            self.lake.views.register(readings(self.model.version))
            self.model.defined_at = self.last_tick()
            self.ran("evolve")

    @rule(hour=hours)
    def publish_a_twin(self, hour: int) -> None:
        """The same range in two versions, as while a schema evolves."""
        older = self.model.version
        if older == 3 or self.model.taken(hour, 1):
            return
        new = self.new(hour, 1, 1)
        self.record(self.lake.partitions.publish_many([new]), [new])
        self.evolve()
        if not self.model.taken(hour, 1):
            new = self.new(hour, 1, 1)
            self.record(self.lake.partitions.publish_many([new]), [new])
            self.ran("publish a twin")
            span = (T0 + hour * HOUR, T0 + (hour + 1) * HOUR)
            with pytest.raises(Ambiguous):
                self.lake.retirement.retire_partition_by_metadata(
                    "readings", "global", *span, confirmed=["readings"]
                )
            self.ran("retire ambiguous")

    # -- retiring and restoring ---------------------------------------------------------------

    @precondition(lambda self: self.model.live())
    @rule(data=st.data(), hold=st.booleans(), by_four=st.booleans())
    def retire_by_metadata(self, data: st.DataObject, hold: bool, by_four: bool) -> None:
        key = data.draw(st.sampled_from(list(self.model.live())))
        old, row = self.partition(key), self.model.rows[key]
        twins = [
            each
            for each in self.model.live().values()
            if (each.hour, each.length) == (row.hour, row.length)
        ]
        span = (old.insert_range.begin, old.insert_range.end)
        retire = self.lake.retirement.retire_partition_by_metadata
        if by_four and len(twins) > 1:
            with pytest.raises(Ambiguous):
                retire("readings", "global", *span, hold=hold, confirmed=["readings"])
            self.ran("retire ambiguous")
            return
        schema_hash = None if by_four else old.schema_hash
        outcome = retire(
            "readings", "global", *span, schema_hash, hold=hold, confirmed=["readings"]
        )
        assert outcome.succeeded
        assert ("empty" in outcome.message) == (row.path is None)
        self.mark_retired([key], hold=hold)
        self.ran("hold" if hold else "retire by metadata")

    @precondition(lambda self: any(row.path for row in self.model.live().values()))
    @rule(data=st.data())
    def retire_by_file(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([k for k, r in self.model.live().items() if r.path]))
        with pytest.warns(DeprecationWarning):
            self.lake.retirement.retire_partition_by_file(
                self.model.rows[key].path or "", confirmed=["readings"]
            )
        self.mark_retired([key])
        self.ran("retire by file")

    @rule(hour=hours, length=st.integers(1, 3), before=offsets, after=offsets)
    def retire_by_range(self, hour: int, length: int, before: int, after: int) -> None:
        begin, end = T0 + hour * HOUR + before, T0 + (hour + length) * HOUR + after
        inside = [
            key
            for key, row in self.model.live().items()
            if begin <= T0 + row.hour * HOUR and T0 + (row.hour + row.length) * HOUR <= end
        ]
        outcomes = self.lake.retirement.retire_partitions(
            "readings", begin, end, confirmed=["readings"]
        )
        assert {each.partition.partition_id for each in outcomes} == set(inside)
        self.mark_retired(inside)
        self.ran("retire by range" if inside else "retire nothing")

    @rule()
    def retire_incompatible(self) -> None:
        outdated = [k for k, r in self.model.live().items() if r.version != self.model.version]
        listed = self.lake.retirement.list_incompatible_partitions()
        assert {each.partition.partition_id for each in listed} == set(outdated)
        self.lake.retirement.retire_incompatible_partitions(allow_loss=True, confirmed=["readings"])
        self.mark_retired(outdated)
        self.ran("retire incompatible" if outdated else "nothing incompatible")

    @precondition(lambda self: len(self.model.live()) < len(self.model.rows))
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        gone = [k for k, r in self.model.rows.items() if r.retired_at and not r.swept]
        if not gone:
            return
        key = data.draw(st.sampled_from(gone))
        row = self.model.rows[key]
        taken = any(
            each.overlaps(row.hour, row.length) and each.version == row.version
            for each in self.model.live().values()
        )
        newer = any(
            each.published_at > row.published_at
            and (each.path, each.hour, each.length, each.version)
            == (row.path, row.hour, row.length, row.version)
            for each in self.model.rows.values()
            if not each.swept
        )
        held = any(
            each is not row and each.held and each.overlaps(row.hour, row.length)
            for each in self.model.rows.values()
        )
        if taken or newer or held:
            with pytest.raises(Conflict):
                self.lake.retirement.restore(key)
            self.ran("restore refused")
            return
        restored = self.lake.retirement.restore(key)
        row.held = False
        self.model.rows[restored.partition_id] = Row(
            row.hour, row.length, row.version, row.numbers, row.path, restored.published_at
        )
        self.ran("restore")

    # -- reading ------------------------------------------------------------------------------

    @rule()
    def hold_a_snapshot(self) -> None:
        if len(self.held) < 3:
            snapshot = self.lake.partitions.snapshot("readings")
            self.held.append(Held(snapshot, self.model.visible()))
            self.ran("hold a snapshot")

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release_a_snapshot(self, data: st.DataObject) -> None:
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        held.snapshot.close()
        self.lake.leases.beat()
        self.ran("release a snapshot")

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data())
    def read_the_past(self, data: st.DataObject) -> None:
        at = self.draw_tick(data)
        if at < self.model.horizon:
            with pytest.raises(SnapshotExpired):
                self.lake.partitions.snapshot("readings", as_of=at)
            with pytest.raises(SnapshotExpired):
                self.lake.query("SELECT number FROM readings", as_of=at)
            self.ran("as_of refused")
            return
        with self.lake.partitions.snapshot("readings", as_of=at) as snapshot:
            numbers = Counter(snapshot.read_all("readings")["number"].to_pylist())
        assert numbers == self.model.visible(at)
        self.ran("as_of")

    @precondition(lambda self: any(row.numbers for row in self.model.rows.values()))
    @rule(data=st.data(), width=st.sampled_from([1, 2, HOUR]), of_the_past=st.booleans())
    def read_a_range(self, data: st.DataObject, width: int, of_the_past: bool) -> None:
        """Now or at a tick of a change; the range begins or ends at an event of the lake."""
        bound = data.draw(st.sampled_from(self.model.event_bounds())) + data.draw(offsets)
        within = (bound, bound + width) if data.draw(st.booleans()) else (bound - width, bound)
        at = None
        if of_the_past:
            at = self.draw_tick(data)
            if at < self.model.horizon:
                return
        expected = self.model.visible(at, within)
        if at is None or at >= self.model.defined_at:  # SQL refuses what an older schema hides
            rows = self.lake.query("SELECT number FROM readings", *within, as_of=at).to_arrow()
            assert Counter(rows["number"].to_pylist()) == expected
        with self.lake.partitions.snapshot("readings", events=within, as_of=at) as snapshot:
            assert expected <= Counter(snapshot.read_all("readings")["number"].to_pylist())
            events = [partition.events for partition in snapshot.partitions]
        assert all(e and e.earliest < within[1] and e.latest >= within[0] for e in events)
        self.ran("read a range")

    @precondition(lambda self: self.model.horizon > 0)
    @rule(back=st.sampled_from([1, 2, GRACE]))
    def read_before_the_horizon(self, back: int) -> None:
        """Reading fails instead of returning less than was live."""
        horizon = self.model.horizon
        with pytest.raises(SnapshotExpired):
            self.lake.partitions.snapshot("readings", as_of=horizon - back)
        with self.lake.partitions.snapshot("readings", as_of=horizon) as snapshot:
            numbers = Counter(snapshot.read_all("readings")["number"].to_pylist())
        assert numbers == self.model.visible(horizon)
        self.ran("as_of refused")

    # -- time, death and sweeping -------------------------------------------------------------

    @rule(jump=st.sampled_from([SECOND, GRACE // 2, GRACE, 3 * GRACE]))
    def clock_jumps(self, jump: int) -> None:
        with self.lake.catalog.write() as transaction:
            transaction.connection.execute(
                sa.update(lake_clock).values(now=lake_clock.c.now + jump)
            )
        self.ran("clock jump")

    @rule(leases_die=st.booleans())
    def sweep(self, leases_die: bool) -> None:
        sweeper = Sweeper(
            self.lake.catalog,
            self.lake.store,
            batch_files=2,
            observer=LeaseObserver(lambda: self.seconds),
        )
        sweeper.plan()
        if leases_die:
            self.seconds += 1e6
        had_lease = bool(self.held) and not leases_die
        oldest = min((each.snapshot.tick for each in self.held), default=0)
        result = sweeper.run()
        if leases_die:
            for held in self.held:  # whoever was taken for dead is told, and never given less
                with pytest.raises(SnapshotExpired):
                    self.lake.leases.beat()
                    held.snapshot.read_all("readings")
            self.held.clear()
        with self.lake.catalog.read() as connection:
            self.model.horizon = connection.scalar(sa.select(lake_clock.c.sweep_horizon))
        left = {e.partition_id for e in self.lake.partitions.list_partitions(include_retired=True)}
        for key, row in self.model.rows.items():
            if key not in left and not row.swept:
                assert row.retired_at is not None, "a live partition was swept"
                assert not row.held, "a held partition was swept"
                assert not had_lease or row.retired_at <= oldest, "a reader's file was swept"
                row.swept = True
        self.ran("sweep, leases dead" if leases_die else "sweep")
        if result.files:
            self.ran("sweep deleted files")

    @precondition(lambda self: self.model.live())
    @rule(data=st.data())
    def live_to_the_end(self, data: st.DataObject) -> None:
        """Retired, past its grace period, and swept if nobody reads it: seldom a row of chances."""
        self.retire_by_metadata(data, hold=False, by_four=False)
        self.clock_jumps(2 * GRACE)
        self.sweep(leases_die=False)

    @rule(hour=hours, count=st.integers(1, 3), point=st.integers(1, 6))
    def crash_while_publishing(self, hour: int, count: int, point: int) -> None:
        """Die at some operation on disk: nothing was published, and the file is not forgotten."""
        if self.model.taken(hour, 1):
            return
        left = point

        def die(_event: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash

        calm, self.lake.store.disk = self.lake.store.disk, HookedDisk(die)
        new = self.new(hour, 1, count)
        try:
            made = self.lake.partitions.publish_many([new])
        except Crash:
            self.reopen_without_closing()
            self.ran("crash")
        else:
            self.record(made, [new])
        finally:
            self.lake.store.disk = calm

    def reopen_without_closing(self) -> None:
        """What a crash leaves behind: leases and reservations that nobody gives back."""
        for held in self.held:
            held.snapshot.close()
        self.held.clear()
        dead = self.lake
        dead.leases._stop.set()
        dead.catalog.close()
        self.lake = open_lake(self.url)

    @rule()
    def reopen(self) -> None:
        for held in self.held:
            held.snapshot.close()
        self.held.clear()
        self.lake.close()
        self.lake = open_lake(self.url)
        self.ran("reopen")

    # -- what must always hold ----------------------------------------------------------------

    @invariant()
    def readers_see_the_model(self) -> None:
        if not hasattr(self, "lake"):
            return
        with self.lake.partitions.snapshot("readings") as snapshot:
            shown = Counter(snapshot.read_all("readings")["number"].to_pylist())
        assert shown == self.model.visible()
        for held in self.held:
            shown = Counter(held.snapshot.read_all("readings")["number"].to_pylist())
            assert shown == held.numbers

    @invariant()
    def every_file_is_accounted_for(self) -> None:
        if not hasattr(self, "lake"):
            return
        live = {row.path for row in self.model.live().values() if row.path}
        with self.lake.catalog.read() as connection:
            temporary = {file.file_path: file.state for file in files.list_files(connection)}
            footers = set(connection.scalars(sa.text("SELECT file_path FROM partition_metadata")))
        stored = stored_files(self.lake)
        assert not live & set(temporary)
        assert stored <= live | set(temporary), "a file that nobody knows"
        retired = {path for path, state in temporary.items() if state is FileState.RETIRED}
        assert live | retired <= stored, "a file is lost"
        assert footers == live | retired, "a footer outlived its file, or went before it"

    @invariant()
    def check_is_clean(self) -> None:
        if not hasattr(self, "lake"):
            return
        findings = [
            finding
            for finding in self.lake.checker.run(Level.FOOTERS).findings
            if finding.severity is Severity.DAMAGE
        ]
        assert findings == []


RULES = {
    "publish", "publish empty", "publish refused", "publish many", "publish many refused",
    "publish a twin", "replace", "replace refused", "evolve", "retire by metadata", "hold",
    "retire ambiguous", "retire by file", "retire by range", "retire incompatible", "restore",
    "restore refused",
    "hold a snapshot", "release a snapshot", "as_of", "as_of refused", "read a range",
    "clock jump", "sweep", "sweep, leases dead", "sweep deleted files", "crash", "reopen",
}  # fmt: skip


SETTINGS = settings(
    max_examples=6,
    stateful_step_count=40,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink] if SHRINK else [Phase.generate],
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


def test_any_sequence_of_operations_keeps_every_promise(
    dialect: str, request: pytest.FixtureRequest
) -> None:
    fixtures = {"server": "", "template": str(request.getfixturevalue("migrated_sqlite"))}
    if dialect == "postgresql":
        fixtures["server"] = request.getfixturevalue("postgres_url")
        fixtures["template"] = request.getfixturevalue("migrated_postgres")
    machine = type("Machine", (LifecycleMachine,), fixtures)
    LifecycleMachine.runs.clear()
    seed = int(os.environ.get("LAKEBED_SEED", int.from_bytes(os.urandom(4), "big")))
    sys.stdout.write(f"seed {seed}; replay with LAKEBED_SEED={seed}\n")
    must_run = RULES if dialect == "sqlite" or CAMPAIGN else set()
    for batch in range(BATCHES):
        machine._hypothesis_internal_use_seed = seed + batch  # type: ignore[attr-defined]
        run_state_machine_as_test(machine, settings=SETTINGS)
        if must_run <= set(LifecycleMachine.runs) and not CAMPAIGN:
            break
    counts = LifecycleMachine.runs
    sys.stdout.write("".join(f"{count:6} {name}\n" for name, count in sorted(counts.items())))
    assert must_run <= set(counts), f"these never ran: {sorted(must_run - set(counts))}"
    assert set(counts) - RULES <= {"retire nothing", "nothing incompatible"}
