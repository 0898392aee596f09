"""Pages in a real browser, on a laptop and on a phone: every page and every kind of link, the forms
that ask and most that change something, what stands on them compared with what was sent, by mouse
and by keyboard; nothing throws, and nothing that was sent becomes part of a page. Where no Chromium
is installed, skipped; in CI that fails.
"""

from __future__ import annotations

import re
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest

from lakebed.access.keys import Role
from lakebed.errors import Unauthenticated
from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.samples.generator import Generator
from lakebed.web.pages.lake import State
from tests.parts.data import stored_files
from tests.parts.servers import unavailable
from tests.serve.parts import Served, serving
from tests.web import browsing
from tests.web.browsing import SIZES, Seen, Truth, kind_of, new_page

MOST_OF_A_KIND = {"laptop": 2, "phone": 1}
LOOKS_AGAIN_MS = 2_000
METRIC = "/measures?name=http.server.request.duration"
BETWEEN = {"begin": "2h", "end": "1s"}
FORMS: Mapping[str, Mapping[str, str]] = {
    "/lake": BETWEEN,
    "/logs": BETWEEN | {"text": "order", "level": "error", "service": "storefront", "live": "1"},
    "/traces": BETWEEN
    | {"name": "POST", "service": "storefront", "status": "error", "longer": "1ms"},
    "/measures": BETWEEN | {"find": "shop"},
    METRIC: BETWEEN
    | {
        "way": "p99",
        "by": "http.route",
        "service": "storefront",
        "attribute": "http.response.status_code=200",
    },
    "/tables/fleet/heart_rate": BETWEEN
    | {"where": "bpm", "op": "ge", "value": "1", "rows": "20"}
    | {"plot": "bpm", "way": "max", "by": "ring"},
    "/sql": BETWEEN
    | {"sql": "SELECT service_name, count(*) AS n FROM spans GROUP BY 1 ORDER BY 1", "rows": "20"},
    "/admin": {"operation": "publish", "view_set": "spans", "lines": "20"},
    "/admin/retired": {"view_set": "weather", "lines": "20", "replaced": "yes"},
}
"""Pages with a form that asks, and what is filled into it: every field that there is."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with init_lake(tmp_path_factory.mktemp("browser") / "lake") as lake:
        yield lake


@pytest.fixture(scope="module")
def served(lake: Lake) -> Iterator[Served]:
    with serving(lake, flight_port=None, otlp_port=None, roles=("ingest", "web")) as served:
        yield served


@pytest.fixture(scope="module")
def truth(lake: Lake, served: Served) -> Truth:
    return browsing.fill(lake, served)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if browsing.CHROMIUM is None:
        unavailable("Chromium", "apt-get install chromium")
    with browsing.chromium() as browser:
        yield browser


@pytest.fixture(params=SIZES)
def seen(request: pytest.FixtureRequest, browser: Any, truth: Truth) -> Iterator[Seen]:
    """A laptop in the light and a phone in the dark, which see between them all that there is."""
    assert truth.spans
    with new_page(browser, request.param, dark=request.param == "phone") as seen:
        yield seen


def test_every_link_leads_somewhere(seen: Seen, served: Served) -> None:
    """Followed from the first page on; of addresses that differ only in what they name, some."""
    waiting, known = deque([f"{served.url}/"]), {f"{served.url}/"}
    kinds: Counter[str] = Counter()
    while waiting:
        address = waiting.popleft()
        kind = kind_of(address)
        if kinds[kind] == MOST_OF_A_KIND[seen.size]:
            continue
        kinds[kind] += 1
        if any(each in urlsplit(address).path for each in (".json", ".csv", ".parquet")):
            answer = seen.page.request.get(address)
            assert answer.status == 200, (address, answer.text())
            continue
        response = seen.page.goto(address)
        assert response is not None
        assert response.status == 200, address
        seen.judge()
        links = seen.page.eval_on_selector_all(
            "a", "all => all.map(each => each.href.baseVal ?? each.getAttribute('href'))"
        )
        for link in links:
            target = urljoin(address, link).split("#")[0]
            if target.startswith(served.url) and target not in known:
                known.add(target)
                waiting.append(target)
    paths = {kind.split("?")[0] for kind in kinds}
    assert {
        "/lake", "/lake/partitions/#", "/logs", "/traces", "/traces/#", "/traces/#/perfetto.json",
        "/measures", "/tables", "/tables/fleet/heart_rate", "/sql", "/admin", "/lake.json",
    } <= paths  # fmt: skip


@pytest.mark.parametrize("path", FORMS)
def test_every_form_asks_for_what_it_says(seen: Seen, served: Served, path: str) -> None:
    """Each is filled in and sent, and the address says what was asked for."""
    seen.page.goto(served.url + path)
    form = seen.page.locator("main form[method=get]")
    assert form.count() == 1
    for each in form.locator("details > summary").all():
        each.click()
    found = form.locator("[name]:visible")
    names = set(found.evaluate_all("all => all.map(each => each.name)"))
    assert names == FORMS[path].keys()
    for name, value in FORMS[path].items():
        _fill_in(form.locator(f"[name={name}]:visible"), value)
    with seen.page.expect_navigation():
        form.locator("button").first.click()
    assert seen.page.get_by_role("alert").count() == 0
    seen.judge()
    asked = seen.page.evaluate("Object.fromEntries(new URL(location).searchParams)")
    assert FORMS[path].items() <= asked.items()
    again = seen.page.locator("main form[method=get] [name]")
    shown = again.evaluate_all(
        """all => all.filter(each => each.type != "checkbox" || each.checked)
            .map(each => [each.name, each.value])"""
    )
    assert FORMS[path].items() <= {tuple(each) for each in shown}


def _fill_in(fields: Any, value: str) -> None:
    """Fill in the field; of several of one name, that which offers the value."""
    if fields.first.evaluate("each => each.tagName") == "SELECT":
        fields.filter(has=fields.page.locator(f'[value="{value}"]')).select_option(value)
    elif fields.first.get_attribute("type") == "checkbox":
        assert fields.get_attribute("value") == value
        if fields.get_attribute("name") == "live":  # which begins at once
            with fields.page.expect_navigation():
                fields.check()
        else:
            fields.check()
    else:
        fields.fill(value)


def test_the_map_shows_every_state(seen: Seen, served: Served) -> None:
    shown: set[str] = set()
    for address in ("/lake?begin=2026-10-31T23:00:00Z&end=2026-11-01T05:00:00Z", "/lake"):
        seen.page.goto(served.url + address)
        cells = seen.page.locator(".map rect:not(.ground)")
        shown.update(cells.evaluate_all("all => all.map(each => each.getAttribute('class'))"))
    assert shown == {f"s-{state.replace(' ', '-')}" for state in State}
    seen.page.get_by_text("Why blocks failed").click()
    assert seen.page.get_by_text(browsing.LONG).is_visible()
    seen.judge()


def test_numbers_are_what_was_sent(seen: Seen, served: Served, truth: Truth) -> None:
    page = seen.page
    page.goto(f"{served.url}/logs?begin=2h")
    assert page.locator("#found strong").first.inner_text() == f"{truth.log_lines:,}"
    page.goto(f"{served.url}/lake")
    spans = page.locator("section, article").filter(has_text="spans").first
    assert f"{truth.spans:,}" in spans.inner_text()
    page.goto(f"{served.url}/tables/fleet/heart_rate")
    assert f"{truth.heart_rates:,}" in page.locator("main").inner_text()
    sql = "SELECT count(*) AS n FROM spans WHERE parent_span_id IS NULL AND kind = 'server'"
    page.goto(f"{served.url}/sql?sql={sql}")
    assert page.locator(".scroll table tbody td").first.inner_text() == f"{truth.visits}"
    seen.judge()


def test_what_was_sent_stays_text(seen: Seen, served: Served) -> None:
    seen.page.goto(f"{served.url}/logs?text=onerror")
    assert seen.page.get_by_text(browsing.MARKUP).count() >= 5
    assert seen.page.locator("main img").count() == 0
    seen.judge()


def test_from_a_line_to_its_trace(seen: Seen, served: Served) -> None:
    """What went wrong is found, its trace opened, its span unfolded, and its logs are beside it."""
    page = seen.page
    page.goto(f"{served.url}/logs?begin=2h&text=did+not+answer")
    page.locator("a.trace").first.click()
    page.wait_for_url("**/traces/**")
    opened = page.locator("details[open]").first
    assert "charge card" in opened.inner_text()
    assert "did not answer" in opened.inner_text()
    assert "exception" in opened.inner_text()
    seen.judge()


def test_nothing_of_a_trace_is_cut_off(seen: Seen, served: Served) -> None:
    """Neither a figure of the list nor the word that says that a span failed."""
    page = seen.page
    page.goto(f"{served.url}/traces?begin=2h&status=error")
    _require_whole(page.locator(".rows tbody tr").first.locator("td:visible"))
    page.locator("td.what a").first.click()
    page.wait_for_url("**/traces/*")
    _require_whole(page.locator(".waterfall summary .level"))


def _require_whole(elements: Any) -> None:
    """Each is on top of everything else down to its last pixel."""
    assert elements.count()
    for each in elements.all():
        assert each.evaluate(
            """each => {
              const box = each.getBoundingClientRect();
              const top = document.elementFromPoint(box.right - 1, box.bottom - 1);
              return box.left >= 0 && each.contains(top);
            }"""
        ), each.inner_text()


def test_a_plan_keeps_its_lines(seen: Seen, served: Served) -> None:
    seen.page.goto(f"{served.url}/sql?sql=EXPLAIN SELECT count(*) FROM spans")
    plan = seen.page.locator(".scroll table tbody td").nth(1).inner_text()
    assert re.search(r"^Projection:.*\n +Aggregate:", plan)
    seen.judge()


def test_the_keyboard_is_enough(seen: Seen, served: Served) -> None:
    page = seen.page
    page.goto(f"{served.url}/logs")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id == 'main'")
    page.keyboard.press("Tab")
    page.keyboard.type("order")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert "text=order" in page.url
    page.goto(f"{served.url}/sql")
    page.locator("textarea").fill("SELECT 40 + 2 AS answer")
    with page.expect_navigation():
        page.keyboard.press("Control+Enter")
    assert page.locator(".scroll table tbody td").first.inner_text() == "42"
    seen.judge()


def _land_line(lake: Lake, line: str) -> None:
    request = Generator(4, begin_ns=time.time_ns() - 10**9).make("logs", 1)
    for sender in request.resource_logs:
        for record in (each for scope in sender.scope_logs for each in scope.log_records):
            record.body.string_value = line
    lake.telemetry.land("logs", request.SerializeToString())


def test_the_live_tail_shows_what_lands(browser: Any, tmp_path: Path) -> None:
    """What was opened stays open, and if nothing new can be had, it says so."""
    with (
        init_lake(tmp_path / "lake") as lake,
        serving(lake, flight_port=None, otlp_port=None, roles=("web",)) as served,
        new_page(browser, "laptop") as seen,
    ):
        page = seen.page
        page.clock.install()  # so that it looks again when it is told to
        page.goto(f"{served.url}/logs?begin=1h&live=1")
        _land_line(lake, "the first line")
        page.clock.fast_forward(LOOKS_AGAIN_MS)
        page.get_by_text("the first line").click()
        _land_line(lake, "the second line")
        page.clock.fast_forward(LOOKS_AGAIN_MS)
        page.get_by_text("the second line").wait_for()
        opened = page.locator("#found details[open]")
        assert opened.count() == 1
        assert "the first line" in opened.inner_text()
        assert "the first line" in page.evaluate("document.activeElement.innerText")
        assert not page.locator("#not-live").is_visible()
        seen.judge()

        page.route("**/logs.json*", lambda route: route.abort())
        page.clock.fast_forward(LOOKS_AGAIN_MS)
        page.get_by_text("not live: the server cannot be reached").wait_for()
        page.unroute("**/logs.json*")
        page.clock.fast_forward(LOOKS_AGAIN_MS)
        page.locator("#not-live").wait_for(state="hidden")


def test_administrators_do_what_pages_offer(browser: Any, tmp_path: Path) -> None:
    """Retire what queries cannot see, restore, check, sweep, make a key: with a thumb."""
    with (
        init_lake(tmp_path / "lake", grace="0s") as lake,
        serving(lake, flight_port=None, otlp_port=None, roles=("web",)) as served,
        new_page(browser, "phone") as seen,
    ):
        browsing.make_every_state(lake)
        page = seen.page
        page.goto(f"{served.url}/admin")
        page.locator("a[href='/admin/incompatible/weather']").click()
        page.locator("[name=allow_loss]").check()
        if page.locator("[name=confirm]").count():
            page.locator("[name=confirm]").fill("weather")
        page.get_by_role("button", name="Retire").click()
        page.get_by_role("status").wait_for()
        assert lake.retirement.list_incompatible_partitions() == []

        page.goto(f"{served.url}/admin/retired")
        live = len(lake.partitions.list_partitions())
        page.get_by_role("button", name="Restore").first.click()
        page.get_by_role("status").wait_for()
        assert len(lake.partitions.list_partitions()) == live + 1

        page.goto(f"{served.url}/admin/check")
        page.get_by_role("button", name="Check now").click()
        page.get_by_text("Nothing was damaged.").wait_for()

        lake.leases.beat()  # this process read before what was retired
        before = len(stored_files(lake))
        page.goto(f"{served.url}/admin/sweep")
        page.get_by_role("button", name="Sweep").click()
        page.get_by_role("status").wait_for()
        assert len(stored_files(lake)) < before

        one = next(each for each in lake.partitions.list_partitions("weather") if each.num_rows)
        page.goto(f"{served.url}/lake/partitions/{one.partition_id}")
        page.get_by_role("link", name="Retire it").click()
        page.locator("[name=confirm]").fill("weather")
        page.get_by_role("button", name="Retire it").click()
        page.get_by_role("status").wait_for()
        assert one.partition_id not in {
            each.partition_id for each in lake.partitions.list_partitions("weather")
        }
        page.get_by_role("button", name="Restore it").click()
        page.get_by_text("Restored").wait_for()

        page.goto(f"{served.url}/admin/keys")
        page.locator("[name=name]").fill(browsing.MARKUP)
        page.locator("[name=admin]").check()  # which the first key needs
        page.get_by_role("button", name="Make it").click()
        secret = page.locator("#secret").inner_text()
        assert lake.keys.check(secret).name == browsing.MARKUP
        page.reload()
        assert secret not in page.content()
        seen.judge()


def test_whoever_has_a_key_signs_in_and_out(browser: Any, tmp_path: Path) -> None:
    with init_lake(tmp_path / "lake") as lake:
        boss = lake.keys.create("boss", [Role.ADMIN])
        other = lake.keys.create(browsing.LONG[:100], [Role.READ])
        with (
            serving(lake, flight_port=None, otlp_port=None, roles=("web",)) as served,
            new_page(browser, "phone") as seen,
        ):
            page = seen.page
            page.goto(f"{served.url}/logs?begin=2h")
            for key, leads_to in (("wrong", "**/sign-in"), (boss.secret, "**/logs?begin=2h")):
                page.locator("[name=key]").fill(key)
                page.get_by_role("button", name="Sign in").click()
                page.wait_for_url(leads_to)
            seen.complaints.clear()  # the browser's own word for a refusal
            seen.judge()

            page.goto(f"{served.url}/admin/keys")
            seen.judge()
            page.locator(f"a[href='/admin/keys/{other.key.key_id}/revoke']").click()
            seen.judge()
            page.get_by_role("button", name="Revoke it").click()
            page.get_by_role("status").wait_for()
            with pytest.raises(Unauthenticated):
                lake.keys.check(other.secret)

            page.get_by_role("button", name="Sign out").click()
            page.wait_for_url("**/sign-in")
            page.goto(f"{served.url}/lake")
            assert "/sign-in" in page.url
            seen.judge()
