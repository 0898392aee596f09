"""The summary of what retiring did."""

from __future__ import annotations

from dataclasses import replace

from lakebed.lake import Lake
from lakebed.lifecycle.outcomes import IncompatibleSummary, Outcome, summarize
from tests.parts.data import publish_hour, readings


def test_summarize_counts_and_measures_each_instance(lake: Lake) -> None:
    lake.views.register(readings())
    first = publish_hour(lake, 0, instance="a")
    second = replace(publish_hour(lake, 1, instance="a"), file_size=7)
    other = replace(publish_hour(lake, 0, instance="b"), file_size=11)
    outcomes = [
        Outcome(first, False, "it changed"),
        Outcome(other, True, "retired"),
        Outcome(second, True, "retired too"),
    ]
    assert summarize(outcomes) == [
        IncompatibleSummary("readings", "a", 1, 1, 7, ("it changed", "retired too")),
        IncompatibleSummary("readings", "b", 1, 0, 11, ("retired",)),
    ]
    assert summarize([]) == []
