"""Retiring, in every way, and restoring; on both catalogs."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any

import pytest
import sqlalchemy as sa

from lakebed.catalog import journal
from lakebed.catalog.records import partitions
from lakebed.errors import Ambiguous, BadInput, Conflict, Overlap, UnknownPartition
from lakebed.lake import Lake
from lakebed.lifecycle.outcomes import Outcome
from lakebed.lifecycle.planning import RetirementPlan
from lakebed.lifecycle.retire import Retirement
from lakebed.model.partition import hash_sources
from lakebed.model.time import SECOND
from tests.conftest import NewLake
from tests.parts.data import HOUR, T0, numbers_in, publish_hour, readings, rows


@pytest.fixture
def lake(new_lake: NewLake) -> Lake:
    lake = new_lake()
    lake.views.register(readings())
    return lake


def _twins(lake: Lake) -> tuple[object, object]:
    old = publish_hour(lake, 0)
    lake.views.register(readings(2))
    return old, publish_hour(lake, 0, version=2)


def test_four_fields_are_enough_for_a_unique_match(lake: Lake) -> None:
    publish_hour(lake, 0)
    outcome = lake.retirement.retire_partition_by_metadata(
        "readings", "global", T0, T0 + HOUR, confirmed=["readings"]
    )
    assert outcome.message.startswith("SUCCESS: Retired partition readings/global [2026-01-01")
    assert lake.partitions.list_partitions() == []


def test_four_fields_never_hit_a_twin(lake: Lake) -> None:
    """Upstream's bug: retiring by four fields deleted the live twin and leaked a file."""
    old, new = _twins(lake)
    with pytest.raises(Ambiguous) as refused:
        lake.retirement.retire_partition_by_metadata(
            "readings", "global", T0, T0 + HOUR, confirmed=["readings"]
        )
    for twin in (old, new):
        assert twin.schema_hash.hex() in str(refused.value)  # type: ignore[attr-defined]
    assert lake.partitions.list_partitions() in ([old, new], [new, old])
    lake.retirement.retire_partition_by_metadata(
        "readings",
        "global",
        T0,
        T0 + HOUR,
        old.schema_hash,  # type: ignore[attr-defined]
        confirmed=["readings"],
    )
    assert lake.partitions.list_partitions() == [new]


def test_an_empty_outdated_partition_is_listed_and_retired(lake: Lake) -> None:
    """Upstream's bug: retirement went by file path, so empty ones could never be retired."""
    empty = publish_hour(lake, 0, 0)
    lake.views.register(readings(2))
    [listed] = lake.retirement.list_incompatible_partitions()
    assert listed.partition == empty
    assert listed.can_be_rebuilt, "there is nothing to lose"
    [summary] = lake.retirement.retire_incompatible_partitions()
    assert (summary.partitions_retired, summary.partitions_failed) == (1, 0)
    assert "Retired empty partition" in summary.messages[0]
    assert lake.partitions.list_partitions() == []


def test_retiring_what_is_not_there_is_an_error(lake: Lake) -> None:
    publish_hour(lake, 0)
    retire = lake.retirement.retire_partition_by_metadata
    for call in (
        lambda: retire("readings", "global", T0, T0 + 2 * HOUR, confirmed=["readings"]),
        lambda: retire("readings", "other", T0, T0 + HOUR, confirmed=["readings"]),
        lambda: retire("readings", "global", T0, T0 + HOUR, b"wrong", confirmed=["readings"]),
        lambda: lake.retirement.plan_by_file("partitions/x"),
    ):
        with pytest.raises(UnknownPartition):
            call()
    with pytest.raises(BadInput, match="not a path inside the lake"):
        lake.retirement.plan_by_file("../x")
    assert len(lake.partitions.list_partitions()) == 1


def _held_rows(lake: Lake) -> list[bool]:
    listed = lake.partitions.list_partitions(include_retired=True)
    return [partition.held for partition in listed if not partition.is_live]


@pytest.mark.parametrize("options", [{}, {"hold": False}, {"hold": True}])
@pytest.mark.filterwarnings("ignore:retiring by file:DeprecationWarning")
def test_every_way_to_retire_holds_only_if_it_is_asked_to(
    lake: Lake, options: dict[str, bool]
) -> None:
    is_held = options.get("hold", False)
    retirement = lake.retirement
    hours = [publish_hour(lake, hour) for hour in range(6)]
    paths = [str(partition.file_path) for partition in hours]
    ranges = [(T0 + hour * HOUR, T0 + (hour + 1) * HOUR) for hour in range(6)]
    for plan in (
        retirement.plan_by_metadata("readings", "global", *ranges[0], **options),
        retirement.plan_by_file(paths[1], **options),
        retirement.plan_by_range("readings", *ranges[2], **options),
    ):
        assert (plan.hold, plan.confirm) == (is_held, () if is_held else ("readings",))
        retirement.carry_out(plan, confirmed=["readings"])
    by_name: dict[str, Any] = {"confirmed": ["readings"], **options}
    retirement.retire_partition_by_metadata("readings", "global", *ranges[3], **by_name)
    retirement.retire_partition_by_file(paths[4], **by_name)
    retirement.retire_partitions("readings", *ranges[5], **by_name)
    assert _held_rows(lake) == [is_held] * 6


