"""The guard of retirement, through every door: rows that cannot be rebuilt, and most of what
queries see, are retired only by name; on both catalogs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakebed import admin
from lakebed.catalog import clock
from lakebed.catalog.acting import on_behalf_of
from lakebed.cli import main
from lakebed.client.client import Client, connect
from lakebed.errors import LakebedError, Refused, StalePlan
from lakebed.lake import Lake
from lakebed.lifecycle.guard import WHOLE_LAKE, Breaker
from lakebed.lifecycle.retire import Retirement
from lakebed.model.partition import Partition
from lakebed.model.time import SECOND, format_instant
from lakebed.opening import open_lake
from lakebed.settings import Settings
from tests.conftest import NewLake
from tests.parts.data import HOUR, T0, publish_hour, publish_rebuildable_hour, readings
from tests.serve.parts import serving

HOURS = 21
Door = Callable[[Partition], object]


@pytest.fixture
def lake(new_lake: NewLake) -> Lake:
    lake = new_lake()
    lake.views.register(readings())
    return lake


@pytest.fixture
def rebuildable(lake: Lake) -> Lake:
    for hour in range(HOURS):
        publish_rebuildable_hour(lake, hour)
    return lake


def live(lake: Lake) -> list[Partition]:
    return lake.partitions.list_partitions("readings")


def identity(partition: Partition) -> tuple[str, str, int, int]:
    within = partition.insert_range
    return (partition.view_set, partition.instance, within.begin, within.end)


def spell(partition: Partition) -> str:
    within = partition.insert_range
    return (
        f"'{partition.view_set}', 'global', '{format_instant(within.begin)}', "
        f"'{format_instant(within.end)}'"
    )


SQL_CALLS = [
    "SELECT retire_partition_by_metadata({0}) AS m",
    "SELECT retire_partition_by_metadata({0}, NULL) AS m",
    "SELECT retire_partition_by_file('{1}') AS m",
    "SELECT msg AS m FROM retire_partitions({0})",
]
CONFIRMED_SQL_CALLS = [
    "SELECT retire_partition_by_metadata({0}, NULL, 'readings') AS m",
    "SELECT retire_partition_by_file('{1}', 'readings') AS m",
    "SELECT msg AS m FROM retire_partitions({0}, 'readings')",
    "SELECT msg AS m FROM retire_partitions({0}, 'whole-lake, readings')",
]


def retire_by_sql(lake: Lake | Client, call: str, partition: Partition) -> str:
    result = lake.query(call.format(spell(partition), partition.file_path))
    return str(result.to_arrow()["m"][0])


# ---- rows that cannot be rebuilt -----------------------------------------------------------------


@pytest.mark.parametrize("call", SQL_CALLS)
def test_sql_refuses_rows_that_cannot_be_rebuilt(lake: Lake, call: str) -> None:
    partition = publish_hour(lake, 0)
    with pytest.raises(Refused, match="lose 1 partition of readings with 3 rows") as refused:
        retire_by_sql(lake, call, partition)
    assert "in SQL with 'readings' as last argument" in str(refused.value.hint)
    assert live(lake) == [partition]


@pytest.mark.parametrize("call", CONFIRMED_SQL_CALLS)
def test_sql_retires_rows_that_cannot_be_rebuilt_by_name(lake: Lake, call: str) -> None:
    partition = publish_hour(lake, 0)
    with pytest.raises(Refused):
        retire_by_sql(lake, call.replace("readings'", "others'"), partition)
    assert retire_by_sql(lake, call, partition).startswith("SUCCESS: ")
    assert live(lake) == []


@pytest.mark.parametrize("call", SQL_CALLS)
def test_sql_retires_without_a_name_what_can_be_rebuilt(lake: Lake, call: str) -> None:
    partition = publish_rebuildable_hour(lake, 0)
    assert retire_by_sql(lake, call, partition).startswith("SUCCESS: ")
    assert live(lake) == []


def test_sql_retires_empty_partitions_without_a_name(lake: Lake) -> None:
    partition = publish_hour(lake, 0, 0)
    assert retire_by_sql(lake, SQL_CALLS[0], partition).startswith("SUCCESS: Retired empty ")


@pytest.mark.filterwarnings("ignore:retiring by file:DeprecationWarning")
def test_python_asks_for_a_name_before_rows_are_lost(lake: Lake) -> None:
    def by_metadata(**options: object) -> object:
        return lake.retirement.retire_partition_by_metadata(*identity(partition), **options)  # type: ignore[arg-type]

    def by_file(**options: object) -> object:
        path = str(partition.file_path)
        return lake.retirement.retire_partition_by_file(path, **options)  # type: ignore[arg-type]

    def by_range(**options: object) -> object:
        return lake.retirement.retire_partitions("readings", T0, T0 + HOUR, **options)  # type: ignore[arg-type]

    for retire in (by_metadata, by_file, by_range):
        partition = publish_hour(lake, 0)
        for wrong in ({}, {"confirmed": ["others"]}, {"confirmed": [WHOLE_LAKE]}):
            with pytest.raises(Refused, match="which cannot be rebuilt"):
                retire(**wrong)
        assert live(lake) == [partition]
        retire(confirmed=["readings"])
        assert live(lake) == []


def test_held_partitions_are_not_lost_and_need_no_name(lake: Lake) -> None:
    publish_hour(lake, 0)
    lake.retirement.retire_partitions("readings", T0, T0 + HOUR, hold=True)
    assert live(lake) == []


def test_a_connection_asks_for_a_name_before_rows_are_lost(lake: Lake) -> None:
    partition = publish_hour(lake, 0)
    with serving(lake) as served, connect(served.flight) as client:
        with pytest.raises(Refused, match="which cannot be rebuilt"):
            admin.retire_partition_by_metadata(client, *identity(partition))
        with pytest.raises(Refused, match="which cannot be rebuilt"):
            admin.retire_partitions(client, "readings", None, T0, T0 + HOUR)
        with pytest.raises(Refused, match="which cannot be rebuilt"):
            retire_by_sql(client, SQL_CALLS[0], partition)
        over_http = served.post("/v1/query", SQL_CALLS[0].format(spell(partition)).encode())
        assert over_http.status == 409
        assert live(lake) == [partition]
        admin.retire_partition_by_metadata(client, *identity(partition), confirmed=["readings"])
        assert live(lake) == []


def test_the_command_line_asks_for_a_name_before_rows_are_lost(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    publish_hour(lake, 0)
    place = lake.catalog.url.removeprefix("sqlite:///").removesuffix("/catalog.sqlite3")
    command = ["partitions", "retire", "readings", "--lake", place]
    command += ["--begin", "2026-01-01T00:00Z", "--end", "2026-01-01T01:00Z"]
    assert main.run(command) == 0
    plan = capsys.readouterr().err
    assert "this would lose 1 partition of readings with 3 rows, which cannot be" in plan
    assert "it needs --confirm readings" in plan
    assert main.run([*command, "--yes"]) == Refused.exit_code
    assert len(live(lake)) == 1
    assert main.run([*command, "--yes", "--confirm", "readings"]) == 0
    assert live(lake) == []


def test_blocks_that_are_retired_between_plan_and_commit_make_the_plan_stale(lake: Lake) -> None:
    partition = publish_rebuildable_hour(lake, 0)
    plan = lake.retirement.plan_by_metadata(*identity(partition))
    with lake.catalog.write() as transaction:
        clock.raise_blocks_from(transaction.connection, T0 + HOUR)
    with pytest.raises(StalePlan, match=r"blocks of .* were retired meanwhile"):
        lake.retirement.carry_out(plan)
    assert live(lake) == [partition]


# ---- most of a view set, in one call or in many --------------------------------------------------


def test_breaker_asks_for_the_name_when_one_call_retires_most_of_a_view_set(
    rebuildable: Lake,
) -> None:
    retire = rebuildable.retirement.retire_partitions
    day = ("readings", T0, T0 + HOURS * HOUR)
    with pytest.raises(Refused, match="most of readings \\(21 partitions in all\\)") as refused:
        retire(*day)
    assert "--confirm readings" in str(refused.value.hint)
    assert len(live(rebuildable)) == HOURS
    assert len(retire(*day, confirmed=["readings"])) == HOURS


def by_sql(lake: Lake) -> Door:
    return lambda partition: retire_by_sql(lake, SQL_CALLS[0], partition)


def by_sql_range(lake: Lake) -> Door:
    return lambda partition: retire_by_sql(lake, SQL_CALLS[3], partition)


def by_python(lake: Lake) -> Door:
    return lambda partition: admin.retire_partition_by_metadata(lake, *identity(partition))


def by_new_process(lake: Lake) -> Door:
    """A command for each partition: every process has another number."""

    def retire(partition: Partition) -> None:
        user, _, number = lake.catalog.actor.rpartition(":")
        lake.catalog.actor = f"{user}:{int(number) + 1}"
        by_python(lake)(partition)

    return retire


def by_key(lake: Lake) -> Door:
    def retire(partition: Partition) -> None:
        with on_behalf_of("key:gateway"):
            by_sql(lake)(partition)

    return retire


@pytest.mark.parametrize("door", [by_sql, by_sql_range, by_python, by_new_process, by_key])
def test_loop_of_single_retirements_is_stopped_before_most_is_gone(
    rebuildable: Lake, door: Callable[[Lake], Door]
) -> None:
    retire = door(rebuildable)
    retired = 0
    with pytest.raises(Refused, match="most of readings \\(1 partition after 10 within 1h\\)"):
        for partition in live(rebuildable):
            retire(partition)
            retired += 1
    assert retired == 10
    assert len(live(rebuildable)) == HOURS - 10


def test_threads_retire_no_more_than_the_breaker_allows(rebuildable: Lake) -> None:
    def retire(partition: Partition) -> bool:
        try:
            by_sql(rebuildable)(partition)
        except Refused:
            return False
        return True

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(retire, live(rebuildable))) == 10
    assert len(live(rebuildable)) == HOURS - 10


def test_loop_over_several_view_sets_is_stopped_at_most_of_the_lake(lake: Lake) -> None:
    for name in ("alpha", "beta", "gamma"):
        lake.views.register(readings(name=name))
        for hour in range(7):
            begin = T0 + hour * HOUR
            lake.partitions.publish_completed_empty(name, begin, begin + HOUR)
    partitions = lake.partitions.list_partitions()
    with pytest.raises(Refused, match="most of whole-lake \\(1 partition after 10 "):
        for partition in partitions:
            by_sql(lake)(partition)
    assert len(lake.partitions.list_partitions()) == 11
    call = "SELECT retire_partition_by_metadata({0}, NULL, 'whole-lake') AS m"
    assert retire_by_sql(lake, call, partitions[-1]).startswith("SUCCESS: ")


def test_each_key_has_a_count_of_its_own(rebuildable: Lake) -> None:
    first, *rest = live(rebuildable)
    for number, partition in enumerate(rest[:12]):
        with on_behalf_of(f"key:{number % 2}"):
            by_sql(rebuildable)(partition)
    by_sql(rebuildable)(first)


def test_retirements_count_only_within_the_window(rebuildable: Lake) -> None:
    retirement = Retirement(
        rebuildable.catalog, rebuildable.retirement._new_id, Breaker(window_us=1)
    )
    for partition in live(rebuildable):
        retirement.retire_partition_by_metadata(*identity(partition))
    assert live(rebuildable) == []


def test_restored_and_rebuilt_partitions_do_not_count(rebuildable: Lake) -> None:
    """Retiring hours one by one to have them built again is a usual repair."""
    for hour, partition in enumerate(live(rebuildable)):
        by_python(rebuildable)(partition)
        if hour % 2:
            rebuildable.retirement.restore(partition.partition_id)
        else:
            publish_rebuildable_hour(rebuildable, hour)
    assert len(live(rebuildable)) == HOURS


def test_confirmed_retirements_do_not_count(rebuildable: Lake) -> None:
    day = ("readings", T0, T0 + 12 * HOUR)
    rebuildable.retirement.retire_partitions(*day, confirmed=["readings"])
    by_python(rebuildable)(live(rebuildable)[0])


@pytest.fixture
def shared(tmp_path: Path, rebuildable: Lake) -> Iterator[Lake]:
    """The same lake, opened with a window of a minute and a breaker at 3 partitions."""
    settings = Settings(breaker_partitions=3, breaker_minutes=1, breaker_share=0.1)
    with open_lake(rebuildable.catalog.url, settings=settings) as lake:
        yield lake


def test_settings_move_the_breaker(shared: Lake) -> None:
    with pytest.raises(Refused, match="1 partition after 2 within 1m"):
        for partition in live(shared):
            by_python(shared)(partition)
    assert len(live(shared)) == HOURS - 2


# ---- incompatible partitions ---------------------------------------------------------------------


def test_incompatible_partitions_are_retired_without_a_second_argument(rebuildable: Lake) -> None:
    """After a schema change every old partition is incompatible."""
    publish_hour(rebuildable, HOURS, 0)
    rebuildable.views.register(readings(2))
    [summary] = rebuildable.retirement.retire_incompatible_partitions()
    assert (summary.partitions_retired, summary.partitions_failed) == (HOURS + 1, 0)
    assert rebuildable.partitions.list_partitions() == []


def test_incompatible_partitions_do_not_count_for_the_breaker_in_sql(rebuildable: Lake) -> None:
    old = live(rebuildable)
    rebuildable.views.register(readings(2))
    publish_rebuildable_hour(rebuildable, 30, version=2)
    for partition in old:
        assert str(by_sql(rebuildable)(partition)).startswith("SUCCESS: ")
    assert len(live(rebuildable)) == 1
    assert str(by_sql(rebuildable)(live(rebuildable)[0])).startswith("SUCCESS: ")


def test_incompatible_partitions_that_cannot_be_rebuilt_stay_or_are_asked_for(
    rebuildable: Lake,
) -> None:
    lost = [publish_hour(rebuildable, HOURS + hour) for hour in range(9)]
    rebuildable.views.register(readings(2))
    retire = rebuildable.retirement.retire_incompatible_partitions
    [summary] = retire()
    assert (summary.partitions_retired, summary.partitions_failed) == (HOURS, 9)
    assert live(rebuildable) == lost
    with pytest.raises(Refused, match="lose 9 partitions of readings with 27 rows"):
        retire(allow_loss=True)
    with pytest.raises(Refused, match="lose 9 partitions of readings"):
        retire(allow_loss=True, confirmed=["others"])
    assert live(rebuildable) == lost
    [summary] = retire(allow_loss=True, confirmed=["readings"])
    assert (summary.partitions_retired, summary.partitions_failed) == (9, 0)


def test_loss_is_accepted_for_the_view_set_that_the_call_names(lake: Lake) -> None:
    publish_hour(lake, 0)
    lake.views.register(readings(2))
    [summary] = lake.retirement.retire_incompatible_partitions("readings", allow_loss=True)
    assert summary.partitions_retired == 1


# ---- what is automatic ---------------------------------------------------------------------------


def test_retention_retires_rows_that_cannot_be_rebuilt_and_does_not_count(lake: Lake) -> None:
    for hour in range(4):
        publish_hour(lake, hour)
    for hour in range(4, HOURS):
        publish_rebuildable_hour(lake, hour)
    age = max(partition.published_at for partition in live(lake)) - T0 - 4 * HOUR
    plan = lake.retirement.plan_by_retention("readings", f"{age // SECOND}s")
    assert len(plan.partitions) == 4
    assert plan.confirm == ()
    lake.retirement.carry_out(plan)
    for partition in live(lake)[:8]:
        by_python(lake)(partition)
    with pytest.raises(LakebedError):
        for partition in live(lake):
            by_python(lake)(partition)
    assert len(live(lake)) == HOURS - 4 - 9
