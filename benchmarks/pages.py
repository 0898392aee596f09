"""Every web page of the demo's lake, as a browser asks for it, one after the other over one
connection; half of what the shop sent is built.
"""

from __future__ import annotations

import http.client
import json
import time

from benchmarks.bare import lakebed_server
from benchmarks.harness import Places, Result, median_ms, percentile_ms, stopwatch
from lakebed.demo.rings import Fleet, make_table
from lakebed.demo.shop import Shop

TITLE = "Web pages of the demo's lake; target 300 ms"
_TARGET_MS = 300
_SECOND_NS = 1_000_000_000
_SQL = "/sql?sql=SELECT+service_name,count(*)+AS+n+FROM+spans+GROUP+BY+1"


def run(places: Places) -> list[Result]:
    visits, times = (60, 3) if places.quick else (600, 30)
    with (
        places.new_lake("sqlite") as lake,
        lakebed_server(lake.catalog.url, "ingest,query,web") as (port, _flight),
    ):
        make_table(lake)
        shop, fleet = Shop(f"http://127.0.0.1:{port}", 7), Fleet(f"http://127.0.0.1:{port}", 7)
        now = time.time_ns()
        fleet.send_history(now // 1000, hours=24)
        for place in range(visits):
            if place == visits // 2:
                shop.flush()
                lake.pipeline.build()
            shop.visit(now - (visits - place) * 3 * _SECOND_NS)
        shop.close()
        return _measure(port, times)


def _measure(port: int, times: int) -> list[Result]:
    browser = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def get(path: str) -> bytes:
        browser.request("GET", path)
        answer = browser.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {body.decode()}")
        return body

    trace = json.loads(get("/traces.json"))["traces"][0]["trace_id"]
    layers = json.loads(get("/lake.json"))["layers"]
    cells = next(each for each in layers if each["name"] == "spans")["cells"]
    partition = next(each["partition_id"] for each in cells if each["partition_id"])
    paths = {
        "Lake": "/lake",
        "a partition": f"/lake/partitions/{partition}",
        "Logs": "/logs",
        "Logs, searched": "/logs?text=card&level=warn",
        "Traces": "/traces",
        "a trace": f"/traces/{trace}",
        "Metrics": "/measures",
        "percentiles": "/measures?name=http.server.request.duration&way=percentiles",
        "Tables": "/tables",
        "a table, drawn": "/tables/fleet/heart_rate?plot=bpm&by=ring&begin=24h",
        "SQL": _SQL,
        "SQL, every column": "/sql?sql=SELECT+*+FROM+spans",
        "SQL, 500 rows of it": "/sql?sql=SELECT+*+FROM+spans&rows=500",
        "Admin": "/admin",
    }
    results = []
    for name, path in paths.items():
        first = stopwatch(lambda path=path: get(path))  # type: ignore[misc]
        taken = [stopwatch(lambda path=path: get(path)) for _ in range(times)]  # type: ignore[misc]
        middle = median_ms(taken)
        results.append(
            Result(
                name,
                {
                    "first ms": first * 1000,
                    "median ms": middle,
                    "p95 ms": percentile_ms(taken, 95),
                    "KiB": len(get(path)) / 1024,
                },
                {"median ms": middle <= _TARGET_MS},
            )
        )
    browser.close()
    return results
