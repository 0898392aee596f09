"""What administrators see and do: only they, only with a form of ours, and the journal says who."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookies import SimpleCookie
from urllib.parse import urlencode

import pytest

from lakebed.access.keys import Role
from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.upkeep.upkeep import Upkeep
from lakebed.web.notes import SECONDS, FormResult, Notes
from lakebed.web.sessions import COOKIE
from tests.parts.building import build, land, tick
from tests.serve.parts import Served
from tests.web.parts import see, showing

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
MARKUP = "<b>boss</b>"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with init_lake(tmp_path_factory.mktemp("web") / "lake") as lake:
        first = tick(lake)
        land(lake, "logs", size=20)
        second = tick(lake) + 1
        land(lake, "logs", seed=2, size=30)
        build(lake, "log_entries", first, second)
        build(lake, "log_entries", second, tick(lake) + 1)
        Upkeep(lake).run_due("sweep")
        yield lake


@pytest.fixture(scope="module")
def keys(lake: Lake) -> dict[str, dict[str, str]]:
    """Headers of an administrator and of a reader."""
    made = {
        "admin": lake.keys.create(MARKUP, [Role.ADMIN]),
        "read": lake.keys.create("reader", [Role.READ]),
    }
    return {name: {"Authorization": f"Bearer {key.secret}"} for name, key in made.items()}


@pytest.fixture(scope="module")
def served(lake: Lake, keys: object) -> Iterator[Served]:
    with showing(lake) as served:
        yield served


def test_the_page_is_what_the_catalog_says(
    served: Served, lake: Lake, keys: dict[str, dict[str, str]]
) -> None:
    data = served.ask("GET", "/admin.json", headers=keys["admin"]).json()
    duties = {each["name"]: each for each in data["duties"]}
    assert (duties["sweep"]["runs"], duties["sweep"]["error"]) == (1, None)
    assert duties["check"]["runs"] == 0
    assert duties["sweep"]["overdue_seconds"] == 0 <= duties["check"]["overdue_seconds"]
    assert data["is_looked_after"]
    assert [each["name"] for each in data["keys"]] == [MARKUP, "reader"]
    published = [each for each in data["journal"] if each["operation"] == "publish"]
    assert sorted(each["rows"] for each in published)[-2:] == [20, 30]
    only = served.ask("GET", "/admin.json?operation=publish&lines=1", headers=keys["admin"]).json()
    assert [each["operation"] for each in only["journal"]] == ["publish"]
    page = see(served.ask("GET", "/admin", headers=keys["admin"]))
    assert MARKUP in page.text
    assert MARKUP not in page.html
    digest = lake.keys.list_keys()[0].digest.hex()
    assert digest not in page.html
    assert "digest" not in str(data)


def test_a_wrong_number_of_lines_is_told_on_the_page(
    served: Served, keys: dict[str, dict[str, str]]
) -> None:
    address = "/admin?operation=publish&lines=%3Cb%3E"
    page = see(served.ask("GET", address, headers=keys["admin"]), 400)
    assert "lines is '<b>'. What helps: use a number" in page.text
    assert page.all("input", name="lines", value="<b>")
    assert page.all("input", name="operation", value="publish")
    assert "Journal" in page.text
    assert "<b>" not in page.html


def test_what_was_done_is_told_once_and_for_a_while() -> None:
    clock = [0.0]
    notes = Notes(now=lambda: clock[0])
    notes.leave("word", FormResult("/there?of=it", "done", "secret"))
    assert notes.take("word", "/elsewhere") is None
    assert notes.take("other", "/there") is None
    assert notes.take("word", "/there") == FormResult("/there?of=it", "done", "secret")
    assert notes.take("word", "/there") is None
    notes.leave("word", FormResult("/there", "done"))
    clock[0] = SECONDS
    assert notes.take("word", "/there") is None


def test_only_administrators_see_it(served: Served, keys: dict[str, dict[str, str]]) -> None:
    see(served.ask("GET", "/admin", headers=keys["read"]), 403)
    assert served.ask("GET", "/admin.json", headers=keys["read"]).status == 403
    assert "/admin" not in see(served.ask("GET", "/lake", headers=keys["read"])).links
    assert "/admin" in see(served.ask("GET", "/lake", headers=keys["admin"])).links


def test_a_partition_is_retired_and_restored_by_form(
    served: Served, lake: Lake, keys: dict[str, dict[str, str]]
) -> None:
    found = lake.partitions.list_partitions("log_entries")
    partition = next(each for each in found if each.num_rows == 30)
    path = f"/lake/partitions/{partition.partition_id}"
    assert f"{path}/retire" not in see(served.ask("GET", path, headers=keys["read"])).links
    plan = served.ask("GET", f"{path}/retire", headers=keys["admin"])
    page = see(plan)
    assert "30 rows" in page.text
    assert "next build makes it again" in page.text
    word = SimpleCookie(plan.headers["set-cookie"])[COOKIE].value
    token = page.all("input", name="token")[0]["value"]
    body = urlencode({"token": token}).encode()
    cookie = FORM | {"Cookie": f"{COOKIE}={word}"}

    for headers in (cookie, cookie | keys["read"], FORM | keys["admin"]):
        refused = served.ask("POST", f"{path}/retire", body, headers)
        assert refused.status in (401, 403)
    forged = served.ask("POST", f"{path}/retire", b"token=0", cookie | keys["admin"])
    assert forged.status == 403
    assert len(lake.partitions.list_partitions("log_entries")) == 2

    done = served.ask("POST", f"{path}/retire", body, cookie | keys["admin"])
    assert (done.status, done.headers["location"]) == (303, path)
    mine = cookie | keys["admin"]
    assert "Retired. It can be" not in see(served.ask("GET", "/admin", headers=mine)).text
    assert "Retired. It can be restored" in see(served.ask("GET", path, headers=mine)).text
    assert "Retired. It can be" not in see(served.ask("GET", path, headers=mine)).text  # once
    assert len(lake.partitions.list_partitions("log_entries")) == 1
    again = served.ask("POST", f"{path}/retire", body, cookie | keys["admin"])
    assert again.status == 404
    told = served.ask("GET", f"{path}.json", headers=keys["admin"]).json()["journal"][0]
    assert told["operation"] == "retire"
    assert told["actor"].startswith(f"key:{MARKUP} via ")

    back = served.ask("POST", f"{path}/restore", body, cookie | keys["admin"])
    assert back.status == 303
    assert back.headers["location"] != path
    live = lake.partitions.list_partitions("log_entries")
    assert sorted(each.num_rows for each in live) == [20, 30]
    assert lake.query("SELECT count(*) AS n FROM log_entries").to_arrow()["n"][0].as_py() == 50
