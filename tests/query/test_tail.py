"""Everything acknowledged is visible at once: what is built from its partitions, the rest decoded
on the fly. What must not be seen is not: held back, forgotten, of another schema, not decodable.
"""

from __future__ import annotations

from collections import Counter

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakebed.catalog.records import blocks, failures
from lakebed.errors import SnapshotExpired, TailTooLarge
from lakebed.lake import Lake
from lakebed.model.source import BlockSource
from lakebed.model.time import format_instant
from lakebed.model.view_set import ViewSet
from lakebed.query.output.explanation import TableExplanation
from lakebed.query.queries import Queries, QuerySettings
from lakebed.query.snapshot import view_tables as table_views
from lakebed.samples.generator import Generator
from lakebed.views.builtin import built_in
from tests.conftest import NewLake
from tests.parts.building import build, land, tick


def count(lake: Lake, table: str = "log_entries", **options: object) -> int:
    found = lake.query(f"SELECT count(*) AS n FROM {table}", **options)  # type: ignore[arg-type]
    return int(found.to_arrow()["n"][0].as_py())


def explain(lake: Lake, sql: str = "SELECT * FROM log_entries") -> TableExplanation:
    with lake.queries.query(sql, explained=True) as result:
        return result.explanation.tables[0]


def messages(lake: Lake) -> Counter[str]:
    return Counter(lake.query("SELECT msg FROM log_entries").to_arrow()["msg"].to_pylist())


def sent_messages(requests: list[ExportLogsServiceRequest]) -> int:
    return sum(
        len(scope.log_records)
        for request in requests
        for resource in request.resource_logs
        for scope in resource.scope_logs
    )


def test_what_landed_is_seen_before_anything_is_built(lake: Lake) -> None:
    sent = land(lake, requests=3)
    assert count(lake) == sent_messages(sent)
    assert explain(lake).partitions_read == 0
    land(lake, "metrics")
    land(lake, "traces")
    assert count(lake, "measures") == 20
    assert count(lake, "spans") == 20
    assert count(lake, "blocks") == len(
        lake.query("SELECT DISTINCT block_id FROM blocks").to_arrow()
    )


def test_each_record_is_seen_once_while_it_is_built(lake: Lake) -> None:
    land(lake, seed=1, requests=2)
    before = messages(lake)
    build(lake)
    assert messages(lake) == before
    assert explain(lake).tail_rows == 0
    land(lake, seed=2)
    assert sum(messages(lake).values()) == 60
    told = explain(lake)
    assert (told.partitions_read, told.rows_in_partitions, told.tail_rows) == (1, 40, 20)


def test_a_gap_between_partitions_is_tail(lake: Lake) -> None:
    land(lake, seed=1)
    first_end = tick(lake) + 1
    build(lake, end=first_end)
    land(lake, seed=2)
    second_end = tick(lake) + 1
    land(lake, seed=3)
    build(lake, begin=second_end)
    assert count(lake) == 60
    told = explain(lake)
    assert (told.partitions_read, told.tail_rows) == (2, 20)
    build(lake, begin=first_end, end=second_end)
    assert count(lake) == 60
    assert explain(lake).tail_rows == 0


def test_retired_rows_come_back_by_the_tail_and_held_ones_do_not(lake: Lake) -> None:
    land(lake)
    partition = build(lake)
    assert count(lake) == 20
    lake.retirement.carry_out(lake.retirement.plan_by_file(str(partition.file_path)))
    assert count(lake) == 20
    assert explain(lake).tail_rows == 20
    lake.retirement.restore(partition.partition_id)
    restored = lake.partitions.list_partitions("log_entries")[0]
    plan = lake.retirement.plan_by_file(str(restored.file_path), hold=True)
    lake.retirement.carry_out(plan)
    assert count(lake) == 0
    lake.retirement.restore(restored.partition_id)
    assert count(lake) == 20


def test_below_the_floor_nothing_is_tail(lake: Lake) -> None:
    from lakebed.catalog.records import view_sets

    lake.views.ensure(built_in())
    land(lake, seed=1)
    floor = tick(lake) + 1
    land(lake, seed=2)
    with lake.catalog.write() as transaction:
        view_sets.raise_floor(transaction.connection, "log_entries", floor)
    assert count(lake) == 20


