"""Trees of foreign Parquet files, with every kind of mess that writers leave behind."""

from __future__ import annotations

import hashlib
import os
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.catalog.records import files
from lakebed.lake import Lake
from lakebed.model.partition import FileState
from lakebed.storage.objects import read_all
from lakebed.tables.importing.report import FileClass, ImportFile, ImportPlan, ImportReport
from lakebed.tables.table import Table

SCHEMA: dict[str, Any] = {
    "time": {"type": "datetime"},
    "device": "string",
    "bpm": "int",
    "note": "string",
}


def rows(day: int, count: int = 10, *, seed: int = 0, **more_columns: Any) -> pa.Table:
    """Rows of one day of May 2024; those of another seed are others."""
    begin = datetime(2024, 5, day, 6, tzinfo=UTC)
    chance = random.Random(f"{seed} {day}")
    columns: dict[str, Any] = {
        "time": pa.array(
            [begin + timedelta(minutes=n) for n in range(count)], pa.timestamp("us", "UTC")
        ),
        "device": [f"ring-{chance.randrange(5)}" for _ in range(count)],
        "bpm": pa.array([chance.randrange(50, 120) for _ in range(count)], pa.int32()),
    }
    return pa.table(columns | more_columns)


def put(root: Path, path: str, content: pa.Table | bytes, **options: Any) -> Path:
    """Write a file of the tree."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content if isinstance(content, bytes) else as_bytes(content, **options))
    return target


def as_bytes(table: pa.Table, **options: Any) -> bytes:
    """A table as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


def break_page(data: bytes) -> bytes:
    """A file whose first page is not what its checksum says."""
    broken = bytearray(data)
    position = len(data) // 4
    broken[position : position + 8] = bytes(byte ^ 0xFF for byte in broken[position : position + 8])
    return bytes(broken)


def build_mess(root: Path) -> dict[str, FileClass]:
    """A tree with files of every class, and what each is to a table that has these columns:
    time, device, bpm and note."""
    root.mkdir(parents=True, exist_ok=True)
    sound = as_bytes(rows(7, 1000), compression="none", write_page_checksum=True)
    files: dict[str, tuple[pa.Table | bytes, FileClass]] = {
        "partition_date=2024-05-01/data.parquet": (rows(1), FileClass.SOUND),
        "partition_date=2024-05-02/data.parquet": (rows(2), FileClass.SOUND),
        "date=2024-05-03/data.parquet": (rows(3), FileClass.SOUND),
        "year=2024/month=05/day=04/part-0.parquet": (rows(4), FileClass.SOUND),
        "flat.parquet": (rows(5, note=["x"] * 10), FileClass.SOUND),
        "without-an-ending": (rows(6), FileClass.SOUND),
        "z-copy-of-flat.parquet": (rows(5, note=["x"] * 10), FileClass.IMPORTED),
        "no-rows.parquet": (rows(1, 0), FileClass.EMPTY),
        "zero.parquet": (b"", FileClass.ZERO_BYTES),
        "cut.parquet": (sound[: len(sound) // 2], FileClass.TRUNCATED),
        "head-only.parquet": (b"PAR1", FileClass.TRUNCATED),
        "three-bytes.parquet": (b"PAR", FileClass.TRUNCATED),
        "readme.txt": (b"these are heart rates", FileClass.NOT_PARQUET),
        "csv.parquet": (b"time,device,bpm\n", FileClass.NOT_PARQUET),
        "_SUCCESS": (b"", FileClass.TEMPORARY),
        "_temporary/0/part-0.parquet": (rows(8, 3), FileClass.TEMPORARY),
        ".part-0.parquet.crc": (b"crc\0", FileClass.TEMPORARY),
        "data.parquet.tmp": (rows(9, 3), FileClass.TEMPORARY),
        "data.tmp.parquet": (rows(9, 4), FileClass.TEMPORARY),
        "data.parquet.inprogress": (sound[:100], FileClass.TEMPORARY),
        "data.parquet#1": (rows(9, 5), FileClass.TEMPORARY),
        "drift.parquet": (
            rows(10).set_column(2, "bpm", pa.array(["fast"] * 10)),
            FileClass.DRIFT,
        ),
        "more.parquet": (rows(11, mood=["good"] * 10), FileClass.DRIFT),
        "timeless.parquet": (rows(12).drop_columns(["time"]), FileClass.DRIFT),
        "bad.parquet": (
            rows(13).set_column(0, "time", pa.array([*rows(13, 9)["time"].to_pylist(), None])),
            FileClass.BAD_ROWS,
        ),
        "damaged.parquet": (break_page(sound), FileClass.UNREADABLE),
        "encrypted.parquet": (b"PARE" + sound[4:-4] + b"PARE", FileClass.UNREADABLE),
        "secret.parquet": (sound[:-4] + b"PARE", FileClass.TRUNCATED),
    }
    for number, (path, (content, _)) in enumerate(files.items()):
        target = put(root, path, content)
        os.utime(target, ns=(0, (1_700_000_000 + number) * 1_000_000_000))
    for folder in ("partition_date=2024-05-31", "a/b/c"):
        (root / folder).mkdir(parents=True)
    os.symlink(root / "a", root / "link-to-a-folder")
    os.symlink(root / "nowhere", root / "link-to-nothing")
    os.mkfifo(root / "pipe")
    return {path: kind for path, (_, kind) in files.items()} | {
        "partition_date=2024-05-31": FileClass.EMPTY_DIRECTORY,
        "a/b/c": FileClass.EMPTY_DIRECTORY,
        "link-to-a-folder": FileClass.NOT_A_FILE,
        "link-to-nothing": FileClass.UNREADABLE,
        "pipe": FileClass.NOT_A_FILE,
    }


def fingerprint(root: Path) -> dict[str, tuple[Any, ...]]:
    """Return the metadata and content of every file of a tree, to show that nothing changed it."""
    states: dict[str, tuple[Any, ...]] = {}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        state = (
            status.st_mode,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )
        is_file = path.is_file() and not path.is_symlink()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""
        states[str(path.relative_to(root))] = (*state, digest)
    return states


def aside(lake: Lake) -> dict[str, str]:
    """The reason for which bytes are in quarantine, by their digest."""
    with lake.catalog.read() as connection:
        quarantined = files.list_files(connection, [FileState.QUARANTINED])
    digests = [
        hashlib.sha256(read_all(lake.store, file.file_path)).hexdigest() for file in quarantined
    ]
    return dict(zip(digests, (file.reason or "" for file in quarantined), strict=True))


def as_counter(*tables: pa.Table) -> Counter[tuple[Any, ...]]:
    """The rows of tables, each with how often it is there."""
    whole = [
        tuple(row[name] for name in ("time", "device", "bpm"))
        for table in tables
        for row in table.to_pylist()
    ]
    return Counter(whole)


def adopt(lake: Lake, root: Path, **options: Any) -> ImportReport:
    """Plan it and carry it out."""
    return lake.tables.carry_out_import(plan(lake, root, **options))


def plan(lake: Lake, root: Path, **options: Any) -> ImportPlan:
    """Return the plan of an import into the table home.pulse."""
    return lake.tables.plan_import(root, "home", "pulse", **options)


def only(lake: Lake, root: Path, **options: Any) -> ImportFile:
    """The single file of a plan."""
    (file,) = plan(lake, root, **options).files
    return file


def all_rows(table: Table) -> Counter[tuple[Any, ...]]:
    """Return all rows of a table, with the columns that every file has."""
    result = table.query("SELECT time, device, bpm FROM pulse").to_arrow()
    return as_counter(result)
