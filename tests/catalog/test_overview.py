"""What maps are drawn from is the same on every catalog."""

from __future__ import annotations

from lakebed.catalog.lookups import overview
from lakebed.lake import Lake
from lakebed.model.time import TimeRange
from tests.parts.building import build, land, tick


def test_pieces_merges_and_landed_blocks(lake: Lake) -> None:
    with lake.catalog.read() as connection:
        assert overview.find_extent(connection) is None
        assert overview.list_pieces(connection) == []
    ends = [tick(lake)]
    for seed in (1, 2):
        land(lake, "logs", seed=seed, size=10)
        ends.append(tick(lake) + 1)
    parts = [build(lake, "log_entries", ends[at], ends[at + 1]) for at in (0, 1)]
    with lake.partitions.snapshot("log_entries") as snapshot:
        rows = snapshot.read_all("log_entries")
    whole = lake.partitions.publish(
        "log_entries", ends[0], ends[2], rows, replaces=parts, reason="one"
    )
    with lake.catalog.read() as connection:
        extent = overview.find_extent(connection)
        pieces = overview.list_pieces(connection)
        late = overview.list_pieces(connection, TimeRange(ends[1], ends[2]))
        merges = overview.list_merges(connection)
        landed = overview.list_landed(connection, TimeRange(ends[0], ends[2]))
        told = overview.list_told(connection, whole.partition_id, 10)
    assert extent == TimeRange(ends[0], ends[2])
    by_id = {each.partition_id: each for each in pieces}
    assert by_id.keys() == {whole.partition_id, *(each.partition_id for each in parts)}
    assert by_id[whole.partition_id].retired_at is None
    assert by_id[whole.partition_id].schema_hash == whole.schema_hash
    assert [by_id[each.partition_id].replaced for each in parts] == [True, True]
    assert {each.partition_id for each in late} == {whole.partition_id, parts[1].partition_id}
    assert merges == {("log_entries", whole.published_at)}
    assert [at for at, _ in landed] == sorted({at for at, _ in landed})
    assert {encoding for _, encoding in landed} == {"otlp/logs+protobuf"}
    assert [(each[1], each[3]) for each in told] == [("publish", "one")]
