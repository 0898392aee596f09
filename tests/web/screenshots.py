"""The pictures in the docs: `make screenshots` fills a lake as the demo does and looks at it in a
real browser.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from lakebed.demo.rings import Fleet, make_table
from lakebed.demo.shop import Shop
from lakebed.lake import Lake
from lakebed.opening import init_lake
from tests.parts.building import build, tick
from tests.serve.parts import Served, serving
from tests.web import browsing

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SECOND_NS = 1_000_000_000
LATENCY = "/measures?name=http.server.request.duration"


def fill(lake: Lake, served: Served) -> None:
    """A shop for twelve seconds, of which the last are not built yet, after a calm half hour."""
    make_table(lake)
    shop, fleet = Shop(served.url, 7), Fleet(served.url, 7)
    now = time.time_ns()
    fleet.send_history(now // 1000, hours=24)
    for place in range(200):
        shop.visit(now - (200 - place) * 9 * SECOND_NS)
    built = None
    for round_number in range(12):
        for _ in range(15):
            shop.visit(time.time_ns() - 6 * SECOND_NS)
        fleet.send_now(time.time_ns() // 1000)
        shop.flush()
        if round_number in (3, 6, 9):
            end = tick(lake) + 1
            for name in ("blocks", "log_entries", "measures", "spans"):
                build(lake, name, built, end)
            built = end
        time.sleep(1)
    shop.close()


def find_failed(served: Served) -> str:
    """A trace in which something went wrong, at the span that did."""
    lines = served.ask("GET", "/logs.json?text=did+not+answer&begin=2h").json()["lines"]
    return f"/traces/{lines[0]['trace_id']}?span={lines[0]['span_id']}"


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        init_lake(Path(folder) / "lake") as lake,
        serving(lake, flight_port=None, otlp_port=None, roles=("ingest", "web")) as served,
        browsing.chromium() as browser,
    ):
        fill(lake, served)
        pages = {
            "lake": ("/lake", "laptop", False),
            "logs": ("/logs?begin=1h", "laptop", False),
            "trace": (find_failed(served), "laptop", True),
            "metrics": (f"{LATENCY}&way=percentiles&begin=20s", "laptop", True),
            "table": ("/tables/fleet/heart_rate?plot=bpm&by=ring&begin=24h", "laptop", False),
            "sql": (
                "/sql?sql=SELECT+service_name,+count(*)+AS+spans,+round(avg(duration_ns)+/+1e6,+1)"
                "+AS+mean_ms%0AFROM+spans%0AGROUP+BY+service_name%0AORDER+BY+mean_ms+DESC",
                "laptop",
                False,
            ),
            "phone-logs": ("/logs?begin=1h", "phone", True),
            "phone-lake": ("/lake", "phone", False),
        }
        for name, (address, size, dark) in pages.items():
            with browsing.new_page(browser, size, dark=dark) as seen:
                seen.page.goto(served.url + address)
                seen.judge()
                seen.page.screenshot(path=IMAGES / f"{name}.png")
            sys.stdout.write(f"docs/images/{name}.png\n")


if __name__ == "__main__":
    main()
