"""The page of the lake itself: every number on it is what was sent, built, retired and failed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.catalog.records import blocks, failures
from lakebed.catalog.records.failures import BuildFailure
from lakebed.lake import Lake
from lakebed.model.time import SECOND, TimeRange, to_instant
from lakebed.model.view_set import ViewSet
from lakebed.opening import init_lake
from lakebed.samples.generator import Generator
from lakebed.web.pages.lake import CELLS, Fact, State, plan_cells
from tests.parts.building import build, land, tick
from tests.serve.parts import Served
from tests.web.parts import see, showing

MARKUP = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Logs: one built, one merged from two, one retired, one waiting. Traces: one waiting."""
    with init_lake(tmp_path_factory.mktemp("web") / "lake") as lake:
        ends = [tick(lake)]
        for seed, size in ((1, 30), (2, 40), (3, 50), (4, 60)):
            land(lake, "logs", seed=seed, size=size)
            ends.append(tick(lake) + 1)
        land(lake, "traces", size=25)
        build(lake, "log_entries", ends[0], ends[1])
        second = build(lake, "log_entries", ends[1], ends[2])
        third = build(lake, "log_entries", ends[2], ends[3])
        with lake.partitions.snapshot("log_entries", inserted=(ends[1], ends[3])) as snapshot:
            rows = snapshot.read_all("log_entries")
        lake.partitions.publish(
            "log_entries", ends[1], ends[3], rows, replaces=[second, third], reason=MARKUP
        )
        gone = build(lake, "log_entries", ends[3], ends[4])
        lake.retirement.retire_partition_by_metadata(
            "log_entries", "global", ends[3], ends[4], gone.schema_hash
        )
        build(lake, "measures", ends[0], ends[4])
        yield lake


@pytest.fixture(scope="module")
def served(lake: Lake) -> Iterator[Served]:
    with showing(lake) as served:
        yield served


def layers_of(served: Served, address: str = "/lake.json") -> dict[str, dict]:
    return {each["name"]: each for each in served.ask("GET", address).json()["layers"]}


def test_every_number_is_what_is_there(served: Served, lake: Lake) -> None:
    layers = layers_of(served)
    logs = layers["log_entries"]
    assert logs["rows"] == 30 + 40 + 50
    assert logs["partitions"] == 2
    live = lake.partitions.list_partitions("log_entries")
    assert logs["bytes"] == sum(each.file_size for each in live)
    # The retired one's blocks are waiting to be built again: queries decode them meanwhile.
    waiting = lake.query("SELECT count(*) AS n FROM blocks WHERE \"streams.format\" = 'otlp/logs'")
    assert waiting.to_arrow()["n"].to_pylist()[0] > logs["states"]["not yet built"] > 0
    assert {each: logs["states"][each] for each in ("built", "merged", "retired")} == {
        "built": 1,
        "merged": 1,
        "retired": 1,
    }
    assert logs["lag_seconds"] > 0
    assert layers["measures"]["states"] == {"empty": 1}
    assert layers["measures"]["lag_seconds"] is None
    assert layers["spans"]["rows"] == 0
    assert layers["spans"]["states"].keys() == {"not yet built"}
    assert {each["state"] for each in logs["cells"]} >= {"built", "merged", "retired"}

    page = see(served.ask("GET", "/lake"))
    for layer in layers.values():
        assert layer["name"] in page.text
    assert "120 rows" in page.text or "rows 120" in page.text
    shown = page.all("rect", class_="s-merged")
    assert len(shown) == 1 + sum(each["state"] == "merged" for each in logs["cells"])


def test_the_address_says_which_time(served: Served, lake: Lake) -> None:
    first = min(
        lake.partitions.list_partitions("log_entries"), key=lambda each: each.insert_range.begin
    ).insert_range
    address = f"?begin={first.begin}&end={first.end}".replace(
        f"{first.begin}", served_time(first.begin)
    ).replace(f"{first.end}", served_time(first.end))
    logs = layers_of(served, f"/lake.json{address}")["log_entries"]
    assert (logs["rows"], logs["partitions"]) == (30, 1)
    page = see(served.ask("GET", f"/lake{address}"))
    assert f"/lake/partitions/{logs['cells'][0]['partition_id']}" in page.links
    assert page.all("input", name="begin", value=served_time(first.begin))
    bad = see(served.ask("GET", "/lake?begin=soon"), 400)
    assert "soon" in bad.text
    assert bad.all("input", name="begin", value="soon")
    assert served.ask("GET", "/lake.json?begin=2h&end=3h").status == 400


def served_time(instant: int) -> str:
    from lakebed.model.time import format_instant

    return format_instant(instant)


