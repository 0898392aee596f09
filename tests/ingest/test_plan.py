"""What of a group is new is decided by a pure function."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakebed.ingest.requests import NewBlock, read_request
from lakebed.ingest.segments import plan_landing
from tests.ingest.parts import request_of


def _blocks(*messages: str, request_id: str | None = None) -> list[NewBlock]:
    body = request_of(*((f"service {place}", each) for place, each in enumerate(messages)))
    return read_request("logs", body, request_id=request_id)


def _ids(blocks: tuple[NewBlock, ...] | list[NewBlock]) -> list[str]:
    return [block.block_id for block in blocks]


def test_a_block_lands_once_however_often_it_is_there() -> None:
    (one,) = _blocks("a")
    plan = plan_landing([[one, one], [one]], {})
    assert _ids(plan.fresh) == [one.block_id]
    assert plan.conflicts == {}
    assert plan_landing([[one]], {one.block_id: one.payload_digest}).fresh == ()


def test_an_id_with_other_bytes_refuses_its_own_request_only() -> None:
    first, other = _blocks("a", "b", request_id="r"), _blocks("c", "d", request_id="r")
    third = _blocks("e")
    plan = plan_landing([first, other, third], {})
    assert plan.conflicts.keys() == {1}
    assert _ids(plan.fresh) == _ids(first) + _ids(third)


def test_a_request_that_contradicts_itself_is_refused_whole() -> None:
    (a,), (b,) = _blocks("a", request_id="r"), _blocks("b", request_id="r")
    plan = plan_landing([[a, b]], {})
    assert plan.conflicts == {0: a.block_id}
    assert plan.fresh == ()


def test_a_refused_request_does_not_stand_in_the_way_of_a_later_one() -> None:
    """What the refused one would have landed lands with the next that has it."""
    known, fine = _blocks("x", "y", request_id="r")
    wrong = _blocks("other", request_id="r")
    plan = plan_landing([[*wrong, fine], [fine]], {known.block_id: known.payload_digest})
    assert plan.conflicts.keys() == {0}
    assert _ids(plan.fresh) == [fine.block_id]


_POOL = [
    block
    for message in ("a", "b", "c")
    for block in _blocks(message, message * 2, request_id="same")
] + _blocks("p", "q", "r")


@given(
    st.lists(st.lists(st.sampled_from(_POOL), max_size=4), max_size=5),
    st.lists(st.sampled_from(_POOL), max_size=3),
)
def test_every_request_is_landed_known_or_refused(
    requests: list[list[NewBlock]], before: list[NewBlock]
) -> None:
    known = {block.block_id: block.payload_digest for block in before}
    plan = plan_landing(requests, known)
    there = known | {block.block_id: block.payload_digest for block in plan.fresh}
    assert len({*_ids(plan.fresh)}) == len(plan.fresh)
    assert not {*_ids(plan.fresh)} & known.keys()
    wanted = set()
    for place, request in enumerate(requests):
        if place not in plan.conflicts:
            wanted |= {*_ids(request)}
            assert all(there[block.block_id] == block.payload_digest for block in request)
    assert {*_ids(plan.fresh)} <= wanted
