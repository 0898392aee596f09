"""From acknowledged to visible: records land at a steady 2,000 a second; for some of the requests
the clock runs from the acknowledgement until a statement counts all their records.
"""

from __future__ import annotations

import threading
import time

from benchmarks.harness import (
    CATALOG_NAMES,
    CATALOGS,
    Places,
    Result,
    median_ms,
    percentile_ms,
)
from lakebed.lake import Lake
from lakebed.samples.generator import Generator

TITLE = "Acknowledged to visible, at 2,000 records a second"
_RECORDS, _PER_SECOND = 100, 20
_MOST_MEDIAN_MS, _MOST_P99_MS = 100, 500


def run(places: Places) -> list[Result]:
    seconds = 3 if places.quick else 60
    results = []
    for catalog in CATALOGS:
        with places.new_lake(catalog) as lake:
            results.append(_measure(lake, CATALOG_NAMES[catalog], seconds))
    return results


def _measure(lake: Lake, name: str, seconds: int) -> Result:
    stop = threading.Event()
    sent = [0]
    sender = threading.Thread(target=_send, args=(lake, stop, sent))
    lake.query("SELECT count(*) FROM log_entries").to_arrow()
    sender.start()
    begun = time.perf_counter()
    waits = []
    number = 0
    while time.perf_counter() - begun < seconds:
        number += 1
        waits.append(_wait_for_one(lake, number))
        time.sleep(0.05)
    lasted = time.perf_counter() - begun
    stop.set()
    sender.join()
    median, p99 = median_ms(waits), percentile_ms(waits, 99)
    return Result(
        name,
        {
            "records/s": (sent[0] + number * _RECORDS) / lasted,
            "records in the tail": sent[0] + number * _RECORDS,
            "measured": len(waits),
            "median ms": median,
            "p99 ms": p99,
        },
        {
            f"median ≤ {_MOST_MEDIAN_MS} ms": median <= _MOST_MEDIAN_MS,
            f"p99 ≤ {_MOST_P99_MS} ms": p99 <= _MOST_P99_MS,
        },
    )


def _send(lake: Lake, stop: threading.Event, sent: list[int]) -> None:
    generator = Generator(3)
    due = time.perf_counter()
    while not stop.is_set():
        lake.telemetry.land("logs", generator.logs(_RECORDS).SerializeToString())
        sent[0] += _RECORDS
        due += 1 / _PER_SECOND
        time.sleep(max(0, due - time.perf_counter()))


def _wait_for_one(lake: Lake, number: int) -> float:
    """Land one request with a mark of its own, and ask until all of it is there."""
    mark = f"marked-{number}"
    request = Generator(1000 + number).logs(_RECORDS)
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            for record in scope.log_records:
                record.event_name = mark
    body = request.SerializeToString()
    lake.telemetry.land("logs", body)
    acknowledged = time.perf_counter()
    sql = f"SELECT count(*) AS n FROM log_entries WHERE event_name = '{mark}'"
    while lake.query(sql).to_arrow()["n"][0].as_py() < _RECORDS:
        pass
    return time.perf_counter() - acknowledged