def test_a_partition_shows_footer_sources_and_journal(served: Served, lake: Lake) -> None:
    merged = next(
        each for each in lake.partitions.list_partitions("log_entries") if each.num_rows == 90
    )
    path = f"/lake/partitions/{merged.partition_id}"
    data = served.ask("GET", f"{path}.json").json()
    assert (data["rows"], data["bytes"]) == (90, merged.file_size)
    assert sum(group["rows"] for group in data["row_groups"]) == 90
    assert data["footer_bytes"] == len(lake.partitions.get_footer(merged.file_path or ""))
    levels = next(each for each in data["row_groups"][0]["columns"] if each["name"] == "level")
    truth = lake.query(
        "SELECT min(level) AS low, max(level) AS high FROM log_entries",
        as_of=merged.published_at,
        stale=True,
    ).to_arrow()
    assert int(levels["least"]) >= truth["low"][0].as_py()
    assert int(levels["greatest"]) <= truth["high"][0].as_py()
    assert data["source_block_count"] == len(data["source_blocks"]) > 1
    assert sum(each["records"] for each in data["source_blocks"]) == 90
    assert [each["operation"] for each in data["journal"]] == ["publish"]
    page = see(served.ask("GET", path))
    assert MARKUP in page.text  # as text, not as a tag
    assert MARKUP not in page.html
    assert merged.partition_id in page.text
    empty = lake.partitions.list_partitions("measures")[0]
    assert "gave no rows" in see(served.ask("GET", f"/lake/partitions/{empty.partition_id}")).text
    lost = see(served.ask("GET", "/lake/partitions/%3Cb%3E"), 404)
    assert "<b>" in lost.text
    assert "<b>" not in lost.html


def test_what_failed_is_shown(tmp_path: Path) -> None:
    with init_lake(tmp_path / "lake") as lake:
        land(lake, "logs", size=10)
        build(lake, "log_entries")
        before = tick(lake)
        land(lake, "logs", seed=9, size=3)
        active = lake.views.get("log_entries")
        with lake.catalog.read() as connection:
            landed = blocks.list_blocks(connection, TimeRange(before, tick(lake) + 1))
        at = landed[-1].insert_time
        with lake.catalog.write() as transaction:
            failure = BuildFailure("log_entries", active.schema_hash, "b", at, MARKUP)
            failures.insert_many(transaction.connection, [failure], transaction.tick)
        with showing(lake) as served:
            logs = layers_of(served)["log_entries"]
            assert logs["states"]["failed"] == 1
            assert logs["states"].get("not yet built", 0) == len(landed) - 1 > 0
            assert "failed" in {each["state"] for each in logs["cells"]}
            first = to_instant(served.ask("GET", "/lake.json").json()["begin"])
            assert first <= at
            (stuck,) = logs["stuck"]
            assert stuck["block_id"] == landed[-1].block_id
            assert stuck["encoding"] == landed[-1].encoding
            assert stuck["reason"] == MARKUP
            page = see(served.ask("GET", "/lake"))
            assert MARKUP in page.text
            assert "lakebed build log_entries --retry-failed" in page.text
            assert landed[0].block_id not in page.text

            (cell,) = (each for each in logs["cells"] if each["state"] == "failed")
            assert cell["blocks"] >= 1
            narrow = f"?begin={cell['begin']}&end={cell['end']}"
            near = layers_of(served, f"/lake.json{narrow}")["log_entries"]
            assert near["states"]["failed"] == 1
            everything = layers_of(served, f"/lake.json?begin={served_time(first)}")["log_entries"]
            assert [each["block_id"] for each in everything["stuck"]] == [
                each.block_id for each in (landed[-1], *landed[:-1])
            ]
            page = see(served.ask("GET", f"/lake?begin={served_time(first)}"))
            assert landed[0].block_id in page.text


@given(data=st.data(), length=st.integers(1, 1000) | st.integers(1, 10**9))
def test_what_a_cell_shows_is_in_the_range_that_it_names(data: st.DataObject, length: int) -> None:
    within = TimeRange(1_000_000, 1_000_000 + length)
    instants = st.integers(within.begin - length, within.end + length)
    spans = data.draw(st.lists(st.tuples(instants, instants), max_size=8))
    facts = [
        Fact(min(span), max(span) + 1, State.BUILT, rows=number, partition_id=str(number))
        for number, span in enumerate(spans)
        if min(span) < within.end and max(span) >= within.begin
    ]
    cells = plan_cells(facts, within)
    shown = [range(each.place, each.place + each.width) for each in cells]
    assert all(before.stop <= after.start for before, after in pairwise(shown))
    for cell in cells:
        begin, end = to_instant(cell.begin), to_instant(cell.end)
        assert within.begin <= begin < end <= within.end
        touched = [fact for fact in facts if fact.begin < end and fact.end > begin]
        if cell.width * length >= CELLS:  # it has an instant of its own
            assert (len(touched), sum(each.rows for each in touched)) == (
                cell.partitions,
                cell.rows,
            )
        assert len(touched) >= cell.partitions
    assert {id(each) for each in facts} == {
        id(fact)
        for fact in facts
        for cell in cells
        if fact.begin < to_instant(cell.end) and fact.end > to_instant(cell.begin)
    }


