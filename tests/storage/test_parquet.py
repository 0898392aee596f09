"""Rows become durable Parquet files of exactly their view set's shape, or nothing does."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import BadInput, Damage, DamagedFile, DamagedFooter
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.model.partition import EventRange
from lakebed.model.view_set import ViewSet
from lakebed.storage import footer as footers
from lakebed.storage import parquet
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import put, read_all
from lakebed.storage.parquet import WrittenFile
from tests.parts.data import T0, publish_hour, readings, rows

UTC = pa.timestamp("us", "UTC")
PATH = "partitions/readings/global/2026-01/file.parquet"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def _view_set(
    columns: dict[str, pa.DataType], time: pa.DataType = UTC, sort: tuple[str, ...] = ()
) -> ViewSet:
    fields = [pa.field("time", time, nullable=False), *columns.items()]
    return ViewSet("readings", 1, pa.schema(fields), "time", sort)


def _table(view_set: ViewSet, times: list[int] | None = None, **columns: Any) -> pa.Table:
    """Rows of a view set; times are whole numbers in the unit of the time column."""
    count = len(next(iter(columns.values()), times or [0]))
    raw = pa.array(times or [T0] * count, pa.int64())
    arrays = {"time": raw.cast(view_set.schema.field("time").type), **columns}
    return pa.table({name: arrays[name] for name in view_set.schema.names}, schema=view_set.schema)


def _write(store: LocalStore, view_set: ViewSet, table: pa.Table) -> WrittenFile:
    return parquet.write(store, PATH, parquet.conform(table, view_set), view_set)


def _read(store: LocalStore) -> pa.Table:
    return pq.ParquetFile(pa.BufferReader(read_all(store, PATH))).read()


# ---- conforming ---------------------------------------------------------------------------------

THREE = _view_set({"number": pa.int64(), "name": pa.string()})


def _three(**changes: Any) -> pa.Table:
    columns = {
        "time": pa.array([T0], UTC),
        "number": pa.array([1], pa.int64()),
        "name": pa.array(["a"]),
    } | changes
    return pa.table({name: column for name, column in columns.items() if column is not None})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"number": None}, "missing number"),
        ({"number": None, "name": None}, "missing number, name"),
        ({"extra": pa.array([1])}, "unexpected extra"),
        ({"name": None, "Name": pa.array(["a"])}, "missing name; unexpected Name"),
        ({"number": pa.array([1], pa.int32())}, "column number .* is int64, not int32"),
        ({"number": pa.array(["1"])}, "column number .* is int64, not string"),
        ({"name": pa.array(["a"], pa.large_string())}, "column name .* is string, not large"),
        ({"time": pa.array([T0], pa.timestamp("ns", "UTC"))}, "column time .*us.*, not .*ns"),
        ({"time": pa.array([T0], pa.timestamp("us"))}, "column time .*tz=UTC.*, not timestamp"),
        ({"time": pa.array([None], UTC)}, "column time .* must not be null"),
    ],
)
def test_rows_of_another_shape_are_refused_by_the_name_of_the_column(
    changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(BadInput, match=says) as raised:
        parquet.conform(_three(**changes), THREE)
    assert "readings" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_column_given_twice_is_refused() -> None:
    twice = _three().append_column("number", pa.array([2], pa.int64()))
    with pytest.raises(BadInput, match="number"):
        parquet.conform(twice, THREE)


def test_a_time_that_may_be_null_must_not_be() -> None:
    schema = pa.schema([("time", UTC)])  # nullable, as most schemas are written
    view_set = ViewSet("readings", 1, schema, "time")
    with pytest.raises(BadInput, match="time column time must not be null"):
        parquet.conform(pa.table({"time": pa.array([T0, None], UTC)}), view_set)


def test_the_order_of_columns_does_not_matter() -> None:
    shuffled = _three().select(["name", "time", "number"])
    assert parquet.conform(shuffled, THREE).equals(_three().cast(THREE.schema))


def test_metadata_of_the_rows_is_left_behind(store: LocalStore) -> None:
    labelled = _three().replace_schema_metadata({"pandas": "{}"})
    _write(store, THREE, labelled)
    assert b"pandas" not in (_read(store).schema.metadata or {})


def test_rows_are_stored_sorted_nulls_last(store: LocalStore) -> None:
    view_set = _view_set({"name": pa.string(), "number": pa.int64()}, sort=("name", "number"))
    given = _table(view_set, name=["b", None, "a", "b", "a"], number=[2, 0, 7, 1, None])
    _write(store, view_set, given)
    stored = _read(store).select(["name", "number"]).to_pylist()
    assert [tuple(row.values()) for row in stored] == [
        ("a", 7),
        ("a", None),
        ("b", 1),
        ("b", 2),
        (None, 0),
    ]
    declared = pq.read_metadata(pa.BufferReader(read_all(store, PATH))).row_group(0).sorting_columns
    assert [(each.column_index, each.descending) for each in declared] == [(1, False), (2, False)]


def test_rows_without_a_sort_order_stay_in_theirs(store: LocalStore) -> None:
    view_set = _view_set({"number": pa.int64()})
    _write(store, view_set, _table(view_set, number=[3, 1, 2]))
    assert _read(store)["number"].to_pylist() == [3, 1, 2]


# ---- what is known of a written file ------------------------------------------------------------


def test_a_written_file_is_described_exactly(store: LocalStore) -> None:
    view_set = _view_set({"number": pa.int64()})
    written = _write(store, view_set, _table(view_set, [T0 + 5, T0 + 2], number=[1, 2]))
    data = read_all(store, PATH)
    assert (written.path, written.size, written.num_rows) == (PATH, len(data), 2)
    assert data.endswith(written.footer + len(written.footer).to_bytes(4, "little") + b"PAR1")
    assert written.events == EventRange(T0 + 2, T0 + 5)
    assert written.statistics == {"time": [T0 + 2, T0 + 5], "number": [1, 2]}


@pytest.mark.parametrize(
    ("unit", "times", "events"),
    [
        pytest.param("ms", [T0 // 1000, T0 // 1000 + 3], (T0, T0 + 3000), id="ms"),
        pytest.param("us", [T0 + 1, T0], (T0, T0 + 1), id="us"),
        pytest.param("ns", [T0 * 1000, T0 * 1000 + 1], (T0, T0 + 1), id="ns widened up"),
        pytest.param("ns", [T0 * 1000 - 1, T0 * 1000], (T0 - 1, T0), id="ns widened down"),
        pytest.param("ns", [-1, -1], (-1, 0), id="ns before 1970"),
        pytest.param("us", [0, 0], (0, 0), id="1970"),
        pytest.param("us", [-(10**17), 10**18], (-(10**17), 10**18), id="beyond year 9999"),
        pytest.param("us", [2**60 - 1] * 2, (2**60 - 1,) * 2, id="beyond any calendar"),
    ],
)
def test_the_event_range_is_in_microseconds_whatever_the_column(
    store: LocalStore, unit: str, times: list[int], events: tuple[int, int]
) -> None:
    view_set = _view_set({}, time=pa.timestamp(unit, "Europe/Berlin"))
    written = _write(store, view_set, _table(view_set, times))
    assert written.events == EventRange(*events)
    assert _read(store).cast(view_set.schema)["time"].cast(pa.int64()).to_pylist() == times


@pytest.mark.parametrize(
    ("unit", "times"),
    [
        ("ms", [2**62, -(2**62)]),
        ("ms", [2**60]),
        ("ms", [10**15]),
        ("us", [2**62, -(2**62)]),
        ("us", [2**60]),
        ("ns", [2**62, -(2**62)]),
    ],
)
def test_absurd_times_are_kept_or_refused_never_an_accident(
    lake: Lake, unit: str, times: list[int]
) -> None:
    """Clocks of devices say anything; the catalog's whole numbers end at 64 bits."""
    view_set = _view_set({}, time=pa.timestamp(unit, "UTC"))
    lake.views.register(view_set)
    try:
        published = lake.partitions.publish("readings", T0, T0 + 1, _table(view_set, times))
    except BadInput as refused:
        assert "time" in str(refused)
        assert lake.partitions.list_partitions() == []
        return
    assert lake.partitions.list_partitions() == [published]
    with lake.partitions.snapshot("readings") as snapshot:
        assert snapshot.read_all("readings")["time"].cast(pa.int64()).to_pylist() == times


