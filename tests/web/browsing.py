"""A real browser, and a lake to look at in it: the demo's shop and rings sent to it, partitions are
in every state, and something among it is full of markup.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
from playwright.sync_api import Browser, Page, sync_playwright

from lakebed.demo.rings import Fleet, make_table
from lakebed.demo.shop import Shop
from lakebed.lake import Lake
from lakebed.model.time import to_instant
from lakebed.model.view_set import ViewSet
from lakebed.samples.generator import Generator
from tests.parts.building import build, tick
from tests.serve.parts import Served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MARKUP = "<img src=x onerror=document.title='broken'>"
SIZES = {"laptop": (1280, 800), "phone": (390, 844)}
_SECOND_NS = 1_000_000_000
_MARKED = 5
_HOUR_US = 3600 * 1_000_000
_IDS = re.compile(r"[0-9a-f]{16,}|[0-9a-f]{8}-[0-9a-f-]{27}")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's, because playwright's own would be loaded from elsewhere. Only root, whom its
    sandbox refuses, goes without it."""
    arguments = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Seen:
    """A page, and everything that it complained about."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))

    def judge(self) -> None:
        """Nothing threw, nothing that was shown became part of the page, nothing sticks out."""
        page = self.page
        assert self.complaints == [], (page.url, self.complaints)
        assert "Lakebed" in page.title(), page.url
        assert page.locator("h1").count() == 1, page.url
        wide, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= room, f"{page.url} is {wide} wide, in {room}"


@contextmanager
def new_page(browser: Browser, size: str, *, dark: bool = False) -> Iterator[Seen]:
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        has_touch=size == "phone",
        color_scheme="dark" if dark else "light",
        device_scale_factor=1,
    )
    try:
        context.set_default_timeout(60_000)
        yield Seen(context.new_page())
    finally:
        context.close()


def kind_of(address: str) -> str:
    """Addresses of one kind differ only in what they name: ``/traces/#?span``."""
    parts = urlsplit(address)
    path = _IDS.sub("#", parts.path)
    return f"{path}?{','.join(sorted(parse_qs(parts.query)))}"


@dataclass(frozen=True, slots=True)
class Truth:
    """What was sent."""

    spans: int
    log_lines: int
    heart_rates: int
    visits: int


def fill(lake: Lake, served: Served, seed: int = 7, visits: int = 150) -> Truth:
    """Let the shop and the rings send, build what they sent, and, among markup, bring partitions
    into every state that there is."""
    make_table(lake)
    shop, fleet = Shop(served.url, seed), Fleet(served.url, seed, rings=4)
    now = time.time_ns()
    for place in range(visits):
        shop.visit(now - (visits - place) * 11 * _SECOND_NS)
    shop.flush()
    fleet.send_history(now // 1000, hours=6)
    first = tick(lake) + 1
    for name in ("blocks", "log_entries", "measures", "spans"):
        build(lake, name, end=first)
    shop.close()
    _add_markup(lake, now)
    make_every_state(lake)
    lines = shop.told["log lines"] + _MARKED
    return Truth(shop.told["spans"], lines, len(fleet.keys), shop.told["visits"])


def _add_markup(lake: Lake, now: int) -> None:
    hostile = Generator(3, begin_ns=now - 60 * _SECOND_NS).make("logs", _MARKED)
    for scope in (each for sender in hostile.resource_logs for each in sender.scope_logs):
        scope.scope.name = MARKUP
        for record in scope.log_records:
            record.body.string_value = MARKUP
    lake.telemetry.land("logs", hostile.SerializeToString())


def make_every_state(lake: Lake) -> None:
    """A view set with an empty partition, incompatible ones, and one that is retired."""
    fields = [("time", pa.timestamp("us", "UTC")), ("station", pa.string())]
    begin = to_instant("2026-11-01T00:00:00Z")
    for version, more in ((1, []), (2, [("celsius", pa.float64())])):
        schema = pa.schema(fields + more)
        lake.views.register(ViewSet("weather", version, schema, "time", ("time",)))
        for hour in range(3):
            times = (begin + hour * _HOUR_US, begin + (hour + 1) * _HOUR_US)
            rows = {"time": [times[0]], "station": [MARKUP], "celsius": [8.5]}
            table = pa.table({name: rows[name] for name in schema.names}, schema=schema)
            if (version, hour) != (2, 1):
                made = lake.partitions.publish("weather", *times, table)
            else:
                lake.partitions.publish_completed_empty("weather", *times)
    lake.retirement.retire_partition_by_metadata(
        "weather", made.instance, *(made.insert_range.begin, made.insert_range.end),
        made.schema_hash,
    )  # fmt: skip