def test_what_exists_only_in_another_schema_is_hidden_and_said(lake: Lake) -> None:
    land(lake)
    build(lake)
    before = tick(lake)
    old = next(each for each in built_in() if each.name == "log_entries")
    new = ViewSet("log_entries", 2, old.schema, "time", ("time",), source=BlockSource("logs"))
    lake.views.register(new)
    result = lake.query("SELECT count(*) AS n FROM log_entries")
    assert result.to_arrow()["n"].to_pylist() == [0]
    assert len(result.warnings) == 1
    assert "lakebed build log_entries" in result.warnings[0]
    build(lake)
    result = lake.query("SELECT count(*) AS n FROM log_entries")
    assert result.to_arrow()["n"].to_pylist() == [20]
    assert result.warnings == ()
    assert lake.query("SELECT * FROM log_entries", as_of=tick(lake)).to_arrow().num_rows == 20
    with pytest.raises(SnapshotExpired, match="log_entries was defined anew at"):
        lake.query("SELECT count(*) AS n FROM log_entries", as_of=before)


def test_what_a_sql_view_set_lacks_is_said(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def warnings() -> tuple[str, ...]:
        return lake.query("SELECT * FROM log_stats").warnings

    def publish(begin: int, end: int) -> None:
        lake.partitions.publish_completed_empty("log_stats", begin, end)

    lake.views.ensure(built_in())
    land(lake, "traces")
    assert warnings() == (), "it is not made of traces"
    begin = tick(lake) + 1
    land(lake, seed=1)
    (never,) = warnings()
    assert never.endswith("build it with: lakebed build log_stats")
    first = tick(lake) + 1
    land(lake, seed=2)
    second = tick(lake) + 1
    land(lake, seed=3)
    end = tick(lake) + 1
    lake.tables.create_database("ticks")
    publish(begin, first)
    assert warnings() == (), "the rest landed just now"
    monkeypatch.setattr(table_views, "_BUILT_WITHIN_US", 0)
    publish(second, end)
    (hole,) = warnings()
    assert f"{format_instant(second)}) is not built" in hole
    publish(first, second)
    assert warnings() == ()


def test_a_block_that_cannot_be_decoded_is_left_out_and_counted(lake: Lake) -> None:
    lake.views.ensure(built_in())
    land(lake, seed=1)
    land(lake, seed=2)
    with lake.catalog.read() as connection:
        victim = blocks.list_blocks_in(connection, [_ever()])[0]
    path = lake.store.locate(victim.segment_path)  # type: ignore[attr-defined]
    data = bytearray(path.read_bytes())
    data[victim.segment_offset] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(data)
    assert count(lake) < 40
    assert explain(lake).failed_blocks == 1
    assert "cannot be decoded" in lake.query("SELECT 1 FROM log_entries").warnings[0]
    definition = lake.partitions.definition("log_entries")
    known = failures.BuildFailure(
        "log_entries", definition.schema_hash, victim.block_id, victim.insert_time, "broken"
    )
    with lake.catalog.write() as transaction:
        failures.insert_many(transaction.connection, [known], transaction.tick)
    told = explain(lake)
    assert told.failed_blocks == 1
    assert count(lake) == told.tail_rows


def _ever() -> object:
    from lakebed.query.planning.conditions import EVER

    return EVER


def test_a_time_range_takes_only_blocks_that_may_have_it(lake: Lake) -> None:
    sent = land(lake, requests=5)
    times = sorted(
        (record.time_unix_nano or record.observed_time_unix_nano) // 1000
        for request in sent
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    )
    middle = times[len(times) // 2]
    expected = sum(time >= middle for time in times)
    sql = f"SELECT count(*) AS n FROM log_entries WHERE time >= to_timestamp_micros({middle})"
    late = lake.query(sql + " AND time < '2026-11-15T23:00:00Z'").to_arrow()["n"][0].as_py()
    assert late == expected
    assert explain(lake, sql + " AND time < '2020-01-01'").tail_blocks == 0


def test_records_without_a_time_happened_when_they_landed(lake: Lake) -> None:
    from lakebed.samples.generator import Generator

    request = Generator(1).logs(10)
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            for record in list(scope.log_records)[::2]:
                record.time_unix_nano = record.observed_time_unix_nano = 0
    before = tick(lake)
    lake.telemetry.land("logs", request.SerializeToString())
    found = count(lake, begin=before)
    assert 0 < found < 10
    assert count(lake, end=before) == 10 - found


def test_stale_leaves_the_tail_out(lake: Lake) -> None:
    land(lake, seed=1)
    build(lake)
    land(lake, seed=2)
    assert count(lake, stale=True) == 20
    assert count(lake) == 40


def test_too_much_that_is_not_built_names_the_remedy(lake: Lake) -> None:
    land(lake, requests=3, size=200)
    few = Queries(lake.catalog, lake.store, lake.leases, QuerySettings(tail_bytes=1000))
    with pytest.raises(TailTooLarge, match="log_entries") as refused:
        few.query("SELECT * FROM log_entries")
    assert "lakebed build log_entries" in str(refused.value.hint)
    assert few.query("SELECT * FROM log_entries", stale=True).to_arrow().num_rows == 0
    assert few.query("SELECT * FROM spans").to_arrow().num_rows == 0


def test_what_becomes_too_much_once_decoded_names_the_remedy(lake: Lake) -> None:
    """Who sent a record stands once in what landed, and in every row."""
    request = Generator(1).logs(500)
    del request.resource_logs[1:]
    request.resource_logs[0].resource.attributes.add(key="note").value.string_value = "x" * 60_000
    payload = request.SerializeToString()
    lake.telemetry.land("logs", payload)
    few = Queries(lake.catalog, lake.store, lake.leases, QuerySettings(tail_bytes=len(payload)))
    with pytest.raises(TailTooLarge, match="once it is decoded") as refused:
        few.query("SELECT msg FROM log_entries").to_arrow()
    assert "lakebed build log_entries" in str(refused.value.hint)
    assert few.query("SELECT * FROM log_entries", stale=True).to_arrow().num_rows == 0


def test_blocks_are_decoded_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakebed.query.snapshot import tail

    decoded: list[int] = []
    really = tail.decode_blocks

    def counted(store: object, view_set: object, blocks: list[object], *rest: object) -> object:
        decoded.append(len(blocks))
        return really(store, view_set, blocks, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(tail, "decode_blocks", counted)
    land(lake, seed=1)
    assert count(lake) == 20
    assert count(lake) == 20
    land(lake, seed=2)
    assert count(lake) == 40
    with lake.catalog.read() as connection:
        assert sum(decoded) == blocks.count_blocks(connection)
    none = Queries(lake.catalog, lake.store, lake.leases, QuerySettings(tail_cache_bytes=0))
    for _ in range(2):
        decoded.clear()
        assert none.query("SELECT * FROM log_entries").to_arrow().num_rows == 40
        assert sum(decoded) > 0


def test_many_small_landings_are_put_together_and_none_is_lost(lake: Lake) -> None:
    ends = []
    for number in range(40):  # more than are put together at once
        land(lake, seed=number)
        ends.append(tick(lake) + 1)
        assert count(lake) == 20 * (number + 1)
    expected = messages(lake)
    for number in range(0, 38, 2):  # more gaps than are asked for one by one
        build(lake, begin=ends[number], end=ends[number + 1])
        assert explain(lake).partitions_read == number // 2 + 1
        land(lake, seed=100 + number)
        assert count(lake) == 800 + 10 * (number + 2)
    assert messages(lake) & expected == expected


def test_the_past_has_its_own_tail(lake: Lake) -> None:
    land(lake, seed=1)
    first = tick(lake)
    land(lake, seed=2)
    build(lake)
    built = tick(lake)
    land(lake, seed=3)
    assert count(lake, as_of=first) == 20
    assert count(lake, as_of=built) == 40
    assert count(lake) == 60


def test_sql_view_sets_have_no_tail_and_say_until_when_they_are_built(lake: Lake) -> None:
    land(lake)
    told = explain(lake, "SELECT * FROM processes")
    assert (told.tail_rows, told.built_until) == (0, None)
    assert count(lake, "processes") == 0


def test_tails_of_other_lakes_are_not_mixed_up(new_lake: NewLake) -> None:
    one, other = new_lake(), new_lake()
    land(one, seed=1)
    land(other, seed=1, requests=2)
    assert (count(one), count(other)) == (20, 40)