def test_what_was_merged_is_not_retired_twice(tmp_path: Path) -> None:
    with init_lake(tmp_path / "lake") as lake:
        ends = [tick(lake)]
        for seed in (1, 2):
            land(lake, "logs", seed=seed, size=10)
            ends.append(tick(lake) + 1)
        parts = [build(lake, "log_entries", ends[at], ends[at + 1]) for at in (0, 1)]
        with lake.partitions.snapshot("log_entries") as snapshot:
            rows = snapshot.read_all("log_entries")
        whole = lake.partitions.publish("log_entries", ends[0], ends[2], rows, replaces=parts)
        lake.retirement.retire_partition_by_metadata(
            "log_entries", "global", ends[0], ends[2], whole.schema_hash, confirmed=["log_entries"]
        )
        with showing(lake) as served:
            logs = layers_of(served)["log_entries"]
        assert logs["states"]["retired"] == 1
        assert {each["partition_id"] for each in logs["cells"] if each["partitions"] == 1} <= {
            whole.partition_id,
            None,
        }
        assert (logs["rows"], logs["partitions"]) == (0, 0)


def readings(version: int) -> ViewSet:
    fields = [("time", pa.timestamp("us", "UTC")), *((f"c{n}", pa.int64()) for n in range(version))]
    return ViewSet("readings", version, pa.schema(fields), "time")


def test_partitions_of_another_schema_are_shown_where_nothing_covers_them(tmp_path: Path) -> None:
    hour = 3600 * SECOND
    begin = to_instant("2026-11-01T00:00:00Z")
    with init_lake(tmp_path / "lake") as lake:
        lake.views.register(readings(1))
        for number, rows in enumerate((3, 4)):
            table = pa.table({"time": [begin] * rows, "c0": range(rows)}, readings(1).schema)
            span = (begin + number * hour, begin + (number + 1) * hour)
            lake.partitions.publish("readings", *span, table)
        lake.views.register(readings(2))
        new = pa.table({"time": [begin], "c0": [1], "c1": [1]}, readings(2).schema)
        lake.partitions.publish("readings", begin, begin + hour, new)
        with showing(lake) as served:
            layer = layers_of(served)["readings"]
            admin = served.ask("GET", "/admin.json").json()
            see(served.ask("GET", "/lake"))
            see(served.ask("GET", "/admin"))
    assert layer["states"] == {"built": 1, "incompatible": 1}
    assert (layer["rows"], layer["partitions"]) == (1, 1)
    assert [each["state"] for each in layer["cells"]] == ["built", "incompatible"]
    assert [each["width"] for each in layer["cells"]] == [80, 80]
    (unseen,) = admin["unseen"]
    assert (unseen["partitions"], unseen["rows"], unseen["lost_if_retired"]) == (2, 7, 2)


def test_a_new_lake_says_what_to_do(tmp_path: Path) -> None:
    with init_lake(tmp_path / "lake") as lake, showing(lake) as served:
        page = see(served.ask("GET", "/lake"))
        assert "OTEL_EXPORTER_OTLP_ENDPOINT" in page.text
        assert served.ask("GET", "/lake.json").json()["is_new"] is True
        home = served.ask("GET", "/")
        assert (home.status, home.headers["location"]) == (307, "/lake")


def test_a_lake_with_records_alone_says_how_to_send_telemetry(tmp_path: Path) -> None:
    with init_lake(tmp_path / "lake") as lake, showing(lake) as served:
        lake.tables.create_database("home")
        record = {"time": "2026-11-16T05:00:00Z", "bpm": 61}
        draft = lake.tables.propose_schema([record])
        lake.tables.create_table("home", "heart_rate", draft).insert([record])
        for path in ("/logs", "/traces", "/measures"):
            page = see(served.ask("GET", path))
            assert "OTEL_EXPORTER_OTLP_ENDPOINT" in page.text, path
            assert "landed yet" in page.text, path
        request = Generator(1).logs(1)
        for sender in request.resource_logs:
            del sender.resource.attributes[:]
        lake.telemetry.land("logs", request.SerializeToString())
        text = see(served.ask("GET", "/logs?begin=2020-01-01T00:00:00Z&text=no-such-thing")).text
        assert "nothing fits" in text
        assert "landed yet" not in text


def test_the_docs_list_states_in_the_order_in_which_they_are_shown() -> None:
    page = (Path(__file__).parents[2] / "docs" / "web.md").read_text()
    table = page.split("| colour | means |")[1].split("\n\n")[0]
    assert re.findall(r"^\| ([a-z ]+) \|", table, re.MULTILINE) == list(State)
