"""Whatever the order of landing, building, merging, redefining, retiring and restoring: queries
give every record once at every moment, but for ranges of another schema, of which they warn; and a
built lake holds every record once.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakebed.errors import Conflict
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.model.partition import Partition
from lakebed.pipeline.steps import Merge
from lakebed.samples.generator import Generator
from lakebed.views.builtin import built_in
from tests.conftest import CAMPAIGN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATS_SQL = next(each.source.sql for each in built_in() if each.name == "log_stats")  # type: ignore[union-attr]
HISTORIES, STEPS = (25, 30) if CAMPAIGN else (1, 14)


class History:
    """A lake, and the records that it should hold."""

    def __init__(self, lake: Lake, spark: SparkSession, seed: int) -> None:
        self.lake = lake
        self.spark = spark
        self.rng = random.Random(seed)
        self.generator = Generator(seed)
        self.truth: Counter[tuple[str, int]] = Counter()
        self.version = 1
        self.ran: Counter[str] = Counter()
        lake.pipeline.limits = replace(
            lake.pipeline.limits, build_records=self.rng.choice([15, 40, 1000])
        )
        self.deck: list[Callable[[], None]] = []

    def step(self) -> None:
        if not self.deck:  # each rule in its turn, in any order: none is left out by chance
            rules = [self.land, self.land, self.build, self.retire, self.restore, self.evolve]
            self.deck = [*rules, self.retire_incompatible]
            self.rng.shuffle(self.deck)
        rule = self.deck.pop()
        rule()
        self.ran[rule.__name__] += 1
        assert self.held("log_entries") <= self.truth, "a record is twice in files, or invented"
        self.compare()

    def land(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            request = self.generator.logs(self.rng.randint(1, 20))
            receipt = self.lake.telemetry.land("logs", request.SerializeToString())
            assert receipt.duplicates == 0
            for resource in request.resource_logs:
                for scope in resource.scope_logs:
                    for record in scope.log_records:
                        self.truth[scope.scope.name, record.time_unix_nano] += 1

    def build(self) -> None:
        report = self.lake.pipeline.build("log_stats", spark=self.spark)
        assert report.problems == []
        self.ran["merge"] += sum(isinstance(each.step, Merge) for each in report.published)
        assert self.held("log_entries") == self.truth
        assert not self.compare()
        assert self.grouped("SELECT * FROM log_stats") == self.grouped(STATS_SQL)
        assert self.lake.pipeline.plan("log_stats").steps == ()

    def compare(self) -> list[str]:
        """What queries give is the truth; or less, and they warn. The warnings."""
        if "log_entries" not in {
            entry.view_set.name for entry in self.lake.views.list_registered()
        }:
            return []
        result = self.lake.query("SELECT target, time_unix_nano FROM log_entries")
        rows = Counter((row["target"], row["time_unix_nano"] or 0) for row in to_rows(result))
        if result.warnings:
            self.ran["warned"] += 1
            assert rows <= self.truth, "a record is given twice, or was invented"
        else:
            assert rows == self.truth, "a query lost or doubled a record"
        return list(result.warnings)

    def grouped(self, sql: str) -> Counter[str]:
        rows = Counter[str]()
        for row in to_rows(self.lake.query(sql)):
            count = row.pop("count")
            rows[repr(sorted(row.items()))] += count
        return rows

    def retire(self) -> None:
        live = self.lake.partitions.list_partitions()
        if live:
            self.retire_one(self.rng.choice(live))

    def retire_one(self, chosen: Partition) -> None:
        self.lake.retirement.retire_partition_by_metadata(
            chosen.view_set,
            chosen.instance,
            chosen.insert_range.begin,
            chosen.insert_range.end,
            chosen.schema_hash,
            confirmed=[chosen.view_set, "whole-lake"],
        )

    def restore(self) -> None:
        every = self.lake.partitions.list_partitions(include_retired=True)
        retired = [each for each in every if not each.is_live]
        if retired:
            try:
                self.lake.retirement.restore(self.rng.choice(retired).partition_id)
                self.ran["restored"] += 1
            except Conflict:
                self.ran["restore refused"] += 1

    def retire_and_restore(self) -> None:
        """At once, so that nothing can be in the way."""
        chosen = self.rng.choice(self.lake.partitions.list_partitions())
        self.retire_one(chosen)
        self.compare()
        self.lake.retirement.restore(chosen.partition_id)
        assert not self.compare()

    def evolve(self) -> None:
        self.version += 1
        old = next(each for each in built_in() if each.name == "log_entries")
        self.lake.pipeline.plan("log_stats") if self.truth else None
        self.lake.views.register(replace(old, version=self.version))

    def retire_incompatible(self) -> None:
        names = [each.view_set.name for each in self.lake.views.list_view_sets()]
        self.lake.retirement.retire_incompatible_partitions(allow_loss=True, confirmed=names)

    def held(self, view_set: str) -> Counter[tuple[str, int]]:
        if view_set not in {entry.view_set.name for entry in self.lake.views.list_registered()}:
            return Counter()
        with self.lake.partitions.snapshot(view_set) as snapshot:
            rows = snapshot.read_all(view_set, ["target", "time_unix_nano"])
        return Counter((row["target"], row["time_unix_nano"] or 0) for row in rows.to_pylist())


def to_rows(result: Any) -> list[dict[str, Any]]:
    return list(result.to_arrow().to_pylist())


def test_any_order_of_operations_ends_with_every_record_once(
    new_lake: Any, spark: SparkSession
) -> None:
    seed = int(os.environ.get("LAKEBED_SEED", int.from_bytes(os.urandom(4), "big")))
    sys.stdout.write(f"seed {seed}; replay with LAKEBED_SEED={seed}\n")
    ran: Counter[str] = Counter()
    for number in range(HISTORIES):
        lake: Lake = new_lake()
        history = History(lake, spark, seed + number)
        history.land()
        for _ in range(STEPS):
            history.step()
        for _ in range(2):  # the second may have a small neighbour to be merged with
            history.land()
            history.build()
        history.retire_incompatible()
        history.retire_and_restore()
        assert history.held("log_entries") == history.truth
        assert lake.checker.run(Level.PAGES).is_clean
        ran += history.ran
    sys.stdout.write(f"{dict(ran)}\n")
    assert ran["build"] and ran["land"]
    assert ran["merge"] or not CAMPAIGN, "one history may have nothing small beside each other"
