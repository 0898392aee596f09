"""Blocks are read and decoded in groups, at each limit of their sizes and of the gaps between."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from lakebed.model.block import Block
from lakebed.reading import block_reader
from lakebed.reading.block_reader import read_blocks
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import put

MIB = 1 << 20
KIB = 1 << 10


def make_block(
    offset: int, size: int, *, path: str = "segment", digest: bytes = b"", name: str = ""
) -> Block:
    return Block(
        block_id=name or f"{path} {offset}",
        stream_id="stream",
        process_id="process",
        insert_time=offset,
        begin_time=None,
        end_time=None,
        nb_objects=1,
        encoding="otlp/logs+protobuf",
        payload_digest=digest,
        segment_path=path,
        segment_offset=offset,
        payload_size=size,
    )


def make_row(sizes: Sequence[int], gaps: Sequence[int] = ()) -> list[Block]:
    """Return blocks of these sizes behind each other, with these gaps behind them."""
    blocks, offset = [], 0
    for place, size in enumerate(sizes):
        blocks.append(make_block(offset, size))
        offset += size + (gaps[place] if place < len(gaps) else 0)
    return blocks


def list_sizes(groups: Iterable[Sequence[Block]]) -> list[list[int]]:
    return [[block.payload_size for block in group] for group in groups]


@pytest.mark.parametrize(
    ("sizes", "chunks"),
    [
        ([], []),
        ([20 * MIB], [[20 * MIB]]),
        ([8 * MIB, 8 * MIB], [[8 * MIB, 8 * MIB]]),
        ([8 * MIB, 8 * MIB + 1], [[8 * MIB], [8 * MIB + 1]]),
        ([16 * MIB, 1, 16 * MIB - 1], [[16 * MIB], [1, 16 * MIB - 1]]),
        ([16 * MIB, 2, 16 * MIB - 1], [[16 * MIB], [2], [16 * MIB - 1]]),
    ],
)
def test_blocks_are_decoded_in_chunks_of_at_most_16_mib(
    sizes: list[int], chunks: list[list[int]]
) -> None:
    assert list_sizes(block_reader._chunks(make_row(sizes))) == chunks


@pytest.mark.parametrize(
    ("sizes", "gaps", "runs"),
    [
        ([], [], []),
        ([20 * MIB], [], [[20 * MIB]]),
        ([1, 2, 3], [], [[1, 2, 3]]),
        ([1, 2], [256 * KIB], [[1, 2]]),
        ([1, 2], [256 * KIB + 1], [[1], [2]]),
        ([1, 2, 3], [256 * KIB, 256 * KIB + 1], [[1, 2], [3]]),
        ([8 * MIB, 8 * MIB], [], [[8 * MIB, 8 * MIB]]),
        ([8 * MIB, 8 * MIB + 1], [], [[8 * MIB], [8 * MIB + 1]]),
        ([8 * MIB, 8 * MIB - 1], [1], [[8 * MIB, 8 * MIB - 1]]),
        ([8 * MIB, 8 * MIB], [1], [[8 * MIB], [8 * MIB]]),
        ([16 * MIB, 8 * MIB, 8 * MIB], [], [[16 * MIB], [8 * MIB, 8 * MIB]]),
    ],
)
def test_blocks_are_read_together_if_they_are_near_and_at_most_16_mib(
    sizes: list[int], gaps: list[int], runs: list[list[int]]
) -> None:
    assert list_sizes(block_reader._runs(make_row(sizes, gaps))) == runs


@pytest.fixture
def local_store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def test_payloads_are_read_in_the_order_of_the_blocks_whatever_their_place(
    local_store: LocalStore,
) -> None:
    gap = b"\0" * (256 * KIB + 1)
    put(local_store, "one", b"abcde" + gap + b"fg")
    put(local_store, "two", b"hi")
    places = [("one", 5 + len(gap), b"fg"), ("two", 0, b"hi"), ("one", 2, b"cde"), ("one", 0, b"a")]
    blocks = [
        make_block(offset, len(data), path=path, digest=hashlib.sha256(data).digest())
        for path, offset, data in places
    ]
    landed, failures = read_blocks(local_store, blocks)
    assert [block.payload for block in landed] == [data for _, _, data in places]
    assert [block.block_id for block in landed] == [block.block_id for block in blocks]
    assert failures == []


def test_blocks_that_changed_or_lost_their_segment_are_failures_beside_others(
    local_store: LocalStore,
) -> None:
    put(local_store, "one", b"ab")
    good = make_block(0, 1, path="one", digest=hashlib.sha256(b"a").digest(), name="good")
    changed = make_block(1, 1, path="one", digest=hashlib.sha256(b"x").digest(), name="changed")
    lost = [make_block(offset, 1, path="gone", name=f"lost {offset}") for offset in (0, 1)]
    landed, failures = read_blocks(local_store, [lost[0], good, changed, lost[1]])
    assert [block.block_id for block in landed] == ["good"]
    assert dict(failures) == {
        "lost 0": "its segment gone is missing",
        "lost 1": "its segment gone is missing",
        "changed": "its bytes in one have changed",
    }
