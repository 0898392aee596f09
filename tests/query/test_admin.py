"""Administration from Python: the same as in SQL, as data; also over a connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from lakebed import admin
from lakebed.client.client import Client, connect
from lakebed.errors import Ambiguous, BadInput, Overlap, Refused, UnknownPartition, UnknownViewSet
from lakebed.lake import Lake
from lakebed.operations.operation import OPERATIONS
from tests.parts.data import HOUR, T0, publish_hour, readings
from tests.serve.parts import serving


@pytest.fixture
def evolved(lake: Lake) -> Lake:
    """Readings whose schema changed after three hours, one of them empty, were published; the
    first hour was published again."""
    lake.views.register(readings())
    for hour, count in enumerate((3, 0, 2)):
        publish_hour(lake, hour, count)
    lake.views.register(readings(2))
    publish_hour(lake, 0, version=2)
    return lake


@pytest.fixture(params=["sqlite", "postgresql", "sqlite, connected"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dialect(place: str) -> str:
    return place.split(",")[0]


@pytest.fixture
def source(place: str, evolved: Lake) -> Iterator[Lake | Client]:
    """The lake, as programs have it: opened, or at the other end of a connection."""
    if "connected" not in place:
        yield evolved
        return
    with serving(evolved) as served, connect(served.flight) as client:
        yield client


def sql(lake: Lake, text: str) -> list[dict[str, Any]]:
    return lake.query(text).to_arrow().to_pylist()


def test_lists_are_those_of_sql(evolved: Lake, source: Lake | Client) -> None:
    for name in ("list_partitions", "list_view_sets", "list_columns"):
        table = getattr(admin, name)(source)
        assert table.to_pylist() == sql(evolved, f"SELECT * FROM {name}()")
        assert table.schema == evolved.query(f"SELECT * FROM {name}()").to_arrow().schema
    assert admin.list_partitions(source, "readings").num_rows == 4
    assert admin.list_partitions(source, "blocks").num_rows == 0
    assert admin.list_partitions(source).to_pandas()["num_rows"].sum() == 8
    empty = admin.explain_empty(source, "readings", T0, T0 + 4 * HOUR)
    assert empty.to_pylist() == sql(
        evolved,
        "SELECT * FROM explain_empty('readings', '2026-01-01T00:00:00Z', '2026-01-01T04:00:00Z')",
    )
    with pytest.raises(UnknownViewSet):
        admin.explain_empty(source, "nope", T0, T0 + HOUR)


def test_the_past_can_be_listed(evolved: Lake, source: Lake | Client) -> None:
    before = evolved.query("SELECT 1").explanation.tick
    admin.retire_partitions(source, "readings", None, T0, T0 + 4 * HOUR, confirmed=["readings"])
    assert admin.list_partitions(source).num_rows == 0
    assert admin.list_partitions(source, as_of=before).num_rows == 4


def test_incompatible_partitions_are_listed_and_retired(
    evolved: Lake, source: Lake | Client
) -> None:
    table = admin.list_incompatible_partitions(source)
    assert table.column_names[:8] == [
        "view_set_name",
        "view_instance_id",
        "begin_insert_time",
        "end_insert_time",
        "incompatible_schema_hash",
        "current_schema_hash",
        "file_path",
        "file_size",
    ]
    assert [row["num_rows"] for row in table.to_pylist()] == [3, 0, 2]
    assert set(table["current_schema_hash"].to_pylist()) == {readings(2).schema_hash}
    (left,) = admin.retire_incompatible_partitions(source, "readings").to_pylist()
    assert (left["partitions_retired"], left["partitions_failed"]) == (1, 2)
    assert [line.split(":")[0] for line in left["retirement_messages"]] == [
        "ERROR",
        "SUCCESS",
        "ERROR",
    ]
    with pytest.raises(Refused, match="lose 2 partitions of readings with 5 rows"):
        admin.retire_incompatible_partitions(source, allow_loss=True)
    (done,) = admin.retire_incompatible_partitions(
        source, allow_loss=True, confirmed=["readings"]
    ).to_pylist()
    assert list(done) == [
        "view_set_name",
        "view_instance_id",
        "partitions_retired",
        "partitions_failed",
        "storage_freed_bytes",
        "retirement_messages",
    ]
    assert (done["partitions_retired"], done["partitions_failed"]) == (2, 0)
    assert done["storage_freed_bytes"] > 0
    nothing = admin.retire_incompatible_partitions(source)
    assert (nothing.num_rows, nothing.column_names) == (0, list(done))
    assert admin.list_incompatible_partitions(source).num_rows == 0


def test_partitions_of_view_sets_that_are_gone_are_incompatible(
    evolved: Lake, source: Lake | Client
) -> None:
    evolved.views.remove("readings")
    table = admin.list_incompatible_partitions(source)
    assert table.num_rows == 4
    assert table["current_schema_hash"].null_count == 4


def test_single_partitions_are_retired_and_restored(evolved: Lake, source: Lake | Client) -> None:
    end = T0 + HOUR
    with pytest.raises(Ambiguous):
        admin.retire_partition_by_metadata(
            source, "readings", "global", T0, end, confirmed=["readings"]
        )
    done = admin.retire_partition_by_metadata(
        source, "readings", "global", T0, end, readings().schema_hash, confirmed=["readings"]
    )
    assert done.succeeded
    assert (
        done.message == f"SUCCESS: Retired partition readings/global {done.partition.insert_range}"
    )
    restored = admin.restore_partition(source, done.partition.partition_id)
    assert restored.file_path == done.partition.file_path
    with pytest.raises(UnknownPartition):
        admin.restore_partition(source, "nope")
    assert restored.file_path is not None
    with pytest.warns(DeprecationWarning, match="use retire_partition_by_metadata") as caught:
        assert admin.retire_partition_by_file(
            source, restored.file_path, confirmed=["readings"]
        ).succeeded
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(DeprecationWarning), pytest.raises(UnknownPartition):
        admin.retire_partition_by_file(source, restored.file_path)
    live = admin.list_partitions(source, "readings").to_pylist()
    new = next(row for row in live if row["file_schema_hash"] == readings(2).schema_hash)
    with pytest.raises(Refused, match="lose 1 partition of readings with 3 rows"):
        admin.retire_partition_by_metadata(source, "readings", "global", T0, end)
    replaced = admin.retire_partition_by_metadata(
        source, "readings", "global", T0, end, new["file_schema_hash"], confirmed=["readings"]
    ).partition
    publish_hour(evolved, 0, version=2)
    with pytest.raises(Overlap):
        admin.restore_partition(source, replaced.partition_id)


def test_most_of_a_view_set_must_be_confirmed(evolved: Lake, source: Lake | Client) -> None:
    for hour in range(3, 12):
        publish_hour(evolved, hour, 1, version=2)
    everything = ("readings", "global", T0, T0 + 12 * HOUR)
    with pytest.raises(Refused):
        admin.retire_partitions(source, *everything)
    done = admin.retire_partitions(source, *everything, confirmed=["readings"])
    assert len(done) == 13


@pytest.mark.parametrize(
    "begin",
    [
        "2026-01-01T00:00:00.000000001Z",
        pd.Timestamp(T0 * 1000 + 1, tz="UTC"),
        "2026-01-01T00:00:00.0000009Z",
    ],
)
def test_times_between_two_microseconds_match_no_partition(
    evolved: Lake, source: Lake | Client, begin: Any
) -> None:
    hour = ("readings", "global")
    with pytest.raises(UnknownPartition, match="no live partition of readings/global covers"):
        admin.retire_partition_by_metadata(source, *hour, begin, T0 + HOUR)
    done = admin.retire_partitions(source, *hour, begin, T0 + 3 * HOUR, confirmed=["readings"])
    assert [outcome.partition.insert_range.begin for outcome in done] == [T0 + HOUR, T0 + 2 * HOUR]


@pytest.mark.filterwarnings("ignore:retiring by file:DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "args", "options"),
    [
        ("list_partitions", (), {"view_set_name": ["readings"]}),
        ("list_partitions", (), {"view_set_name": {"a": 1}}),
        ("list_partitions", (), {"as_of": [1]}),
        ("list_incompatible_partitions", ({"a": 1},), {}),
        ("list_incompatible_partitions", (5,), {}),
        ("explain_empty", (None, T0, T0 + HOUR), {}),
        ("explain_empty", ("readings", None, T0 + HOUR), {}),
        ("explain_empty", ("readings", T0, T0 + HOUR), {"stale": "yes"}),
        ("retire_partition_by_file", (None,), {}),
        ("retire_partition_by_file", (5,), {}),
        ("retire_partition_by_metadata", ("readings", 5, T0, T0 + HOUR), {}),
        ("retire_partition_by_metadata", ("readings", "global", T0, T0 + HOUR, "hash"), {}),
        ("retire_partitions", (["readings"], None, T0, T0 + HOUR), {}),
        ("retire_partitions", ("readings", None, T0, T0 + HOUR), {"confirmed": 5}),
        ("retire_partitions", ("readings", None, T0, T0 + HOUR), {"confirmed": [5]}),
        ("retire_incompatible_partitions", (), {"allow_loss": "yes"}),
        ("restore_partition", (None,), {}),
        ("restore_partition", ({"a": 1},), {}),
    ],
)
def test_arguments_of_other_types_are_bad_input(
    source: Lake | Client, name: str, args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(
        BadInput, match=rf"^{name}: argument '\w+' must be (str|int|bool|bytes|a list of)"
    ):
        getattr(admin, name)(source, *args, **options)


def test_admin_has_every_operation() -> None:
    assert sorted(admin.__all__) == sorted(OPERATIONS)