def _absurd_dates() -> pa.Array:
    return pa.array([10_000_000, -10_000_000], pa.int32()).cast(pa.date32())


LEFT_OUT = "left out"


@pytest.mark.parametrize(
    ("kind", "values", "bounds"),
    [
        pytest.param(pa.int64(), [3, -1, 2], [-1, 3], id="integers"),
        pytest.param(pa.uint64(), [2**64 - 1, 0], [0, 2**64 - 1], id="the largest integer"),
        pytest.param(pa.bool_(), [True, False], [False, True], id="booleans"),
        pytest.param(pa.float64(), [0.5, -1.5], [-1.5, 0.5], id="floats"),
        pytest.param(pa.string(), ["b", "é", "a"], ["a", "é"], id="strings"),
        pytest.param(pa.string(), ["a\0b", '"\n'], ['"\n', "a\0b"], id="odd strings"),
        pytest.param(pa.dictionary(pa.int8(), pa.string()), ["b", "a"], ["a", "b"], id="codes"),
        pytest.param(pa.int64(), [None, 3, 1], [1, 3], id="some nulls"),
        pytest.param(pa.int64(), [None, None], LEFT_OUT, id="only nulls"),
        pytest.param(pa.float64(), [math.nan, 1.0, 2.0], LEFT_OUT, id="some NaN"),
        pytest.param(pa.float64(), [math.nan], LEFT_OUT, id="only NaN"),
        pytest.param(pa.float64(), [1.0, math.inf], LEFT_OUT, id="infinity"),
        pytest.param(pa.float32(), [-math.inf, 1.0], LEFT_OUT, id="minus infinity"),
        pytest.param(pa.string(), ["a" * 64, "b" * 64], ["a" * 64, "b" * 64], id="64 letters"),
        pytest.param(pa.string(), ["a", "b" * 65], LEFT_OUT, id="65 letters"),
        pytest.param(pa.string(), ["a", "b" * 5000], LEFT_OUT, id="5000 letters"),
        pytest.param(pa.binary(), [b"a"], LEFT_OUT, id="bytes"),
        pytest.param(pa.decimal128(5, 2), [decimal.Decimal("1.5")], LEFT_OUT, id="decimals"),
        pytest.param(pa.date32(), [1, 0], [0, 1], id="dates as days"),
        pytest.param(pa.date32(), _absurd_dates(), [-(10**7), 10**7], id="absurd dates"),
        pytest.param(pa.struct([("a", pa.int64())]), [{"a": 1}], LEFT_OUT, id="structs"),
        pytest.param(
            pa.list_(pa.field("element", pa.int64())), [[1, 2]], LEFT_OUT, id="compliant lists"
        ),
        pytest.param(
            pa.timestamp("ns"), [-(2**62), 2**62], [-(2**62), 2**62], id="times beyond Python"
        ),
    ],
)
def test_statistics_are_exact_or_left_out(
    store: LocalStore, kind: pa.DataType, values: Any, bounds: Any
) -> None:
    view_set = _view_set({"value": kind})
    array = values if isinstance(values, pa.Array) else pa.array(values, kind)
    written = _write(store, view_set, _table(view_set, value=array))
    assert written.statistics.pop("time") == [T0, T0]
    assert written.statistics == ({} if bounds is LEFT_OUT else {"value": bounds})


