"""What pages leave out, because it cannot be decoded or exists only in another schema, they say:
beside what they show, and instead of claiming that there is nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakebed.catalog.records import blocks, failures
from lakebed.catalog.records.failures import BuildFailure
from lakebed.lake import Lake
from lakebed.model.time import TimeRange
from lakebed.opening import init_lake
from tests.parts.building import build, land, tick
from tests.serve.parts import Served
from tests.web.parts import see, showing

RANGE = "begin=2026-11-15T11:59:00Z&end=2026-11-15T13:00:00Z"
HIDDEN = "exists only in another schema"
UNREADABLE = "cannot be decoded"
VIEW_SETS = {"log_entries": "logs", "spans": "traces", "measures": "metrics"}


def hide(lake: Lake, view_set: str) -> None:
    """Give a view set another version, which nothing is built of."""
    known = lake.partitions.definition(view_set)
    lake.views.register(replace(known, version=known.version + 1))


def fail(lake: Lake, view_set: str, since: int) -> None:
    """Say of every block since a tick that it could not be built."""
    known = lake.partitions.definition(view_set)
    with lake.catalog.write() as transaction:
        landed = blocks.list_blocks(transaction.connection, TimeRange(since, transaction.tick))
        failures.insert_many(
            transaction.connection,
            [
                BuildFailure(view_set, known.schema_hash, each.block_id, each.insert_time, "why")
                for each in landed
            ],
            transaction.tick,
        )


def trace_of(sent: Any) -> str:
    return str(sent[0].resource_spans[0].scope_spans[0].spans[0].trace_id.hex())


def metric_of(sent: Any) -> str:
    return str(sent[0].resource_metrics[0].scope_metrics[0].metrics[0].name)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with init_lake(tmp_path / "lake") as lake:
        yield lake


@pytest.fixture
def served(lake: Lake) -> Iterator[Served]:
    with showing(lake) as served:
        yield served


def test_what_is_shown_is_not_all_there_is(lake: Lake, served: Served) -> None:
    sent = {signal: land(lake, signal) for signal in VIEW_SETS.values()}
    for view_set in VIEW_SETS:
        build(lake, view_set)
    since = tick(lake) + 1
    for signal in VIEW_SETS.values():
        land(lake, signal, seed=2)
    for view_set in VIEW_SETS:
        fail(lake, view_set, since)
    trace, metric = trace_of(sent["traces"]), metric_of(sent["metrics"])
    for address in (
        f"/logs?{RANGE}",
        f"/traces?{RANGE}",
        f"/traces/{trace}",
        f"/measures?{RANGE}",
        f"/measures?name={metric}&{RANGE}",
        f"/measures?name={metric}&begin=1h",
        "/sql?sql=SELECT+1+FROM+spans",
    ):
        assert UNREADABLE in see(served.ask("GET", address)).text, address
    text = see(served.ask("GET", f"/traces/{trace}")).text
    assert "spans: " in text
    assert "log_entries: " in text


def test_what_is_not_seen_is_not_said_to_be_missing(lake: Lake, served: Served) -> None:
    sent = {signal: land(lake, signal) for signal in VIEW_SETS.values()}
    for view_set in VIEW_SETS:
        build(lake, view_set)
        hide(lake, view_set)
    for address in (f"/logs?{RANGE}", f"/traces?{RANGE}", f"/measures?{RANGE}"):
        text = see(served.ask("GET", address)).text
        assert HIDDEN in text, address
        assert "landed yet" not in text, address
        assert "no metrics yet" not in text, address
    trace, metric = trace_of(sent["traces"]), metric_of(sent["metrics"])
    for address in (f"/traces/{trace}", f"/measures?name={metric}&{RANGE}"):
        assert HIDDEN in see(served.ask("GET", address), 404).text, address
