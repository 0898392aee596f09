"""Steps that came too late: nothing of them is published, and they are planned again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.pipeline.pipeline import Progress
from lakebed.samples.generator import Generator
from tests.pipeline.test_build import messages
from tests.writing.test_name_reservations import take_for_dead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def land(lake: Lake, requests: int, records: int = 20, seed: int = 1) -> int:
    """Land some logs; how many records."""
    generator = Generator(seed)
    for _ in range(requests):
        lake.telemetry.land("logs", generator.logs(records).SerializeToString())
    return requests * records


def at_each_round(act: Callable[[int], None]) -> Callable[[Progress], None]:
    """Something that happens after a plan was made and before it is carried out."""

    def progress(at: Progress) -> None:
        if at.done == 0:
            act(at.round)

    return progress


def test_a_merge_overtaken_by_a_retirement_is_planned_again(
    lake: Lake, spark: SparkSession
) -> None:
    lake.pipeline.limits = replace(lake.pipeline.limits, merge_rows=0)
    count = land(lake, 2)
    lake.pipeline.build("log_entries", spark=spark)
    count += land(lake, 2, seed=2)
    lake.pipeline.build("log_entries", spark=spark)
    old, _ = lake.partitions.list_partitions("log_entries")
    lake.pipeline.limits = replace(lake.pipeline.limits, merge_rows=1000)

    def retire(number: int) -> None:
        if number == 1:
            lake.retirement.retire_partition_by_metadata(
                "log_entries", "global", old.insert_range.begin, old.insert_range.end
            )

    report = lake.pipeline.build("log_entries", spark=spark, progress=at_each_round(retire))
    assert report.problems == []
    assert ["not live any more" in (each.overtaken or "") for each in report.overtaken] == [True]
    assert sum(messages(lake).values()) == count
    assert lake.pipeline.plan("log_entries").steps == ()


def test_a_step_that_another_program_did_is_no_problem(lake: Lake, spark: SparkSession) -> None:
    count = land(lake, 2)

    def build_beside(number: int) -> None:
        """A program that was taken for dead, and goes on."""
        if number > 1:
            return
        (step,) = lake.pipeline.plan("log_entries").steps
        lake.partitions.publish_completed_empty(
            "log_entries", step.insert_range.begin, step.insert_range.end
        )

    report = lake.pipeline.build("log_entries", spark=spark, progress=at_each_round(build_beside))
    assert (report.rounds, report.published, report.problems) == (1, [], [])
    assert len(report.overtaken) == 1
    assert count and lake.pipeline.plan("log_entries").steps == ()


def test_a_lake_in_permanent_conflict_is_given_up_and_said_so(
    lake: Lake, spark: SparkSession
) -> None:
    lake.pipeline.limits = replace(lake.pipeline.limits, merge_rows=0)
    land(lake, 12, 3)
    rounds: list[int] = []

    def take_a_piece(number: int) -> None:
        rounds.append(number)
        begin = lake.pipeline.plan("log_entries").steps[0].insert_range.begin
        lake.partitions.publish_completed_empty("log_entries", begin, begin + 1)

    report = lake.pipeline.build("log_entries", spark=spark, progress=at_each_round(take_a_piece))
    assert rounds == [1, 2, 3]
    assert len(report.overtaken) == 3
    (problem,) = report.problems
    assert (problem.problem or "").startswith("overtaken in round 3, and given up: ")


def test_a_lease_lost_during_a_build_costs_only_a_round(lake: Lake, spark: SparkSession) -> None:
    lake.pipeline.limits = replace(lake.pipeline.limits, build_records=1)
    count = land(lake, 6, 5)
    assert len(lake.pipeline.plan("log_entries").steps) > 2
    taken = []

    def die(at: Progress) -> None:
        if at.done == 1 and not taken:
            taken.append(at.round)
            take_for_dead(lake)
        elif at.done == 1:
            lake.sweeper.run()  # takes what is reserved under no living lease

    report = lake.pipeline.build("log_entries", spark=spark, progress=die)
    assert taken == [1]
    assert report.problems == []
    assert len(report.overtaken) > 1
    assert all("seemed dead" in (each.overtaken or "") for each in report.overtaken)
    assert {each.step.insert_range for each in report.overtaken} <= {
        each.step.insert_range for each in report.published
    }, "done in the next round"
    assert sum(messages(lake).values()) == count
    assert lake.checker.run(Level.PAGES).is_clean
