"""A real browser, and a lake to look at in it: the demo's shop and rings sent to it, partitions are
in every state, and something among it is full of markup, or has names without an end.
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

from lakebed.catalog.records import blocks, failures
from lakebed.catalog.records.failures import BuildFailure
from lakebed.demo.rings import Fleet, make_table
from lakebed.demo.shop import Shop
from lakebed.lake import Lake
from lakebed.model.time import TimeRange, to_instant
from lakebed.model.view_set import ViewSet
from lakebed.samples.generator import Generator
from tests.parts.building import build, land, tick
from tests.serve.parts import Served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MARKUP = "<img src=x onerror=document.title='broken'>"
LONG = "a_name_that_cannot_be_broken_" * 6
SIZES = {"laptop": (1280, 800), "phone": (390, 844)}
_SECOND_NS = 1_000_000_000
_MARKED = 5
_HOUR_US = 3600 * 1_000_000
_LEAST_CONTRAST = 4.5
"""Of text, as WCAG 2.2 asks for at its level AA."""
_PALE_TEXTS = """() => {
  const read = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => colour.slice(0, 3).map((each) => each / 255)
    .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, place) => sum + each * [0.2126, 0.7152, 0.0722][place], 0);
  const grounds = new Map([[null, [255, 255, 255]]]);
  const ground = (element) => {
    if (!grounds.has(element)) {
      const colour = read(getComputedStyle(element).backgroundColor);
      grounds.set(element, colour[3] === 0 ? ground(element.parentElement) : colour);
    }
    return grounds.get(element);
  };
  const pale = {};
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || element.closest("svg, option, datalist")) continue;
    if (!element.checkVisibility()) continue;
    const [one, other] = [read(getComputedStyle(element).color), ground(element)].map(luminance);
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < LEAST) pale[texts.currentNode.data.trim().slice(0, 40)] = contrast;
  }
  return pale;
}""".replace("LEAST", str(_LEAST_CONTRAST))
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
    size: str
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))

    def judge(self) -> None:
        """Nothing threw, nothing that was shown became part of the page, nothing sticks out, every
        word can be read."""
        page = self.page
        page.wait_for_load_state()  # whoever clicked may be here before the page is
        assert self.complaints == [], (page.url, self.complaints)
        assert "Lakebed" in page.title(), page.url
        assert page.locator("h1").count() == 1, page.url
        wide, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= room, f"{page.url} is {wide} wide, in {room}"
        assert page.evaluate(_PALE_TEXTS) == {}, page.url


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
        yield Seen(context.new_page(), size)
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
    _add_long_names(lake, now)
    make_every_state(lake)
    _fail_a_block(lake)
    lines = shop.sent["log lines"] + _MARKED
    return Truth(shop.sent["spans"], lines, len(fleet.keys), shop.sent["visits"])


def _add_markup(lake: Lake, now: int) -> None:
    hostile = Generator(3, begin_ns=now - 60 * _SECOND_NS).make("logs", _MARKED)
    for scope in (each for sender in hostile.resource_logs for each in sender.scope_logs):
        scope.scope.name = MARKUP
        for record in scope.log_records:
            record.body.string_value = MARKUP
    lake.telemetry.land("logs", hostile.SerializeToString())


def _add_long_names(lake: Lake, now: int) -> None:
    """A service, spans, a metric and a table whose names are as long as they can be."""
    generator = Generator(5, begin_ns=now - 60 * _SECOND_NS)
    traces, metrics = generator.traces(3, services=1), generator.metrics(3, services=1)
    for sender in (*traces.resource_spans, *metrics.resource_metrics):
        for each in sender.resource.attributes:
            each.value.string_value = LONG
    for scope in (each for sender in traces.resource_spans for each in sender.scope_spans):
        for span in scope.spans:
            span.name, span.kind = LONG, span.SPAN_KIND_INTERNAL
            span.attributes.add(key=LONG).value.string_value = LONG
    for group in (each for sender in metrics.resource_metrics for each in sender.scope_metrics):
        for metric in group.metrics:
            metric.name = metric.description = metric.unit = LONG
    lake.telemetry.land("traces", traces.SerializeToString())
    lake.telemetry.land("metrics", metrics.SerializeToString())
    database = table = LONG[:48]
    lake.tables.create_database(database)
    columns = {"time": {"type": "datetime", "unique": True}, LONG[:63]: "string"}
    records = [{"time": "2026-11-16T05:00:00Z", LONG[:63]: LONG}]
    lake.tables.create_table(database, table, columns).insert(records)


def make_every_state(lake: Lake) -> None:
    """A view set with an empty partition, one that took the place of others, incompatible ones, and
    one that is retired."""
    fields = [("time", pa.timestamp("us", "UTC")), ("station", pa.string())]
    begin = to_instant("2026-11-01T00:00:00Z")
    new = [("celsius", pa.float64())]
    for version, more, hours in ((1, [], (0, 1, 2, 4)), (2, new, (0, 1, 2, 3))):
        schema = pa.schema(fields + more)
        lake.views.register(ViewSet("weather", version, schema, "time", ("time",)))
        for hour in hours:
            times = (begin + hour * _HOUR_US, begin + (hour + 1) * _HOUR_US)
            rows = {"time": [times[0]], "station": [MARKUP], "celsius": [8.5]}
            table = pa.table({name: rows[name] for name in schema.names}, schema=schema)
            if (version, hour) != (2, 1):
                made = lake.partitions.publish("weather", *times, table)
            else:
                lake.partitions.publish_completed_empty("weather", *times)
    early = (begin - _HOUR_US, begin)
    first = lake.partitions.publish("weather", *early, table)
    lake.partitions.publish("weather", *early, table, replaces=[first])
    lake.retirement.retire_partition_by_metadata(
        "weather", made.instance, *(made.insert_range.begin, made.insert_range.end),
        made.schema_hash, confirmed=["weather"],
    )  # fmt: skip


def _fail_a_block(lake: Lake) -> None:
    """A block of which it is known that it cannot be decoded."""
    since = tick(lake)
    land(lake, seed=8, size=1)
    definition = lake.partitions.definition("log_entries")
    with lake.catalog.write() as transaction:
        landed = blocks.list_blocks(transaction.connection, TimeRange(since + 1, transaction.tick))
        known = [
            BuildFailure(
                "log_entries", definition.schema_hash, each.block_id, each.insert_time, LONG
            )
            for each in landed
        ]
        failures.insert_many(transaction.connection, known, transaction.tick)
