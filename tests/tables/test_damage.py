"""A file that cannot be read is never skipped and never written over: queries and folds name it,
inserts continue, and its rows return with the file, or are dropped by an operator.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lakebed.errors import Damage, DamagedFile
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.opening import open_lake
from lakebed.query.snapshot import user_tables
from lakebed.storage.local import LocalStore
from lakebed.tables.rows.row_reader import RowReader
from lakebed.tables.table import Table
from tests.conftest import CAMPAIGN, SQLITE_FIRST
from tests.tables.parts import BY_ID, BY_TIME, LOOSE, NOON, make, retire, values_of

FLIPS = 400


def fill(table: Table, values: range) -> None:
    names = table.schema.names
    for value in values:
        whole = {"id": value, "device": f"d{value}", "time": NOON, "value": value, "note": "n" * 40}
        table.insert({n: v for n, v in whole.items() if n in names})


def path_of(lake: Lake, table: Table, position: int) -> Path:
    assert isinstance(lake.store, LocalStore)
    return lake.store.root / (table.partitions()[position].file_path or "")


def ways_to_harm(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    """Return the ways to damage a file, with its new bytes; None deletes it."""
    yield "missing", None
    yield "empty", b""
    yield "cut", data[: len(data) // 2]
    yield "zeros", bytes(len(data))
    yield "longer", data + b"x"
    yield "garbage", b"x" * len(data)
    yield "another trailer", data[:-8] + bytes(8)
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    yield "other pages", data[:4] + b"\xff" * (footer - 4) + data[footer:]


def group_bits(data: bytes) -> list[int]:
    """The bits that say how many of 100 rows the row group has: a footer says that twice."""
    spelled = bytes([0x16, 0xC8, 0x01])  # an integer of 64 bits, 100 in zigzag
    places = [at for at in range(len(data)) if data.startswith(spelled, at)]
    return [8 * (at + 1) + bit for at in places for bit in range(16)]


def harm(path: Path, data: bytes | None) -> None:
    path.unlink(missing_ok=True)
    if data is not None:
        path.write_bytes(data)


def test_a_file_that_cannot_be_read_is_named_and_kept(
    lake: Lake, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest of a bucket, which engines read, and a newer one, of which we read the keys."""
    every = list(product((LOOSE, BY_ID, BY_TIME), (0, 1)))
    for schema, position in every if dialect == "sqlite" or CAMPAIGN else every[2:4]:
        check_damage(lake, schema, position, monkeypatch)


def check_damage(lake: Lake, schema: Any, position: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(lake, schema)
    fill(table, range(3))
    path = path_of(lake, table, position)
    whole = path.read_bytes()
    before = {partition.partition_id for partition in table.partitions()}
    for number, (name, data) in enumerate(ways_to_harm(whole)):
        harm(path, data)
        monkeypatch.setattr(user_tables, "_SMALL_BYTES", 0 if number % 2 else 4 << 20)
        with open_lake(lake.catalog.url) as other:  # remembers nothing of the file
            twin = other.tables.get("d", table.name)
            with pytest.raises(Damage) as failed:
                twin.query().to_arrow()
            assert isinstance(failed.value, DamagedFile), (name, failed.value)
            assert path.name in str(failed.value), (name, failed.value)
            with pytest.raises(DamagedFile, match=path.name):
                twin.fold()
            if twin.definition.key:
                with pytest.raises(DamagedFile, match=path.name):
                    record = {"id": position, "device": f"d{position}", "time": NOON}
                    names = twin.schema.names
                    twin.insert({n: v for n, v in record.items() if n in names}, if_exists="ignore")
            else:
                with pytest.raises(DamagedFile, match=path.name):
                    twin.delete_rows("true")
            assert not other.checker.run(Level.PAGES).is_clean
        assert {partition.partition_id for partition in table.partitions()} == before
        assert (path.read_bytes() if path.exists() else None) == data, "it was written over"
    harm(path, whole)
    with open_lake(lake.catalog.url) as other:
        assert values_of(other.tables.get("d", table.name)) == [0, 1, 2]


def test_inserts_go_on_beside_a_damaged_file(lake: Lake) -> None:
    """More of them than make a bucket fold; the loss is accepted, and all others are there."""
    for schema in (LOOSE, BY_TIME):
        table = make(lake, schema)
        fill(table, range(3))
        path = path_of(lake, table, 1)
        data = path.read_bytes()
        harm(path, data[:100])
        with open_lake(lake.catalog.url) as other:
            twin = other.tables.get("d", table.name)
            fill(twin, range(3, 43))
            with pytest.raises(DamagedFile, match=path.name):
                values_of(twin)
            assert path.read_bytes() == data[:100]
            (lost,) = [
                partition
                for partition in twin.partitions()
                if str(path).endswith(partition.file_path)
            ]  # type: ignore[arg-type]
            retire(other, lost)
            assert values_of(twin) == [0, *range(2, 43)]
            twin.fold()
            assert values_of(twin) == [0, *range(2, 43)]
            harm(path, data)
            other.retirement.restore(lost.partition_id)
            assert values_of(twin) == list(range(43))


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_no_bit_that_flips_gets_into_another_file(lake: Lake) -> None:
    """A fold reads the checksums too: what it wrote would be sound for ever."""
    seed = int(os.environ.get("LAKEBED_SEED", int.from_bytes(os.urandom(4), "big")))
    sys.stdout.write(f"seed {seed}; replay with LAKEBED_SEED={seed}\n")
    rng = random.Random(seed)
    table = make(lake, LOOSE)
    for begin in (0, 100):
        table.insert(
            [{"time": NOON, "value": begin + i, "note": f"n{begin + i}"} for i in range(100)]
        )
    path = path_of(lake, table, 1)
    whole = path.read_bytes()
    bits = range(8 * 4, 8 * len(whole))
    sound = noticed = 0
    with lake.tables.snapshots.take(table.definition.table_id) as snapshot:
        for bit in bits if CAMPAIGN else [*rng.sample(bits, FLIPS), *group_bits(whole)]:
            data = bytearray(whole)
            data[bit // 8] ^= 1 << bit % 8
            path.write_bytes(data)
            try:  # remembers nothing
                rows = RowReader(lake.store).read(snapshot.table, snapshot.partitions[1])
            except DamagedFile as error:
                assert path.name in str(error)
                noticed += 1
                continue
            assert rows["value"].to_pylist() == list(range(100, 200)), bit
            assert rows["note"].to_pylist() == [f"n{i}" for i in range(100, 200)], bit
            sound += 1
    sys.stdout.write(f"{noticed} noticed, {sound} without an effect\n")
    assert noticed
    path.write_bytes(whole)
    assert values_of(table) == list(range(200))


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_a_smaller_file_in_its_place_is_damage_and_not_fewer_rows(lake: Lake) -> None:
    """A sound file of the same table, but another one."""
    for small in (True, False):
        table = make(lake, LOOSE)
        table.insert([{"time": NOON, "value": i} for i in range(5)])
        table.insert([{"time": NOON, "value": i} for i in range(5, 7)])
        path, other_path = path_of(lake, table, 0), path_of(lake, table, 1)
        path.write_bytes(other_path.read_bytes())
        with open_lake(lake.catalog.url) as other:
            twin = other.tables.get("d", table.name)
            with pytest.raises(DamagedFile, match=path.name):
                twin.query().to_arrow() if small else twin.fold()
