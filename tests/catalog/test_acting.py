"""The journal names the callers of a change, and the process that made it."""

from __future__ import annotations

import pytest

from lakebed.catalog.acting import find_askers, keep_askers, name_actor, on_behalf_of


@pytest.mark.parametrize(
    ("askers", "actor"),
    [
        ([], "host"),
        (["a"], "a via host"),
        (["a", "b", "c"], "a, b, c via host"),
        (["a", "b", "c", "d"], "a, b, c and 1 more via host"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more via host"),
    ],
)
def test_name_actor_names_three_callers_and_counts_the_rest(askers: list[str], actor: str) -> None:
    with on_behalf_of(*askers):
        assert name_actor("host") == actor
        find_later = keep_askers(find_askers)
    assert find_askers() == ()
    assert find_later() == tuple(askers)
