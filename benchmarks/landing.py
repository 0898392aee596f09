"""How fast requests of 100 log records land from 16 concurrent senders, and how many of them share
a commit; beside the plain way, in which each request is one synced file and one commit of the same
catalog. And what gathering costs a sender that is alone.
"""

from __future__ import annotations

import statistics
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence

from benchmarks.harness import (
    CATALOG_NAMES,
    CATALOGS,
    Places,
    Result,
    median_ms,
    percentile_ms,
    stopwatch,
)
from lakebed.catalog.records import blocks
from lakebed.catalog.records.blocks import Segment
from lakebed.ingest.requests import read_request
from lakebed.lake import Lake
from lakebed.model.block import Block
from lakebed.samples.generator import Generator
from lakebed.storage import layout
from lakebed.storage.objects import put

TITLE = "Landing requests of 100 log records from 16 concurrent senders"
_SENDERS = 16
_RECORDS = 100
_LEAST_SHARED = 8
_LEAST_GAIN = 2.0

Land = Callable[[bytes], object]


class Plainly:
    """One synced file and one commit per request, with no more than that asks for: no name is
    reserved, nothing is journaled."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._known: set[str] = set()

    def land(self, body: bytes) -> None:
        catalog, store = self._lake.catalog, self._lake.store
        new = read_request("logs", body)
        payload = b"".join(block.payload for block in new)
        path = layout.segment_path(0, str(uuid.uuid4()))
        put(store, path, payload)
        with catalog.write(len(new)) as transaction:
            connection, tick = transaction.connection, transaction.tick
            if blocks.find_digests(connection, [block.block_id for block in new]):
                return
            unseen = [block for block in new if block.stream.stream_id not in self._known]
            senders = [block.process for block in unseen], [block.stream for block in unseen]
            blocks.insert_senders(connection, *senders, tick)
            rows, at = [], 0
            for place, block in enumerate(new):
                rows.append(
                    Block(
                        block_id=block.block_id,
                        stream_id=block.stream.stream_id,
                        process_id=block.process.process_id,
                        insert_time=tick - len(new) + 1 + place,
                        begin_time=block.begin_time,
                        end_time=block.end_time,
                        nb_objects=block.nb_objects,
                        encoding=block.encoding,
                        payload_digest=block.payload_digest,
                        segment_path=path,
                        segment_offset=at,
                        payload_size=len(block.payload),
                    )
                )
                at += len(block.payload)
            blocks.insert_segment(connection, Segment(path, len(payload), tick), rows)
        self._known |= {block.stream.stream_id for block in new}


def run(places: Places) -> list[Result]:
    rounds, requests, alone = (1, 64, 10) if places.quick else (5, 800, 100)
    results = []
    for catalog in CATALOGS:
        bodies = Generator(seed=1).stream(
            "logs", requests=rounds * 2 * (requests + alone), size=_RECORDS, services=1
        )
        with places.new_lake(catalog) as grouped, places.new_lake(catalog) as plain:
            results += _measure(catalog, grouped, plain, bodies, (rounds, requests, alone))
    return results


def _measure(
    catalog: str,
    grouped: Lake,
    plain: Lake,
    bodies: Iterator[bytes],
    sizes: tuple[int, int, int],
) -> list[Result]:
    rounds, requests, alone = sizes
    plainly = Plainly(plain)
    ways: dict[str, Land] = {
        "in groups": lambda body: grouped.telemetry.land("logs", body),
        "one by one": plainly.land,
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    lonely: dict[str, list[float]] = {name: [] for name in ways}
    commits = 0
    for _ in range(rounds):
        for name, land in ways.items():  # taking turns, so that noise hits both
            lonely[name] += [
                stopwatch(lambda land=land: land(next(bodies)))  # type: ignore[misc]
                for _ in range(alone)
            ]
            batch = [next(bodies) for _ in range(requests)]
            before = grouped._lander.commits
            rates[name].append(requests / stopwatch(lambda b=batch, w=land: _send_all(b, w)))  # type: ignore[misc]
            commits += grouped._lander.commits - before
    per_commit = rounds * requests / commits
    medians = {name: statistics.median(each) for name, each in rates.items()}
    gain = medians["in groups"] / medians["one by one"]
    return [
        Result(
            f"{CATALOG_NAMES[catalog]}, {name}",
            {
                "requests/s": medians[name],
                "records/s": medians[name] * _RECORDS,
                "requests per commit": per_commit if name == "in groups" else 1.0,
                "x one by one": medians[name] / medians["one by one"],
                "alone median ms": median_ms(lonely[name]),
                "alone p95 ms": percentile_ms(lonely[name], 95),
            },
            {
                f"at least {_LEAST_SHARED} requests per commit": per_commit >= _LEAST_SHARED,
                f"at least {_LEAST_GAIN}x": gain >= _LEAST_GAIN,
            }
            if name == "in groups"
            else {},
        )
        for name in ways
    ]


def _send_all(bodies: Sequence[bytes], land: Land) -> None:
    """Every sender lands its share, one request after another."""

    def send(share: Sequence[bytes]) -> None:
        for body in share:
            land(body)

    senders = [
        threading.Thread(target=send, args=(bodies[number::_SENDERS],))
        for number in range(_SENDERS)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
