"""Keys are made and revoked by administrators; a secret is shown once and kept nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakebed.access.keys import Role
from lakebed.catalog.records.keys import Key
from lakebed.errors import Unauthenticated
from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.web.pages.keys import plan_warnings
from tests.web.forms import Browser
from tests.web.parts import showing

PATH = "/admin/keys"
MARKUP = "<script>alert(1)</script>"


@pytest.fixture
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with init_lake(tmp_path_factory.mktemp("web") / "lake") as lake:
        yield lake


@pytest.fixture
def admin(lake: Lake) -> Iterator[Browser]:
    made = lake.keys.create("boss", [Role.ADMIN])
    with showing(lake) as served:
        yield Browser(served, {"Authorization": f"Bearer {made.secret}"})


def test_a_new_key_is_shown_once_and_works(admin: Browser, lake: Lake) -> None:
    admin.load(PATH)
    answer = admin.send(PATH, name=MARKUP, read="yes", ingest="yes")
    assert (answer.status, answer.headers["location"]) == (303, PATH)
    assert b"lakebed_" not in answer.body
    shown = admin.ask(PATH)
    assert shown.headers["cache-control"] == "no-store"
    key = lake.keys.list_keys()[-1]
    assert (key.name, key.roles) == (MARKUP, ("ingest", "read"))
    told = shown.body.decode()
    secret = told.split('<code id="secret">')[1].split("</code>")[0]
    assert lake.keys.check(secret).roles == {Role.INGEST, Role.READ}
    assert MARKUP not in told
    page = admin.load(PATH)
    assert MARKUP in page.text
    assert secret not in page.html, "it was shown once"
    assert secret not in str(admin.data(PATH))
    assert key.digest.hex() not in str(admin.data(PATH))
    entry = admin.ask("/admin.json?operation=create+key").json()["journal"][0]
    assert entry["actor"].startswith("key:boss via ")
    assert secret not in str(entry)

    reader = Browser(admin.served, {"Authorization": f"Bearer {secret}"})
    reader.load(PATH, 403)
    reader.word, reader.token = admin.word, admin.token
    assert reader.send(PATH, name="mine", admin="yes").status == 403
    stranger = Browser(admin.served, admin.headers, admin.word, "0" * 64)
    assert stranger.send(PATH, name="mine", admin="yes").status == 403
    assert lake.keys.list_keys()[-1].key_id == key.key_id


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "nobody"}, "a key without a role"),
        ({"name": "nobody", "boss": "yes", "read": "no"}, "a key without a role"),
        ({"name": " ", "read": "yes"}, "is no name for a key"),
        ({"name": "a\nb", "read": "yes"}, "is no name for a key"),
        ({"name": "<b>" * 99, "read": "yes"}, "is no name for a key"),
        ({"read": "yes"}, "is no name for a key"),
    ],
)
def test_bad_input_makes_no_key(
    admin: Browser, lake: Lake, fields: dict[str, str], said: str
) -> None:
    admin.load(PATH)
    before = [each.key_id for each in lake.keys.list_keys()]
    page = admin.send_in_vain(PATH, 400, **fields)
    assert said in page.text
    assert "<b>" not in page.html
    (name,) = page.all("input", name="name")
    assert name["value"] == fields.get("name", ""), "it need not be typed again"
    assert [each.key_id for each in lake.keys.list_keys()] == before


def test_a_key_is_revoked_after_a_question(admin: Browser, lake: Lake) -> None:
    made = lake.keys.create(MARKUP, [Role.READ])
    path = f"{PATH}/{made.key.key_id}/revoke"
    assert path in admin.load(PATH).links
    page = admin.load(path)
    assert f"Revoke the key of {MARKUP}?" in page.text
    assert MARKUP not in page.html
    assert lake.keys.check(made.secret), "a question changes nothing"
    reader = Browser(
        admin.served, {"Authorization": f"Bearer {made.secret}"}, admin.word, admin.token
    )
    assert reader.send(path).status == 403
    told = admin.send_and_see(path)
    assert f"Revoked key {made.key.key_id} of {MARKUP}" in told.text
    assert path not in told.links
    with pytest.raises(Unauthenticated):
        lake.keys.check(made.secret)
    assert admin.send(path).status == 404
    admin.load(path, 404)
    missing = admin.load(f"{PATH}/%3Cb%3E/revoke", 404)
    assert "<b>" not in missing.html
    entry = admin.ask("/admin.json?operation=revoke+key").json()["journal"][0]
    assert entry["actor"].startswith("key:boss via ")


def test_what_ending_a_key_means_is_said_before() -> None:
    def make(name: str, *roles: Role) -> Key:
        return Key(name, name, roles, b"", 1)

    boss, deputy, reader = make("boss", Role.ADMIN), make("x", Role.ADMIN), make("y", Role.READ)
    assert plan_warnings(deputy, [boss, deputy, reader], "boss") == []
    (own,) = plan_warnings(boss, [boss, deputy, reader], "boss")
    assert "your name" in own
    (last,) = plan_warnings(reader, [reader], "boss")
    assert "the last key" in last
    (admins,) = plan_warnings(deputy, [deputy, reader], "boss")
    assert "the last one of the role admin" in admins


def test_the_first_key_is_made_with_a_warning_and_not_by_other_sites(tmp_path: Path) -> None:
    with init_lake(tmp_path / "lake") as lake, showing(lake) as served:
        anybody = Browser(served)
        page = anybody.load(PATH)
        assert "callers without one are locked out" in page.text
        foreign = Browser(served, {"Origin": "https://evil.example"}, anybody.word, anybody.token)
        for path in (PATH, "/admin/sweep", "/admin/check"):
            assert foreign.send(path, name="mine", admin="yes", level="catalog").status == 403
        assert lake.keys.list_keys() == []
        # Without a referrer, browsers send "Origin: null" with forms of our own.
        assert anybody.ask(PATH).headers["referrer-policy"] == "same-origin"
        anybody.headers = {"Origin": served.url}
        refused = anybody.send_in_vain(PATH, 400, name="gateway", ingest="yes")
        assert "the first key needs the role admin" in refused.text
        assert lake.keys.list_keys() == []
        page = anybody.send_and_see(PATH, name="first", admin="yes")
        assert "Made key" in page.text
        secret = page.html.split('<code id="secret">')[1].split("</code>")[0]
        assert lake.keys.check(secret).name == "first"
        assert Browser(served).ask(PATH).status == 303, "others must sign in"
        assert "callers without one are locked out" not in page.text
        (first,) = lake.keys.list_keys()
        warning = anybody.load(f"{PATH}/{first.key_id}/revoke").text
        assert "It is the last key" in warning
