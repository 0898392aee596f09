"""What queries cannot see is shown as the lake has it, retired exactly as shown, and restored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakebed.access.keys import Role
from lakebed.lake import Lake
from lakebed.model.partition import Partition, hash_sources
from lakebed.opening import init_lake
from tests.parts.building import land, tick
from tests.parts.data import HOUR, T0, publish_hour, readings, rows
from tests.serve.parts import Served
from tests.web.forms import Browser
from tests.web.parts import see, showing

PATH = "/admin/incompatible/readings"


@pytest.fixture
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with init_lake(tmp_path_factory.mktemp("web") / "lake") as lake:
        yield lake


@pytest.fixture
def browsers(lake: Lake) -> Iterator[tuple[Browser, Browser]]:
    """An administrator's and a reader's."""
    admin = lake.keys.create("boss", [Role.ADMIN])
    reader = lake.keys.create("reader", [Role.READ])

    def open_browser(served: Served, secret: str) -> Browser:
        return Browser(served, {"Authorization": f"Bearer {secret}"})

    with showing(lake) as served:
        yield open_browser(served, admin.secret), open_browser(served, reader.secret)


@pytest.fixture
def old(lake: Lake) -> list[Partition]:
    """Partitions of an older schema: three whose rows are nowhere else, one with its blocks, and
    one that is empty; beside some of the present."""
    lake.views.register(readings(1))
    made = [publish_hour(lake, hour, 3) for hour in range(3)] + [publish_hour(lake, 3, 0)]
    begin = tick(lake)
    land(lake, "logs", size=5)
    made.append(
        lake.partitions.publish(
            "readings", begin, tick(lake) + 1, rows(7), source_hash=hash_sources(["block"])
        )
    )
    lake.views.remove("readings")
    lake.views.register(readings(2))
    publish_hour(lake, 0, 2, version=2)
    return made


def live(lake: Lake) -> set[str]:
    return {each.partition_id for each in lake.partitions.list_partitions()}


def test_the_plan_is_what_the_lake_would_retire(
    browsers: tuple[Browser, Browser], lake: Lake, old: list[Partition]
) -> None:
    admin, reader = browsers
    (row,) = admin.data("/admin")["unseen"]
    data = admin.data(PATH)
    assert row["partitions"] == data["partition_count"] == 5
    assert row["rows"] == data["rows"] == 16
    assert row["bytes"] == data["bytes"] == sum(each.file_size for each in old)
    assert row["lost_if_retired"] == data["lost"] == 3
    assert data["lost_rows"] == 9
    shown = {each["partition_id"]: each for each in data["partitions"]}
    assert shown.keys() == {each.partition_id for each in old}
    rebuilt = {name for name, each in shown.items() if each["can_be_rebuilt"]}
    assert rebuilt == {each.partition_id for each in old[3:]}
    assert data["warnings"] == list(lake.retirement.plan_incompatible("readings").warnings)
    assert PATH in admin.load("/admin").links
    page = admin.load(PATH)
    assert {f"/lake/partitions/{name}" for name in shown} <= set(page.links)
    assert "3 of them cannot be rebuilt" in page.text
    assert "9 rows will be lost" in page.text
    reader.load(PATH, 403)
    assert reader.ask(f"{PATH}.json").status == 403
    missing = admin.load("/admin/incompatible/%3Cb%3Enone", 404)
    assert "<b>none" in missing.text
    assert "<b>" not in missing.html


def test_what_cannot_be_built_again_stays_unless_the_box_is_ticked(
    browsers: tuple[Browser, Browser], lake: Lake, old: list[Partition]
) -> None:
    admin, _ = browsers
    before = live(lake)
    lost = {each.partition_id for each in old[:3]}
    plan = admin.load(PATH).all("input", name="plan")[0]["value"] or ""
    told = admin.send_and_see(PATH, plan=plan).text
    assert "Retired 2 of 5 partitions of readings with 7 rows." in told
    assert "3 cannot be built again and were left alone" in told
    assert live(lake) == before - {each.partition_id for each in old[3:]}

    page = admin.load(PATH)
    plan = page.all("input", name="plan")[0]["value"] or ""
    assert "none of them can be built again" in admin.send_in_vain(PATH, 409, plan=plan).text
    assert lost <= live(lake)
    refused = admin.send_in_vain(PATH, 409, plan=plan, allow_loss="yes")
    assert "confirm it by typing readings" in refused.text
    assert lost <= live(lake)
    told = admin.send_and_see(PATH, plan=plan, allow_loss="yes", confirm="readings").text
    assert "Retired 3 of 3 partitions of readings with 9 rows." in told
    assert live(lake) == before - {each.partition_id for each in old}
    assert "nothing to retire" in admin.load(PATH).text
    entries = admin.data("/admin")["journal"]
    retired = [each for each in entries if each["partition_id"] in lost][:3]
    assert {each["operation"] for each in retired} == {"retire"}
    assert all(each["actor"].startswith("key:boss via ") for each in retired)


def test_a_plan_that_changed_is_refused_and_shown_anew(
    browsers: tuple[Browser, Browser], lake: Lake, old: list[Partition]
) -> None:
    admin, reader = browsers
    plan = admin.load(PATH).all("input", name="plan")[0]["value"] or ""
    before = live(lake)
    gone = old[0]
    lake.retirement.retire_partition_by_metadata(
        "readings", "global", T0, T0 + HOUR, gone.schema_hash, confirmed=["readings"]
    )
    for wrong in ({"plan": plan}, {"plan": "<b>"}, {}):
        page = admin.send_in_vain(PATH, 409, allow_loss="yes", **wrong)
        assert "is not what it was" in page.text
        assert "<b>" not in page.html
    assert live(lake) == before - {gone.partition_id}
    new = page.all("input", name="plan")[0]["value"] or ""
    assert new != plan
    assert f"/lake/partitions/{gone.partition_id}" not in page.links
    reader.word, reader.token = admin.word, admin.token
    assert reader.send(PATH, plan=new, allow_loss="yes").status == 403
    stranger = Browser(admin.served, admin.headers, "another word", admin.token)
    assert stranger.send(PATH, plan=new, allow_loss="yes").status == 403
    assert live(lake) == before - {gone.partition_id}
    admin.send_and_see(PATH, plan=new, allow_loss="yes", confirm="readings")
    assert len(live(lake)) == 1


def test_rows_that_would_be_lost_are_confirmed_by_the_name_of_their_view_set(
    browsers: tuple[Browser, Browser], lake: Lake, old: list[Partition]
) -> None:
    admin, _ = browsers
    lake.views.remove("readings")
    lake.views.register(readings(1))
    for hour in range(10, 18):
        publish_hour(lake, hour, 1)
    lake.views.remove("readings")
    page = admin.load(PATH)
    assert "No view set of the name readings is registered any more" in page.text
    assert "type readings:" in page.text
    plan = page.all("input", name="plan")[0]["value"] or ""
    before = live(lake)
    wrong = admin.send_in_vain(PATH, 409, plan=plan, allow_loss="yes", confirm="spans")
    assert "confirm it by typing readings" in wrong.text
    assert live(lake) == before
    admin.send_and_see(PATH, plan=plan, allow_loss="yes", confirm="readings")
    assert live(lake) == set()
    admin.load(PATH, 404)


def test_retired_partitions_are_restored_from_the_list(
    browsers: tuple[Browser, Browser], lake: Lake, old: list[Partition]
) -> None:
    admin, reader = browsers
    begin, end = T0 + 20 * HOUR, T0 + 21 * HOUR
    first = lake.partitions.publish("readings", begin, end, rows(4, 20, 2))
    second = lake.partitions.publish("readings", begin, end, rows(5, 20, 2), replaces=[first])
    lake.retirement.retire_partitions("readings", begin, end, hold=True)
    found = admin.data("/admin/retired")["retired"]
    assert first.partition_id not in {each["partition_id"] for each in found}
    assert found[0]["partition_id"] == second.partition_id
    assert (found[0]["rows"], found[0]["until"], found[0]["obstacle"]) == (5, None, None)
    some = admin.ask("/admin/retired.json?replaced=yes&lines=2&view_set=readings").json()
    assert [each["partition_id"] for each in some["retired"]] == [
        second.partition_id,
        first.partition_id,
    ]
    assert "is held" in some["retired"][1]["obstacle"]
    assert not some["has_more"]
    assert admin.ask("/admin/retired.json?replaced=yes&lines=1").json()["has_more"]

    page = admin.load("/admin/retired")
    action = f"/lake/partitions/{second.partition_id}/restore"
    assert page.all("form", action=action)
    assert f"/lake/partitions/{second.partition_id}" in page.links
    reader.load("/admin/retired", 403)
    told = admin.send_and_see(action)
    assert "Restored, as this" in told.text
    assert sum(e.num_rows for e in lake.partitions.list_partitions("readings")) == 16 + 2 + 5
    (again,) = admin.ask("/admin/retired.json?lines=1").json()["retired"]
    assert again["partition_id"] == second.partition_id
    assert "was restored already" in again["obstacle"]
    page = admin.load("/admin/retired")
    assert not page.all("form", action=action)
    assert admin.send(action).status == 409
    for bad in ("lines=0", "replaced=no", "view_set=a.b.c"):
        page = see(admin.ask(f"/admin/retired?{bad}"), 400)
        assert second.partition_id in page.html, "the page is shown without it"
    assert admin.ask("/admin/retired?view_set=no.such").status == 404
    lake.tables.create_database("home")
    draft = {"time": {"type": "datetime", "time": True}, "bpm": "int"}
    lake.tables.create_table("home", "pulse", draft)
    lake.tables.insert("home", "pulse", [{"time": "2026-01-01T00:00:00Z", "bpm": 60}])
    told = admin.ask("/admin.json?view_set=home.pulse").json()["journal"]
    assert {each["view_set"] for each in told} == {"home.pulse"}
    name = lake.tables.definitions.get("home", "pulse").stored_as
    (stored,) = lake.partitions.list_partitions(name)
    lake.retirement.retire_partition_by_metadata(
        name,
        stored.instance,
        stored.insert_range.begin,
        stored.insert_range.end,
        confirmed=[name],
    )
    (row,) = admin.ask("/admin/retired.json?view_set=home.pulse").json()["retired"]
    assert (row["name"], row["rows"], row["obstacle"]) == ("home.pulse", 1, None)
    assert admin.ask("/admin/retired.json?view_set=none").json()["retired"] == []
