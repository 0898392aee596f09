"""What stands where, in a real browser on a laptop and on a phone. Where no Chromium is installed,
skipped; in CI that fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lakebed.lake import Lake
from lakebed.opening import init_lake
from tests.parts.building import land
from tests.parts.servers import unavailable
from tests.serve.parts import Served
from tests.web import browsing
from tests.web.browsing import SIZES, new_page
from tests.web.parts import showing


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with init_lake(tmp_path_factory.mktemp("layout") / "lake") as lake:
        land(lake, "traces", seed=1, size=20)
        yield lake


@pytest.fixture(scope="module")
def served(lake: Lake) -> Iterator[Served]:
    with showing(lake) as served:
        yield served


@pytest.fixture(scope="module", params=SIZES)
def page(request: pytest.FixtureRequest) -> Iterator[Any]:
    if browsing.CHROMIUM is None:
        unavailable("Chromium", "apt-get install chromium")
    with browsing.chromium() as browser, new_page(browser, request.param) as seen:
        yield seen.page


def test_the_times_of_a_waterfall_are_whole(page: Any, served: Served, lake: Lake) -> None:
    trace = lake.query("SELECT trace_id FROM spans LIMIT 1").to_arrow()["trace_id"][0].as_py()
    name = trace if isinstance(trace, str) else trace.hex()
    page.goto(f"{served.url}/traces/{name}")
    ruler = page.locator(".ruler svg").bounding_box()
    times = [each.bounding_box() for each in page.locator(".ruler text").all()]
    bar = page.locator(".waterfall summary .bar").first.bounding_box()
    assert (ruler["x"], ruler["width"]) == pytest.approx((bar["x"], bar["width"]), abs=1)
    assert times
    for each in times:
        assert ruler["y"] <= each["y"]
        assert each["y"] + each["height"] <= ruler["y"] + ruler["height"]


@pytest.mark.parametrize(("path", "kind"), [("/admin/check", "radio"), ("/admin/keys", "checkbox")])
def test_what_is_ticked_stands_beside_its_words(
    page: Any, served: Served, path: str, kind: str
) -> None:
    page.goto(served.url + path)
    labels = page.locator(f"label.check:has([type={kind}])").all()
    assert labels
    for label in labels:
        box = label.locator("input").bounding_box()
        words = label.locator("strong").bounding_box()
        middles = [each["y"] + each["height"] / 2 for each in (box, words)]
        assert abs(middles[0] - middles[1]) < 5
