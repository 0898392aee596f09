"""With keys, a browser signs in with one; forms of other sites do nothing."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode

import pytest

from lakebed.access.keys import Role
from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.web.sessions import COOKIE, SECONDS, Sessions
from tests.serve.parts import Answer, Served, serving
from tests.web.parts import see, showing

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with init_lake(tmp_path_factory.mktemp("web") / "lake") as lake:
        lake.keys.create("first", [Role.ADMIN])
        yield lake


@pytest.fixture(scope="module")
def served(lake: Lake) -> Iterator[Served]:
    with showing(lake) as served:
        yield served


def cookie_of(answer: Answer) -> str:
    morsel = SimpleCookie(answer.headers["set-cookie"])[COOKIE]
    assert morsel["httponly"]
    assert morsel["samesite"].lower() == "strict"
    return f"{COOKIE}={morsel.value}"


def sign_in(served: Served, key: str, next_path: str = "/lake") -> Answer:
    form = served.ask("GET", "/sign-in")
    token = see(form).all("input", name="token")[0]["value"]
    body = urlencode({"key": key, "token": token, "next": next_path}).encode()
    return served.ask("POST", "/sign-in", body, FORM | {"Cookie": cookie_of(form)})


def test_a_key_that_reads_opens_the_pages_until_it_is_revoked(served: Served, lake: Lake) -> None:
    away = served.ask("GET", "/lake?begin=1h")
    assert (away.status, away.headers["location"]) == (303, "/sign-in?next=%2Flake%3Fbegin%3D1h")
    assert served.ask("GET", "/lake.json").status == 401
    made = lake.keys.create("<i>reader</i>", [Role.READ])
    answer = sign_in(served, made.secret, "/lake?begin=1h")
    assert (answer.status, answer.headers["location"]) == (303, "/lake?begin=1h")
    signed = {"Cookie": cookie_of(answer)}
    assert made.secret not in signed["Cookie"]
    page = see(served.ask("GET", "/lake", headers=signed))
    assert "<i>reader</i>" in page.text
    assert "<i>" not in page.html
    assert served.ask("GET", "/lake.json", headers=signed).status == 200
    bearer = {"Authorization": f"Bearer {made.secret}"}
    assert served.ask("GET", "/lake.json", headers=bearer).status == 200
    lake.keys.revoke(made.key.key_id)
    assert served.ask("GET", "/lake.json", headers=signed).status == 401
    again = served.ask("GET", "/lake", headers=signed)
    assert (again.status, again.headers["location"]) == (303, "/sign-in?next=%2Flake")
    assert served.ask("GET", "/lake", headers=bearer).status == 401


def test_other_keys_and_other_forms_are_refused(served: Served, lake: Lake) -> None:
    sender = lake.keys.create("sender", [Role.INGEST])
    refused = sign_in(served, sender.secret)
    assert "not for this" in see(refused, 403).text
    assert "not known" in see(sign_in(served, "<b>"), 403).text
    reader = lake.keys.create("reader", [Role.READ])
    body = urlencode({"key": reader.secret, "token": "0" * 64}).encode()
    form = served.ask("GET", "/sign-in")
    forged = served.ask("POST", "/sign-in", body, FORM | {"Cookie": cookie_of(form)})
    assert "set-cookie" not in forged.headers
    see(forged, 403)
    see(served.ask("POST", "/sign-in", body, FORM), 403)
    assert served.ask("POST", "/sign-in", bytes(100_000), FORM).status == 413


@pytest.mark.parametrize("elsewhere", ["//evil.example", "https://evil.example", "/\\evil.example"])
def test_signing_in_leads_nowhere_else(served: Served, lake: Lake, elsewhere: str) -> None:
    key = lake.keys.create("reader", [Role.READ])
    assert sign_in(served, key.secret, elsewhere).headers["location"] == "/lake"


def test_signing_out_ends_the_session(served: Served, lake: Lake) -> None:
    key = lake.keys.create("reader", [Role.READ])
    signed = {"Cookie": cookie_of(sign_in(served, key.secret))}
    token = see(served.ask("GET", "/lake", headers=signed)).all("input", name="token")[0]["value"]
    assert served.ask("POST", "/sign-out", b"token=no", FORM | signed).status == 403
    assert served.ask("GET", "/lake.json", headers=signed).status == 200
    body = urlencode({"token": token}).encode()
    assert served.ask("POST", "/sign-out", body, FORM | signed).status == 303
    assert served.ask("GET", "/lake.json", headers=signed).status == 401


def test_assets_need_no_key_and_nothing_else_is_a_file(served: Served) -> None:
    page = see(served.ask("GET", "/sign-in"))
    for each in [*page.all("link"), *page.all("script")]:
        answer = served.ask("GET", each.get("href") or each.get("src") or "")
        assert answer.status == 200
        assert "immutable" in answer.headers["cache-control"]
    assert served.ask("GET", "/static/..%2fapp.py").status == 404
    assert served.ask("GET", "/static/app.py").status == 404


def test_addresses_of_nothing(served: Served) -> None:
    plain = served.ask("GET", "/nowhere")
    assert plain.status == 404
    assert plain.json()["error"]["message"] == "there is nothing at this address"
    page = see(served.ask("GET", "/<b>nowhere", headers={"Accept": "text/html"}), 404)
    assert "nowhere" in page.text
    assert "<b>" not in page.html


def test_sessions_end_with_their_time() -> None:
    clock = [0.0]
    sessions = Sessions(now=lambda: clock[0])
    word = sessions.begin("key")
    assert sessions.find_key(word) == "key"
    clock[0] = SECONDS
    assert sessions.find_key(word) is None
    assert not sessions.is_token("", sessions.make_token(""))


def test_without_keys_other_sites_get_nothing(tmp_path: Path) -> None:
    with init_lake(tmp_path / "lake") as lake, serving(lake) as served, showing(lake) as pages:
        statement = b"SELECT 1 AS one"
        assert served.post("/v1/query", statement).json() == [{"one": 1}]
        foreign = {"Origin": "https://evil.example"}
        assert served.post("/v1/query", statement, foreign).status == 403
        renamed = {"Host": "evil.example:4318"}
        assert served.post("/v1/query", statement, renamed).status == 403
        see(pages.ask("GET", "/lake", headers=renamed), 403)
        assert pages.ask("GET", "/lake.json", headers=renamed).status == 403
    with init_lake(tmp_path / "open") as lake, showing(lake, open_to_all=True) as pages:
        see(pages.ask("GET", "/lake", headers=renamed))


def test_pages_of_errors_lead_on_like_others(served: Served, lake: Lake) -> None:
    boss = lake.keys.create("boss", [Role.ADMIN])
    reader = lake.keys.create("a reader", [Role.READ])
    for made, role in ((boss, Role.ADMIN), (reader, Role.READ)):
        signed = {"Cookie": cookie_of(sign_in(served, made.secret)), "Accept": "text/html"}
        for path in ("/lake/partitions/none", "/nowhere"):
            page = see(served.ask("GET", path, headers=signed), 404)
            assert page.all("form", action="/sign-out"), path
            assert made.key.name in page.text
            assert ("/admin" in page.links) == (role is Role.ADMIN), path
    page = see(served.ask("GET", "/admin", headers=signed), 403)
    assert page.all("form", action="/sign-out")
    stranger = see(served.ask("GET", "/nowhere", headers={"Accept": "text/html"}), 404)
    assert not stranger.all("form", action="/sign-out")
    assert "/admin" not in stranger.links