def test_statistics_span_all_row_groups(store: LocalStore) -> None:
    view_set = _view_set({"number": pa.int64(), "ratio": pa.float64()})
    count = 300_000
    table = _table(view_set, number=range(count), ratio=[1.0] * (count - 1) + [math.nan])
    written = _write(store, view_set, table)
    parsed = footers.parse(written.footer, path=PATH)
    assert parsed.num_row_groups > 1
    assert written.statistics["number"] == [0, count - 1]


# ---- types --------------------------------------------------------------------------------------

TYPES = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "large string": pa.large_string(),
    "large binary": pa.large_binary(),
    "date": pa.date32(),
    "fixed binary": pa.binary(4),
    "decimal": pa.decimal128(38, 9),
    "time in ms": pa.timestamp("ms", "UTC"),
    "time in ns": pa.timestamp("ns", "America/New_York"),
    "time without zone": pa.timestamp("us"),
    "duration": pa.duration("ms"),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "list": pa.list_(pa.int64()),
    "list of others' naming": pa.list_(pa.field("thing", pa.string(), nullable=False)),
    "list as Parquet names it": pa.list_(pa.field("element", pa.string())),
    "large list": pa.large_list(pa.int64()),
    "map": pa.map_(pa.string(), pa.int64()),
    "map of others' naming": pa.map_(
        pa.field("k", pa.string(), nullable=False), pa.field("v", pa.int64())
    ),
    "struct": pa.struct([("a", pa.int64()), ("b", pa.string())]),
    "struct with a list": pa.struct([("a", pa.list_(pa.struct([("b", pa.int64())])))]),
}


@pytest.mark.parametrize("name", TYPES)
def test_every_type_that_can_be_declared_survives_in_a_file(store: LocalStore, name: str) -> None:
    kind = TYPES[name]
    view_set = _view_set({"value": kind})
    table = _table(view_set, value=pa.nulls(2, kind))
    written = _write(store, view_set, table)
    assert written.num_rows == 2
    assert _read(store).cast(view_set.schema).equals(table)


