"""Customers come from a seed, and of everything that a shop has to tell something happens."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from lakebed.demo.visits import SERVICES, Step, plan_visit


def _every(step: Step) -> Iterator[Step]:
    yield step
    for call in step.calls:
        yield from _every(call)


def test_customers_come_from_a_seed() -> None:
    first, second = ([plan_visit(Random(3)) for _ in range(1)] for _ in range(2))
    assert first == second


def test_every_service_works_and_some_of_it_goes_wrong() -> None:
    chance = Random(7)
    visits = [plan_visit(chance) for _ in range(600)]
    steps = [each for visit in visits for each in _every(visit)]
    assert {each.service for each in steps} == set(SERVICES)
    assert {severity for each in steps for severity, _ in each.says} == {
        "DEBUG",
        "INFO",
        "WARN",
        "ERROR",
    }
    assert any(each.milliseconds > 1000 and each.fails is None for each in steps), "slow ones"
    lost = [each for each in visits if any(step.fails for step in _every(each))]
    assert lost
    assert all(each.fails for each in lost), "who asked fails too"
    statuses = {each.attributes["http.response.status_code"] for each in visits}
    assert statuses == {200, 402, 500}
