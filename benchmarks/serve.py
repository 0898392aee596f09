"""Requests of 1,000 log records from four senders over HTTP, acknowledged when they are durable;
beside an endpoint on the same stack that only reads their bodies.
"""

from __future__ import annotations

import gzip
import http.client
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from benchmarks.bare import bare_server, lakebed_server
from benchmarks.harness import (
    CATALOG_NAMES,
    CATALOGS,
    Places,
    Result,
    median_ms,
    percentile_ms,
    stopwatch,
)
from lakebed.samples.generator import Generator

TITLE = "Requests of 1,000 log records from 4 senders over HTTP, until they are acknowledged"
_SENDERS, _RECORDS = 4, 1000
_BARE = "starlette and uvicorn, reading only"
_HEADERS = {"Content-Type": "application/x-protobuf"}


def run(places: Places) -> list[Result]:
    rounds, requests = (1, 16) if places.quick else (3, 200)
    with ExitStack() as stack:
        ports = {_BARE: stack.enter_context(bare_server("http"))}
        for catalog in CATALOGS:
            lake = stack.enter_context(places.new_lake(catalog))
            server = stack.enter_context(lakebed_server(lake.catalog.url))
            ports[f"Lakebed on {CATALOG_NAMES[catalog]}"] = server[0]
        bodies = Generator(1).stream(
            "logs", requests=2 * (rounds * requests + _SENDERS), size=_RECORDS, services=1
        )
        return _measure(ports, bodies, rounds, requests)


def _measure(
    ports: dict[str, int], bodies: Iterator[bytes], rounds: int, requests: int
) -> list[Result]:
    systems = [(name, zipped) for zipped in (False, True) for name in ports]
    rates: dict[tuple[str, bool], list[float]] = {each: [] for each in systems}
    waits: dict[tuple[str, bool], list[float]] = {each: [] for each in systems}
    sizes: dict[bool, list[float]] = {False: [], True: []}
    for zipped in (False, True):
        warming = _prepare(bodies, _SENDERS, zipped)[0]
        for port in ports.values():
            _send_all(port, warming, zipped)
        for _ in range(rounds):
            batch, size = _prepare(bodies, requests, zipped)
            sizes[zipped].append(size / requests)
            for name, port in ports.items():  # taking turns with the same bodies
                taken: list[float] = []
                lasted = stopwatch(
                    lambda p=port, b=batch, z=zipped, t=taken: _send_all(p, b, z, t)  # type: ignore[misc]
                )
                rates[name, zipped].append(requests / lasted)
                waits[name, zipped] += taken
    results = []
    for name, zipped in systems:
        rate = statistics.median(rates[name, zipped])
        results.append(
            Result(
                f"{name}, {'gzip' if zipped else 'plain'}",
                {
                    "records/s": rate * _RECORDS,
                    "MB/s": rate * statistics.mean(sizes[zipped]) / 1e6,
                    "x bare": rate / statistics.median(rates[_BARE, zipped]),
                    "median ms": median_ms(waits[name, zipped]),
                    "p99 ms": percentile_ms(waits[name, zipped], 99),
                },
            )
        )
    return results


def _prepare(bodies: Iterator[bytes], count: int, zipped: bool) -> tuple[list[bytes], int]:
    """So many bodies as they are sent, and how many bytes they were before they were packed."""
    plain = [next(bodies) for _ in range(count)]
    size = sum(len(each) for each in plain)
    return [gzip.compress(each, 6) for each in plain] if zipped else plain, size


def _send_all(
    port: int, bodies: Sequence[bytes], zipped: bool, taken: list[float] | None = None
) -> None:
    """Every sender sends its share over a connection of its own, one request after another."""
    headers = _HEADERS | ({"Content-Encoding": "gzip"} if zipped else {})
    problems: list[str] = []

    def send(share: Sequence[bytes]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for body in share:
            begun = time.perf_counter()
            connection.request("POST", "/v1/logs", body, headers)
            response = connection.getresponse()
            said = response.read()
            if response.status != 200:
                problems.append(f"{response.status}: {said!r}")
            if taken is not None:
                taken.append(time.perf_counter() - begun)
        connection.close()

    senders = [
        threading.Thread(target=send, args=(bodies[number::_SENDERS],))
        for number in range(_SENDERS)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    if problems:
        raise RuntimeError(f"{len(problems)} requests failed; the first: {problems[0]}")
