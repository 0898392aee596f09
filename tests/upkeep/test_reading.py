"""Upkeep reads every file to its end, a share at a time, and heals what it can."""

from __future__ import annotations

import pytest

from lakebed.catalog.records import duties
from lakebed.errors import DamagedFile
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.storage.local import LocalStore
from lakebed.upkeep.duties import DUTIES
from lakebed.upkeep.reading import Pace, RoundPosition, choose, read_share
from lakebed.upkeep.upkeep import Upkeep
from tests.parts.building import build, land
from tests.parts.data import publish_hour, readings

READ = [each for each in DUTIES if each.name == "read"]


def _flip(lake: Lake, path: str, where: float = 0.5) -> None:
    """Change a few bytes in the middle of a file, which stays as long as it was."""
    assert isinstance(lake.store, LocalStore)
    file = lake.store.locate(path)
    data = bytearray(file.read_bytes())
    at = int(len(data) * where)
    data[at : at + 4] = bytes(each ^ 0xFF for each in data[at : at + 4])
    file.chmod(0o644)
    file.write_bytes(data)


def test_a_partition_with_flipped_bytes_is_set_aside_and_built_again(lake: Lake) -> None:
    land(lake)
    partition = build(lake)
    _flip(lake, str(partition.file_path), 0.3)
    assert lake.checker.run(Level.FILES).is_clean
    (run,) = Upkeep(lake, READ).run_due()
    assert run.error is None
    assert "1 set aside, to be built again" in str(run.result)
    count = lake.query("SELECT count(*) AS n FROM log_entries").to_arrow()["n"][0].as_py()
    assert count == 20, "decoded from their blocks"
    build(lake)
    assert lake.checker.run(Level.PAGES).is_clean


def test_a_round_reads_every_file_once(lake: Lake) -> None:
    lake.views.register(readings())
    made = [str(publish_hour(lake, hour).file_path) for hour in range(5)]
    land(lake, requests=3)
    with lake.catalog.read() as connection:
        place, seen, runs = RoundPosition(), list[str](), 0
        while not runs or place.after or place.in_segments:
            share = choose(connection, place, Pace(files=2))
            assert len(share.live) + len(share.landed) <= 2
            seen += [str(each.file_path) for each in share.live]
            seen += [each.segment_path for each in share.landed]
            runs += 1
        one = choose(connection, RoundPosition(), Pace(bytes=1))
        much = choose(connection, RoundPosition(), Pace(files=1, bytes=1, longest_round=2))
    assert len(seen) == len(set(seen)) == 8
    assert set(made) < set(seen)
    assert runs == 5
    assert len(one.live) == 1, "however large it is"
    assert len(much.live) > 1, "else the round would be too long"


def test_an_empty_lake_is_read(lake: Lake) -> None:
    (run,) = Upkeep(lake, READ).run_due()
    assert run.result == "read 0 files of 0 bytes to their end"


def test_what_cannot_be_healed_stays_visible(lake: Lake) -> None:
    lake.views.register(readings())
    made = sorted(str(publish_hour(lake, hour).file_path) for hour in range(3))
    _flip(lake, made[0])
    upkeep = Upkeep(lake, READ)
    upkeep.run_due()
    with lake.catalog.write() as transaction:
        duties.leave_memo(transaction.connection, "read", "{}")
    for _ in range(3):
        _, healed, left = read_share(lake, "read", Pace(files=1))
        assert healed == []
        assert [each.subject for each in left] == [made[0]]
    _flip(lake, made[0])
    (run,) = upkeep.run_due(everything=True)
    assert run.error is None


def test_a_segment_with_flipped_bytes_is_reported(lake: Lake) -> None:
    land(lake)
    with lake.catalog.read() as connection:
        (segment,) = choose(connection, RoundPosition(), Pace()).landed
    _flip(lake, segment.segment_path)
    (run,) = Upkeep(lake, READ).run_due()
    assert segment.segment_path in str(run.error)


@pytest.mark.parametrize("where", [0.02, 0.97], ids=["first page", "footer"])
def test_where_bytes_flip_does_not_matter(lake: Lake, where: float) -> None:
    land(lake)
    _flip(lake, str(build(lake).file_path), where)
    (run,) = Upkeep(lake, READ).run_due()
    assert "1 set aside" in str(run.result)


def test_who_meets_the_damage_first_is_told_that_it_can_be_healed(lake: Lake) -> None:
    land(lake)
    partition = build(lake)
    path = str(partition.file_path)
    _flip(lake, path, 0.02)
    with pytest.raises(DamagedFile, match=path) as met:
        lake.query("SELECT * FROM log_entries").to_arrow()
    assert "built again" in str(met.value.hint)
    assert partition.retire_command in str(met.value.hint)
    assert "--file" not in str(met.value.hint)
    lake.store.locate(path).unlink()  # type: ignore[attr-defined]
    with pytest.raises(DamagedFile, match="is missing") as missing:
        lake.query("SELECT * FROM log_entries").to_arrow()
    assert missing.value.hint == met.value.hint