def test_rows_may_name_list_items_and_map_entries_as_they_like(store: LocalStore) -> None:
    view_set = _view_set({"value": TYPES["list as Parquet names it"]})
    kind = pa.list_(pa.field("anything", pa.string()))
    given = pa.table({"time": pa.array([T0], UTC), "value": pa.array([["a", None]], kind)})
    _write(store, view_set, given)
    assert _read(store)["value"].to_pylist() == [["a", None]]


NOT_HELD = {
    "null": pa.null(),
    "half float": pa.float16(),
    "time of day": pa.time32("s"),
    "wide decimal": pa.decimal256(50, 2),
    "string view": pa.string_view(),
    "fixed-size list": pa.list_(pa.int64(), 3),
    "extension": pa.uuid(),
    "empty struct": pa.struct([]),
    "time in s": pa.timestamp("s", "UTC"),
    "duration in s": pa.duration("s"),
    "date in ms": pa.date64(),
    "dictionary of large strings": pa.dictionary(pa.int32(), pa.large_string()),
    "dictionary of numbers": pa.dictionary(pa.int32(), pa.int64()),
    "list of times in s": pa.list_(pa.timestamp("s")),
}


@pytest.mark.parametrize("name", NOT_HELD)
def test_a_type_that_a_file_cannot_hold_is_refused_when_it_is_declared(name: str) -> None:
    with pytest.raises(BadInput, match="cannot be stored"):
        _view_set({"value": NOT_HELD[name]})


def test_a_missing_struct_may_have_fields_that_must_not_be_null(store: LocalStore) -> None:
    kind = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    view_set = _view_set({"value": kind})
    _write(store, view_set, _table(view_set, value=pa.array([{"a": 1}, None], kind)))
    assert _read(store)["value"].to_pylist() == [{"a": 1}, None]


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("a", pa.int64())]),
        pa.list_(pa.field("element", pa.int64())),
        pa.map_(pa.string(), pa.int64()),
        pa.dictionary(pa.int8(), pa.string()),
    ],
)
def test_a_column_without_an_order_cannot_be_sorted_by(kind: pa.DataType) -> None:
    with pytest.raises(BadInput, match="value"):
        _view_set({"value": kind}, sort=("value",))


# ---- validation ---------------------------------------------------------------------------------


def _validated(store: LocalStore, view_set: ViewSet, num_rows: int) -> None:
    footer = parquet.read_footer(store, PATH, store.size(PATH))
    parsed = footers.parse(footer, path=PATH)
    parquet.validate(parsed, path=PATH, num_rows=num_rows, expected_hash=view_set.schema_hash)


def test_a_file_is_valid_for_its_own_rows_and_schema_only(store: LocalStore) -> None:
    view_set = _view_set({"number": pa.int64()})
    _write(store, view_set, _table(view_set, number=[1, 2]))
    _validated(store, view_set, 2)
    with pytest.raises(DamagedFile, match="holds 2 rows, the catalog says 3"):
        _validated(store, view_set, 3)
    with pytest.raises(DamagedFile, match=r"has schema hash \w+, expected \w+"):
        _validated(store, _view_set({"number": pa.int32()}), 2)
    newer = ViewSet("readings", 2, view_set.schema, "time")
    with pytest.raises(DamagedFile, match=r"has schema hash \w+, expected \w+"):
        _validated(store, newer, 2)


def test_a_file_of_another_program_is_not_taken_for_ours(store: LocalStore) -> None:
    view_set = _view_set({"number": pa.int64()})
    sink = pa.BufferOutputStream()
    pq.write_table(_table(view_set, number=[1]), sink)
    put(store, PATH, sink.getvalue().to_pybytes())
    with pytest.raises(DamagedFile, match="does not say which version"):
        _validated(store, view_set, 1)


@pytest.mark.parametrize("kept", [0, 3, 8, 11, 100, -1, -8])
def test_a_file_that_was_cut_off_is_damaged(store: LocalStore, kept: int) -> None:
    view_set = _view_set({"number": pa.int64()})
    written = _write(store, view_set, _table(view_set, number=[1, 2]))
    with (store.root / PATH).open("r+b") as file:
        file.truncate(kept if kept >= 0 else written.size + kept)
    with pytest.raises(DamagedFooter, match="readings"):
        _validated(store, view_set, 2)


def test_whatever_bit_of_a_footer_flips_is_told_as_damage_or_harmless(store: LocalStore) -> None:
    view_set = _view_set({"number": pa.int64(), "name": pa.string()})
    footer = _write(store, view_set, _table(view_set, number=[1], name=["a"])).footer
    found = 0
    for place in range(len(footer)):
        changed = footer[:place] + bytes([footer[place] ^ 0x20]) + footer[place + 1 :]
        try:
            parsed = footers.parse(changed, path=PATH)
            parquet.validate(parsed, path=PATH, num_rows=1, expected_hash=view_set.schema_hash)
        except Damage as error:
            assert PATH in str(error)
            found += 1
    assert found > len(footer) // 3


