"""The database itself keeps the rules: each is broken here with raw SQL, on both catalogs."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import sqlalchemy as sa

from lakebed.catalog.catalog import Catalog
from lakebed.errors import Overlap

HASH = b"h" * 32


def _run(catalog: Catalog, sql: str, **values: Any) -> None:
    with catalog.write() as transaction:
        transaction.connection.execute(sa.text(sql), values)


def _series(catalog: Catalog, schema_hash: bytes = HASH) -> int:
    with catalog.write() as transaction:
        return int(
            transaction.connection.execute(
                sa.text(
                    "INSERT INTO series (view_set_name, view_instance_id, file_schema_hash) "
                    "VALUES ('v', 'global', :hash) RETURNING series_id"
                ),
                {"hash": schema_hash},
            ).scalar_one()
        )


def _footer(catalog: Catalog, path: str) -> str:
    _run(
        catalog,
        "INSERT INTO partition_metadata (file_path, file_size, metadata, "
        "partition_format_version, insert_time, digest) VALUES (:path, 1, :bytes, 2, 0, :bytes)",
        path=path,
        bytes=b"x",
    )
    return path


def _insert(catalog: Catalog, series_id: int, begin: int, end: int, **changes: Any) -> str:
    """An empty live partition, or whatever the changes make of it."""
    row: dict[str, Any] = {
        "partition_id": str(uuid.uuid4()),
        "series_id": series_id,
        "view_set_name": "v",
        "view_instance_id": "global",
        "begin_insert_time": begin,
        "end_insert_time": end,
        "file_schema_hash": HASH,
        "file_size": 0,
        "num_rows": 0,
        "source_data_hash": b"",
        "sort_order": "[]",
        "partition_format_version": 2,
        "statistics": "{}",
        "published_at": 1,
        "held": False,
        "replaced": False,
    } | changes
    names = ", ".join(row)
    values = ", ".join(f":{name}" for name in row)
    _run(catalog, f"INSERT INTO lakehouse_partitions ({names}) VALUES ({values})", **row)
    return str(row["partition_id"])


FILE = {
    "file_size": 1,
    "num_rows": 1,
    "min_event_time": 5,
    "max_event_time": 6,
    "event_span": 2,
}


@pytest.mark.parametrize(
    ("begin", "end"), [(10, 20), (15, 25), (5, 15), (12, 13), (0, 100), (19, 20), (9, 11)]
)
def test_live_partitions_of_a_series_cannot_overlap_by_insert(
    catalog: Catalog, begin: int, end: int
) -> None:
    series = _series(catalog)
    _insert(catalog, series, 10, 20)
    _insert(catalog, series, 30, 40)
    with pytest.raises(Overlap):
        _insert(catalog, series, begin, end)


def test_neighbours_touch_without_overlapping(catalog: Catalog) -> None:
    series = _series(catalog)
    for begin in (20, 0, 10):
        _insert(catalog, series, begin, begin + 10)


def test_live_partitions_cannot_overlap_by_update(catalog: Catalog) -> None:
    series = _series(catalog)
    _insert(catalog, series, 10, 20)
    second = _insert(catalog, series, 20, 30)
    with pytest.raises(Overlap):
        _run(
            catalog,
            "UPDATE lakehouse_partitions SET begin_insert_time = 19 WHERE partition_id = :id",
            id=second,
        )


def test_a_retired_row_cannot_come_alive_over_a_live_one(catalog: Catalog) -> None:
    series = _series(catalog)
    old = _insert(catalog, series, 10, 20, retired_at=2, expiration=3)
    _insert(catalog, series, 15, 25)
    with pytest.raises(Overlap):
        _run(
            catalog,
            "UPDATE lakehouse_partitions SET retired_at = NULL, expiration = NULL "
            "WHERE partition_id = :id",
            id=old,
        )


def test_moving_a_row_to_another_series_cannot_make_an_overlap(catalog: Catalog) -> None:
    first, second = _series(catalog), _series(catalog, b"other" * 4)
    _insert(catalog, first, 10, 20)
    twin = _insert(catalog, second, 10, 20, file_schema_hash=b"other" * 4)
    with pytest.raises(Overlap):
        _run(
            catalog,
            "UPDATE lakehouse_partitions SET series_id = :series, file_schema_hash = :hash "
            "WHERE partition_id = :id",
            series=first,
            hash=HASH,
            id=twin,
        )


def test_twins_with_two_schema_hashes_may_cover_the_same_range(catalog: Catalog) -> None:
    _insert(catalog, _series(catalog), 10, 20)
    _insert(catalog, _series(catalog, b"other" * 4), 10, 20, file_schema_hash=b"other" * 4)


def _refused(catalog: Catalog, series: int, begin: int, end: int, **changes: Any) -> None:
    with pytest.raises((sa.exc.IntegrityError, Overlap)):
        _insert(catalog, series, begin, end, **changes)


def test_ranges_cannot_be_empty_or_reversed(catalog: Catalog) -> None:
    series = _series(catalog)
    _refused(catalog, series, 10, 10)
    _refused(catalog, series, 10, 9)


@pytest.mark.parametrize(
    "changes",
    [
        {"file_path": "a"},
        {"num_rows": 1},
        {"file_size": 1},
        {"min_event_time": 1, "max_event_time": 1, "event_span": 1},
        {"num_rows": -1},
    ],
    ids=lambda changes: "+".join(changes),
)
def test_an_empty_partition_is_empty_in_every_column(
    catalog: Catalog, changes: dict[str, Any]
) -> None:
    series = _series(catalog)
    _footer(catalog, "a")
    _refused(catalog, series, 10, 20, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_rows": 0},
        {"file_size": 0},
        {"min_event_time": None},
        {"max_event_time": None},
        {"event_span": None},
        {"event_span": 1},
        {"min_event_time": 7},
    ],
    ids=lambda changes: "+".join(changes),
)
def test_a_partition_with_a_file_has_rows_events_and_bytes(
    catalog: Catalog, changes: dict[str, Any]
) -> None:
    series = _series(catalog)
    path = _footer(catalog, "a")
    _refused(catalog, series, 10, 20, **(FILE | {"file_path": path} | changes))
    _insert(catalog, series, 10, 20, **FILE, file_path=path)


def test_a_file_without_a_footer_is_refused(catalog: Catalog) -> None:
    _refused(catalog, _series(catalog), 10, 20, **FILE, file_path="nowhere")


def test_a_footer_cannot_go_before_its_file(catalog: Catalog) -> None:
    path = _footer(catalog, "a")
    _insert(catalog, _series(catalog), 10, 20, **FILE, file_path=path)
    with pytest.raises(sa.exc.IntegrityError):
        _run(catalog, "DELETE FROM partition_metadata")


def test_a_second_live_row_of_one_identity_is_refused(catalog: Catalog) -> None:
    series = _series(catalog)
    _insert(catalog, series, 10, 20)
    _refused(catalog, series, 10, 20)
    _insert(catalog, series, 10, 20, retired_at=2, expiration=3)


def test_the_names_of_a_partition_are_those_of_its_series(catalog: Catalog) -> None:
    _refused(catalog, _series(catalog), 10, 20, view_set_name="other")


def test_only_retired_partitions_expire_or_are_held(catalog: Catalog) -> None:
    series = _series(catalog)
    _refused(catalog, series, 10, 20, expiration=5)
    _refused(catalog, series, 10, 20, held=True)
    _refused(catalog, series, 10, 20, retired_at=2, held=True, expiration=5)
    _refused(catalog, series, 10, 20, retired_at=1)


def test_a_block_id_is_landed_once(catalog: Catalog) -> None:
    landed = (
        "INSERT INTO blocks VALUES "
        "('b', 's', 'p', 1, NULL, NULL, 0, 'otlp', :digest, 'segment', 0, 0)"
    )
    _run(catalog, landed, digest=b"d")
    with pytest.raises(sa.exc.IntegrityError):
        _run(catalog, landed, digest=b"other")


def test_there_is_one_clock_and_one_lake(catalog: Catalog) -> None:
    for row in (1, 2):
        with pytest.raises(sa.exc.IntegrityError):
            _run(catalog, "INSERT INTO lake_clock VALUES (:row, 0, 0, 0, 0)", row=row)
    with pytest.raises(sa.exc.IntegrityError):
        _run(catalog, "INSERT INTO lake VALUES (2, 'i', 's', 0, 0, NULL, 0, NULL, TRUE)")


def test_a_reservation_belongs_to_a_lease_and_quarantine_never_expires(catalog: Catalog) -> None:
    insert = "INSERT INTO temporary_files (file_path, file_size, state, expiration) VALUES "
    for values in (
        "('a', 0, 'staged', NULL)",
        "('a', 0, 'lost', NULL)",
        "('a', 0, 'quarantined', 1)",
    ):
        with pytest.raises(sa.exc.IntegrityError):
            _run(catalog, insert + values)


def test_one_builder_at_a_time(catalog: Catalog) -> None:
    insert = "INSERT INTO leases VALUES (:id, 'builder', 'me', 'v', NULL, NULL, 0, 1, 0)"
    _run(catalog, insert, id="a")
    with pytest.raises(sa.exc.IntegrityError):
        _run(catalog, insert, id="b")
