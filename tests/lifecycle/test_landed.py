"""Segments and blocks: `check` sees what is wrong with them, backups carry them, sweeps take what
a dead lander left and nothing else.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from lakebed.catalog import rules
from lakebed.catalog.schema import (
    blocks,
    build_failures,
    partitions,
    processes,
    segments,
    streams,
    temporary_files,
)
from lakebed.errors import Conflict, Refused
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level, Severity
from lakebed.lifecycle.sweep import LeaseObserver, Sweeper
from lakebed.model.block import Block
from lakebed.model.partition import Partition, hash_sources
from lakebed.opening import copy_lake, open_lake
from lakebed.samples.generator import Generator
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import put, read_all
from lakebed.views.builtin import built_in
from lakebed.writing.publish import NewPartition
from tests.conftest import NewLake
from tests.ingest.parts import landed, payload_of, request_of
from tests.parts.data import stored_files

ROOT = Path(__file__).parents[2]
TABLES = (processes, streams, segments, blocks, build_failures)


@pytest.fixture
def lake(new_lake: NewLake) -> Lake:
    """Two segments: one of two blocks, one of one."""
    lake = new_lake(grace="0s")
    lake.telemetry.land("logs", request_of(("a", "one"), ("b", "two")))
    lake.telemetry.land("logs", request_of(("a", "three")))
    return lake


def _change(lake: Lake, statement: sa.Update | sa.Delete | sa.Insert) -> None:
    with lake.catalog.write() as transaction:
        transaction.connection.execute(statement)


def test_a_healthy_lake_is_clean_at_every_level_and_counted(lake: Lake) -> None:
    for level in Level:
        report = lake.checker.run(level)
        assert report.findings == []
        assert (report.segments, report.blocks) == (2, 3)
    assert report.files == 2
    assert report.bytes == sum(block.payload_size for block in landed(lake))


def _make_temporary(lake: Lake) -> None:
    path = landed(lake)[0].segment_path
    _change(
        lake,
        sa.insert(temporary_files).values(file_path=path, file_size=0, state="retired"),
    )


def _later() -> sa.ColumnElement[int]:
    return sa.literal(1 << 61, sa.BigInteger)


BROKEN_RULES: dict[str, tuple[str, Callable[[Lake], None]]] = {
    "no segment row": (
        "the block's segment is not recorded",
        lambda lake: _change(lake, sa.delete(segments)),
    ),
    "beyond the segment's end": (
        "the block lies outside its segment",
        lambda lake: _change(lake, sa.update(blocks).values(payload_size=100_000)),
    ),
    "before the segment's begin": (
        "the block lies outside its segment",
        lambda lake: _change(lake, sa.update(blocks).values(segment_offset=-1)),
    ),
    "overlap": (
        "the block overlaps another one of its segment",
        lambda lake: _change(
            lake,
            sa.update(blocks)
            .where(blocks.c.segment_offset > 0)
            .values(segment_offset=blocks.c.segment_offset - 1),
        ),
    ),
    "no process": (
        "the block's process is unknown",
        lambda lake: _change(lake, sa.delete(processes)),
    ),
    "a stream's process": (
        "the stream's process is unknown",
        lambda lake: _change(lake, sa.delete(processes)),
    ),
    "no stream": (
        "the block's stream is unknown, or another process's",
        lambda lake: _change(lake, sa.delete(streams)),
    ),
    "another's stream": (
        "the block's stream is unknown, or another process's",
        lambda lake: _change(
            lake, sa.update(blocks).values(process_id=sa.literal(landed(lake)[0].process_id))
        ),
    ),
    "a block of the future": (
        "the block landed after the lake's last tick",
        lambda lake: _change(
            lake,
            sa.update(blocks)
            .where(blocks.c.block_id == landed(lake)[0].block_id)
            .values(insert_time=_later()),
        ),
    ),
    "a segment of the future": (
        "the segment landed after the lake's last tick",
        lambda lake: _change(lake, sa.update(segments).values(insert_time=_later())),
    ),
    "recorded and temporary": (
        "the segment is recorded and temporary at once",
        _make_temporary,
    ),
    "a segment of nothing": (
        "the segment holds no block",
        lambda lake: _change(lake, sa.delete(blocks)),
    ),
}


@pytest.mark.parametrize("which", BROKEN_RULES)
def test_every_rule_of_landing_is_seen_to_be_broken(lake: Lake, which: str) -> None:
    message, damage = BROKEN_RULES[which]
    damage(lake)
    found = lake.checker.run(Level.CATALOG).findings
    assert message in {each.message for each in found}
    assert {each.severity for each in found} == {Severity.DAMAGE}


def test_there_is_a_negative_control_for_every_rule_of_landing() -> None:
    assert rules._landing_rules().keys() == {message for message, _ in BROKEN_RULES.values()}


def _locate(lake: Lake, path: str) -> Path:
    assert isinstance(lake.store, LocalStore)
    return lake.store.locate(path)


@pytest.mark.parametrize("level", [Level.FILES, Level.PAGES])
def test_missing_and_cut_segments_are_damage(lake: Lake, level: Level) -> None:
    first, last = landed(lake)[0].segment_path, landed(lake)[-1].segment_path
    _locate(lake, first).unlink()
    _locate(lake, last).write_bytes(read_all(lake.store, last)[:-1])
    assert lake.checker.run(Level.CATALOG).is_clean
    found = {each.kind: each for each in lake.checker.run(level).findings}
    assert found.keys() == {"missing segment", "segment size"}
    assert found["missing segment"].subject == first
    assert found["segment size"].subject == last


def test_a_flipped_bit_names_its_block_at_the_level_of_pages(lake: Lake) -> None:
    first, second, _ = landed(lake)
    path = _locate(lake, second.segment_path)
    data = bytearray(path.read_bytes())
    data[second.segment_offset + 5] ^= 1
    path.write_bytes(data)
    assert lake.checker.run(Level.FOOTERS).findings == []
    (found,) = lake.checker.run(Level.PAGES).findings
    assert (found.severity, found.kind) == (Severity.DAMAGE, "block content")
    assert found.subject == second.block_id != first.block_id


def _cover(lake: Lake, name: str, covered: Sequence[Block]) -> Partition:
    """A partition, of no rows for simplicity, that says it is made of these blocks."""
    begin, end = covered[0].insert_time, covered[-1].insert_time + 1
    source = hash_sources(each.block_id for each in covered)
    new = NewPartition.completed_empty(
        lake.views.get(name).view_set, begin, end, source_hash=source
    )
    return lake.partitions.publish_many([new])[0]


def _cover_everything(lake: Lake) -> list[Partition]:
    """Decoded, of each block of any kind, in SQL over the one and over both; and one without a
    word about blocks."""
    lake.telemetry.land("traces", Generator(1).serialized("traces", 1))
    lake.views.ensure(built_in())
    logs, every = landed(lake)[:3], landed(lake)
    made = [_cover(lake, "log_entries", logs[:1]), _cover(lake, "log_entries", logs[1:])]
    made += [_cover(lake, "log_stats", logs), _cover(lake, "blocks", every)]
    made.append(_cover(lake, "processes", every))
    lake.partitions.publish_completed_empty("spans", every[0].insert_time, every[-1].insert_time)
    return made


def _forge_hash(lake: Lake, made: list[Partition]) -> set[str]:
    wrong = sa.update(partitions).where(partitions.c.partition_id == made[0].partition_id)
    _change(lake, wrong.values(source_data_hash=b"\1" * 32))
    return {str(made[0].identity)}


def _lose_a_block(lake: Lake, made: list[Partition]) -> set[str]:
    _change(lake, sa.delete(blocks).where(blocks.c.block_id == landed(lake)[1].block_id))
    return {str(each.identity) for each in made[1:]}


def _call_a_block_something_else(lake: Lake, made: list[Partition]) -> set[str]:
    last, first = landed(lake)[-1], landed(lake)[0]
    changed = sa.update(blocks).where(blocks.c.block_id == first.block_id)
    _change(lake, changed.values(encoding=last.encoding))
    return {str(made[0].identity), str(made[2].identity)}


@pytest.mark.parametrize("harm", [_forge_hash, _lose_a_block, _call_a_block_something_else])
def test_partitions_are_compared_with_their_blocks(
    lake: Lake, harm: Callable[[Lake, list[Partition]], set[str]]
) -> None:
    made = _cover_everything(lake)
    assert lake.checker.run(Level.PAGES).findings == []
    expected = harm(lake, made)
    assert lake.checker.run(Level.FILES).findings == []
    found = lake.checker.run(Level.FOOTERS).findings
    assert {each.severity for each in found} == {Severity.DAMAGE}
    assert {each.subject for each in found if each.kind == "source hash"} == expected


def test_strays_beside_segments_are_told_apart(lake: Lake) -> None:
    month = landed(lake)[0].segment_path.rsplit("/", 1)[0]
    swept = landed(lake)[-1].segment_path
    _change(lake, sa.delete(blocks).where(blocks.c.segment_path == swept))
    _change(lake, sa.delete(segments).where(segments.c.segment_path == swept))
    unknown = f"{month}/00000000-0000-0000-0000-000000000000.segment"
    put(lake.store, unknown, b"somebody's bytes")
    put(lake.store, f"{month}/11111111-0000-0000-0000-000000000000.segment", b"")
    put(lake.store, f"{month}/notes.txt", b"remember the milk")
    found = {each.subject: each for each in lake.checker.run().findings}
    assert {each.severity for each in found.values()} == {Severity.WARNING}
    assert found[unknown].kind == "unknown segment"
    assert found[swept].kind == "leftover"
    assert found[swept].journaled is not None
    assert found[f"{month}/notes.txt"].kind == "foreign layout"
    assert sorted(each.kind for each in found.values()) == [
        "foreign layout",
        "leftover",
        "unknown segment",
        "zero bytes",
    ]
    lake.checker.quarantine(unknown)
    assert unknown not in {
        each.subject for each in lake.checker.run().findings if each.severity is not Severity.NOTE
    }


def test_a_recorded_segment_cannot_be_quarantined(lake: Lake) -> None:
    path = landed(lake)[0].segment_path
    with pytest.raises(Conflict, match="holds landed blocks") as refused:
        lake.checker.quarantine(path)
    assert "backup" in (refused.value.hint or "")
    assert lake.checker.run(Level.PAGES).findings == []


def test_a_sweep_refuses_to_touch_a_recorded_segment(lake: Lake) -> None:
    path = landed(lake)[0].segment_path
    temporary = {"file_path": path, "file_size": 0, "state": "deleting", "expiration": 0}
    _change(lake, sa.insert(temporary_files).values(**temporary))
    before = stored_files(lake)
    with pytest.raises(Refused, match="nothing was swept"):
        lake.sweeper.run()
    assert stored_files(lake) == before


def test_a_backup_has_everything_that_landed(
    lake: Lake, tmp_path: Path, new_catalog: Callable[[], str]
) -> None:
    failure = {
        "view_set_name": "log_entries",
        "file_schema_hash": b"\x01",
        "block_id": landed(lake)[0].block_id,
        "insert_time": landed(lake)[0].insert_time,
        "reason": "cannot be read",
        "recorded_at": landed(lake)[0].insert_time,
    }
    _change(lake, sa.insert(build_failures).values(**failure))
    lake._names.take_segment()  # a reservation stays behind
    assert copy_lake(lake, tmp_path / "backup").files == 2
    with open_lake(tmp_path / "backup") as backup:
        store = f"file://{tmp_path / 'restored'}"
        url = new_catalog()
        copy_lake(backup, catalog=url, store=store)
        with open_lake(url) as restored:
            for copy in (backup, restored):
                for table in TABLES:
                    assert _rows(copy, table) == _rows(lake, table)
                    assert len(_rows(copy, table)) > 0
                assert [payload_of(copy, each) for each in landed(copy)] == [
                    payload_of(lake, each) for each in landed(lake)
                ]
                assert copy.checker.run(Level.PAGES).findings == []
                again = copy.telemetry.land("logs", request_of(("a", "three"), ("c", "four")))
                assert (again.blocks, again.duplicates) == (1, 1)
                assert copy.checker.run(Level.PAGES).findings == []


def _rows(lake: Lake, table: sa.Table) -> list[tuple[object, ...]]:
    with lake.catalog.read() as connection:
        return sorted(tuple(row) for row in connection.execute(sa.select(table)))


def test_what_a_killed_lander_wrote_is_swept_and_nothing_else(lake: Lake) -> None:
    kept = stored_files(lake)
    program = (
        "import os, signal, sys\n"
        "from lakebed.opening import open_lake\n"
        "from tests.ingest.parts import disturb, request_of\n"
        "lake = open_lake(sys.argv[1])\n"
        "disturb(lake, after=lambda: os.kill(os.getpid(), signal.SIGKILL))\n"
        "lake.telemetry.land('logs', request_of(('a', 'never acknowledged')))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, lake.catalog.url], cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    left = stored_files(lake) - kept
    assert len(left) == 1
    assert lake.checker.run(Level.PAGES).findings == []
    lake.close()
    with open_lake(lake.catalog.url) as after:
        assert after.sweeper.run().names_released == 0, "the lander may still be alive"
        times = iter(range(0, 10**9, 10**6))
        sweeper = Sweeper(
            after.catalog, after.store, observer=LeaseObserver(lambda: float(next(times)))
        )
        assert {each.file_path for each in sweeper.plan().abandoned} == set()
        assert left <= {each.file_path for each in sweeper.plan().abandoned}
        sweeper.run()
        assert stored_files(after) == kept
        assert after.checker.run(Level.PAGES).is_clean
        assert len(landed(after)) == 3