class GarblingStore(LocalStore):
    """Stores something else than it was given, and says nothing."""

    def __init__(self, root: Path, garble: Callable[[bytes], bytes]) -> None:
        super().__init__(root)
        self._garble = garble

    def size(self, path: str) -> int:
        file = self.locate(path)
        if self._garble is not None:
            file.write_bytes(self._garble(file.read_bytes()))
        return super().size(path)


@pytest.mark.parametrize(
    "garble",
    [
        pytest.param(lambda data: data[:-1], id="cut"),
        pytest.param(lambda _data: b"", id="emptied"),
        pytest.param(lambda data: bytes(len(data)), id="zeroed"),
        pytest.param(lambda data: data[:-8] + b"\xff\xff\xff\x7fPAR1", id="length"),
    ],
)
def test_a_store_that_loses_bytes_is_noticed_before_anything_is_published(
    tmp_path: Path, garble: Callable[[bytes], bytes]
) -> None:
    view_set = _view_set({"number": pa.int64()})
    store = GarblingStore(tmp_path, garble)
    with pytest.raises(Damage, match="readings"):
        _write(store, view_set, _table(view_set, number=[1, 2]))


# ---- damage that a check finds ------------------------------------------------------------------


def _flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :]


def _another_file() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"other": [1, 2, 3]}), sink)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    ("change", "level", "kind"),
    [
        pytest.param(lambda data: data[:-1], Level.FILES, "file size", id="cut off"),
        pytest.param(lambda data: data + b"x", Level.FILES, "file size", id="longer"),
        pytest.param(lambda _data: b"", Level.FILES, "file size", id="emptied"),
        pytest.param(lambda _data: _another_file(), Level.FILES, "file size", id="another file"),
        pytest.param(lambda data: bytes(len(data)), Level.FOOTERS, "file content", id="zeroed"),
        pytest.param(lambda data: _flip(data, -3), Level.FOOTERS, "file content", id="magic"),
        pytest.param(lambda data: _flip(data, -7), Level.FOOTERS, "file content", id="length"),
        pytest.param(lambda data: _flip(data, 30), Level.PAGES, "file content", id="a page's bit"),
    ],
)
def test_a_check_finds_a_file_that_changed_at_its_level(
    lake: Lake, change: Callable[[bytes], bytes], level: Level, kind: str
) -> None:
    lake.views.register(readings())
    publish_hour(lake, 0)
    damaged = publish_hour(lake, 1)
    assert isinstance(lake.store, LocalStore)
    file = lake.store.locate(damaged.file_path or "")
    file.write_bytes(change(file.read_bytes()))
    for each in Level:
        found = [(finding.kind, finding.subject) for finding in lake.checker.run(each).findings]
        assert found == ([(kind, damaged.file_path)] if each >= level else [])


def test_a_check_finds_a_value_that_changed_and_still_decodes(lake: Lake) -> None:
    """Only the page's checksum shows it: without it, another number would be read."""
    number = 0x1122334455667788
    lake.views.register(readings())
    table = rows(1, numbers=[number])
    partition = lake.partitions.publish("readings", T0, T0 + 1, table)
    assert isinstance(lake.store, LocalStore)
    file = lake.store.locate(partition.file_path or "")
    data = file.read_bytes()
    file.write_bytes(_flip(data, data.index(number.to_bytes(8, "little"))))
    with lake.partitions.snapshot("readings") as snapshot, pytest.raises(DamagedFile):
        snapshot.read_all("readings")
    assert lake.checker.run(Level.FOOTERS).is_clean
    (finding,) = lake.checker.run(Level.PAGES).findings
    assert (finding.kind, finding.subject) == ("file content", partition.file_path)


def test_a_check_finds_every_flipped_bit_of_a_footer(lake: Lake) -> None:
    lake.views.register(readings())
    partition = publish_hour(lake, 0)
    assert isinstance(lake.store, LocalStore)
    file = lake.store.locate(partition.file_path or "")
    data = file.read_bytes()
    footer_bytes = int.from_bytes(data[-8:-4], "little")
    for place in range(len(data) - 8 - footer_bytes, len(data), 37):
        file.write_bytes(_flip(data, place))
        assert not lake.checker.run(Level.FOOTERS).is_clean, place
    file.write_bytes(data)
    assert lake.checker.run(Level.PAGES).findings == []