def test_incompatible_and_expired_partitions_are_not_held(lake: Lake) -> None:
    partition = publish_hour(lake, 0)
    publish_hour(lake, 2)
    keep = f"{(partition.published_at - T0 - HOUR) // SECOND}s"
    retirement = lake.retirement
    retirement.carry_out(retirement.plan_by_retention("readings", keep))
    lake.views.register(readings(2))
    plan = retirement.plan_found(retirement.list_incompatible_partitions())
    assert len(plan.partitions) == 1
    assert not plan.hold
    assert plan.lost == {plan.partitions[0].partition_id}
    assert plan.confirm == ("readings",)
    retirement.carry_out(plan, confirmed=["readings"])
    assert _held_rows(lake) == [False, False]


def test_by_file_works_and_warns(lake: Lake) -> None:
    partition = publish_hour(lake, 0)
    with pytest.warns(DeprecationWarning, match="deprecated") as caught:
        lake.retirement.retire_partition_by_file(partition.file_path or "", confirmed=["readings"])
    assert [warning.filename for warning in caught] == [__file__]
    assert lake.partitions.list_partitions() == []


def test_a_range_retires_what_it_contains_and_lists_what_straddles(lake: Lake) -> None:
    inside, straddling = publish_hour(lake, 1), publish_hour(lake, 3)
    plan = lake.retirement.plan_by_range("readings", T0 + HOUR, T0 + 3 * HOUR + HOUR // 2)
    assert plan.partitions == (inside,)
    assert plan.straddling == (straddling,)
    lake.retirement.carry_out(plan, confirmed=["readings"])
    assert lake.partitions.list_partitions() == [straddling]


def test_a_plan_that_is_out_of_date_does_nothing(lake: Lake) -> None:
    publish_hour(lake, 0)
    other = publish_hour(lake, 1)
    plan = lake.retirement.plan_by_range("readings", T0, T0 + 2 * HOUR)
    lake.retirement.retire_partition_by_metadata(
        "readings", "global", T0, T0 + HOUR, confirmed=["readings"]
    )
    with pytest.raises(Conflict):
        lake.retirement.carry_out(plan, confirmed=["readings"])
    assert lake.partitions.list_partitions() == [other]


def test_what_cannot_be_rebuilt_needs_a_word(lake: Lake) -> None:
    lost = publish_hour(lake, 0)
    kept_blocks = lake.partitions.publish(
        "readings", T0 + HOUR, T0 + 2 * HOUR, rows(2, 1), source_hash=hash_sources(["block"])
    )
    with lake.catalog.write() as transaction:
        transaction.connection.execute(
            sa.text(
                "INSERT INTO blocks VALUES ('block', 's', 'p', :time, NULL, NULL, 2, 'otlp', "
                ":digest, 'segment', 0, 0)"
            ),
            {"time": T0 + HOUR, "digest": b"d"},
        )
    lake.views.register(readings(2))
    listed = {
        each.partition.partition_id: each.can_be_rebuilt
        for each in lake.retirement.list_incompatible_partitions()
    }
    assert listed == {lost.partition_id: False, kept_blocks.partition_id: True}
    [summary] = lake.retirement.retire_incompatible_partitions()
    assert (summary.partitions_retired, summary.partitions_failed) == (1, 1)
    assert any(message.startswith("ERROR: cannot be rebuilt") for message in summary.messages)
    assert lake.partitions.list_partitions() == [lost]
    [summary] = lake.retirement.retire_incompatible_partitions("readings", allow_loss=True)
    assert summary.storage_freed_bytes == lost.file_size


class RacedRetirement(Retirement):
    """Another process retires each partition right before this one does."""

    def carry_out(self, plan: RetirementPlan, *, confirmed: Collection[str] = ()) -> list[Outcome]:
        super().carry_out(plan, confirmed=confirmed)
        return super().carry_out(plan, confirmed=confirmed)


def test_incompatible_partition_that_another_process_retires_first_is_a_failed_outcome(
    lake: Lake,
) -> None:
    publish_hour(lake, 0, 0)
    lake.views.register(readings(2))
    retirement = RacedRetirement(lake.catalog, lambda: str(uuid.uuid4()))
    [summary] = retirement.retire_incompatible_partitions()
    assert (summary.partitions_retired, summary.partitions_failed) == (0, 1)
    assert summary.messages[0].startswith("ERROR: ")


def test_partitions_of_a_removed_view_set_are_listed_and_retired(lake: Lake) -> None:
    publish_hour(lake, 0)
    lake.views.remove("readings")
    [listed] = lake.retirement.list_incompatible_partitions()
    assert listed.current_hash is None
    assert not listed.can_be_rebuilt
    lake.retirement.retire_incompatible_partitions("readings", allow_loss=True)
    assert lake.partitions.list_partitions() == []


def test_restoring_brings_back_the_same_file_as_a_new_row(lake: Lake) -> None:
    old, empty = publish_hour(lake, 0), publish_hour(lake, 1, 0)
    before = numbers_in(lake)
    lake.retirement.retire_partitions("readings", T0, T0 + 2 * HOUR, confirmed=["readings"])
    restored = [lake.retirement.restore(each.partition_id) for each in (old, empty)]
    assert numbers_in(lake) == before
    assert restored[0].file_path == old.file_path
    assert restored[0].partition_id != old.partition_id
    assert [each.is_empty for each in restored] == [False, True]
    assert lake.checker.run().findings == []
    with pytest.raises(Conflict, match="restored already"):
        lake.retirement.restore(old.partition_id)
    with pytest.raises(Conflict, match="is live"):
        lake.retirement.restore(restored[0].partition_id)
    with pytest.raises(UnknownPartition):
        lake.retirement.restore("no such id")


def test_restoring_over_something_live_is_refused(lake: Lake) -> None:
    old = publish_hour(lake, 0)
    new = publish_hour(lake, 0, replaces=[old])
    with pytest.raises(Overlap):
        lake.retirement.restore(old.partition_id)
    assert lake.partitions.list_partitions() == [new]
    assert lake.checker.run().findings == []


def test_everything_is_in_the_journal(lake: Lake) -> None:
    old = publish_hour(lake, 0, reason="first")
    publish_hour(lake, 0, replaces=[old], reason="better")
    lake.retirement.retire_partitions("readings", T0, T0 + HOUR, confirmed=["readings"])
    with lake.catalog.read() as connection:
        entries = journal.list_entries(connection)
    found = [(each.operation, each.reason) for each in entries if each.partition_id]
    assert found == [
        ("retire", f"retired by range {old.insert_range}"),
        ("publish", "better"),
        ("replace", "better"),
        ("publish", "first"),
    ]
    assert all(each.actor == lake.catalog.actor and each.tick for each in entries)
    assert entries[-1].operation == "view set created"


def test_only_the_newest_row_of_a_file_is_restored(lake: Lake) -> None:
    """Else a row that is held could lose its file to a sweep of its older self."""
    for count in (3, 0):
        hour = count
        first = publish_hour(lake, hour, count)
        span = (T0 + hour * HOUR, T0 + (hour + 1) * HOUR)
        lake.retirement.retire_partitions("readings", *span, hold=True)
        second = lake.retirement.restore(first.partition_id)
        lake.retirement.retire_partitions("readings", *span, hold=True)
        with pytest.raises(Conflict, match="restored already") as refused:
            lake.retirement.restore(first.partition_id)
        assert second.partition_id in str(refused.value.hint)
        lake.retirement.restore(second.partition_id)


def test_restoring_does_not_go_around_a_hold(lake: Lake) -> None:
    first = publish_hour(lake, 0)
    publish_hour(lake, 0, replaces=[first])
    lake.retirement.retire_partitions("readings", T0, T0 + HOUR, hold=True)
    with pytest.raises(Overlap, match="is held"):
        lake.retirement.restore(first.partition_id)


def test_what_became_compatible_again_is_not_retired_by_an_old_plan(lake: Lake) -> None:
    partition = publish_hour(lake, 0)
    lake.views.remove("readings")
    plan = lake.retirement.plan_incompatible()
    lake.views.register(readings())
    with pytest.raises(Conflict, match="compatible again"):
        lake.retirement.carry_out(plan, confirmed=["readings"])
    assert lake.partitions.list_partitions() == [partition]


def test_a_stale_plan_names_what_is_stale(lake: Lake) -> None:
    kept, gone = publish_hour(lake, 0), publish_hour(lake, 1)
    plan = lake.retirement.plan_by_range("readings", T0, T0 + 2 * HOUR)
    lake.retirement.retire_partitions("readings", T0 + HOUR, T0 + 2 * HOUR, confirmed=["readings"])
    with pytest.raises(Conflict) as stale:
        lake.retirement.carry_out(plan, confirmed=["readings"])
    assert str(gone.file_path) in str(stale.value)
    assert lake.partitions.list_partitions() == [kept]


def test_the_last_retired_come_first_without_what_was_replaced(lake: Lake) -> None:
    old = publish_hour(lake, 0)
    publish_hour(lake, 0, replaces=[old])
    later = [publish_hour(lake, hour) for hour in (1, 2)]
    for hour in (2, 1):
        lake.retirement.retire_partitions(
            "readings", T0 + hour * HOUR, T0 + (hour + 1) * HOUR, confirmed=["readings"]
        )

    def list_ids(limit: int = 9, **options: Any) -> list[str]:
        with lake.catalog.read() as connection:
            found = partitions.list_retired(connection, limit, **options)
        return [each.partition_id for each in found]

    assert list_ids() == [each.partition_id for each in later]
    assert list_ids(1) == [later[0].partition_id]
    everything = [*(each.partition_id for each in later), old.partition_id]
    assert list_ids(with_replaced=True, view_set="readings") == everything
    assert list_ids(view_set="others") == []
