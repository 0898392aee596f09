"""How fast landed OTLP becomes Arrow on one core: all columns, beside OpenTelemetry's own classes
and Python loops over the same payloads. The results are compared before anything is timed.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from benchmarks import otlp_loops
from benchmarks.harness import EPOCH, Figure, Places, Result
from lakebed.decode import logs, metrics, spans
from lakebed.decode.blocks import Decoded, LandedBlock
from lakebed.samples.generator import Generator
from lakebed.samples.otlp_json import to_json

TITLE = "OTLP payloads to Arrow tables, records per second of one core"
_LEAST_LOGS = 400_000
_SEED = 7

Decode = Callable[[Sequence[LandedBlock]], Decoded]
SIGNALS: dict[str, tuple[Decode, Callable[[Sequence[LandedBlock]], pa.Table]]] = {
    "logs": (logs.decode, otlp_loops.decode_logs),
    "metrics": (metrics.decode, otlp_loops.decode_metrics),
    "traces": (spans.decode, otlp_loops.decode_spans),
}


def run(places: Places) -> list[Result]:
    total, times = (2_000, 2) if places.quick else (40_000, 15)
    results = []
    for signal in SIGNALS:
        for size in (100, 20_000):
            landed = _blocks(signal, max(1, total // size), min(size, total))
            results += _compare(signal, landed, times)
    results.append(_json("logs", total // 4, times))
    return results


def _blocks(signal: Any, requests: int, size: int) -> list[LandedBlock]:
    stream = Generator(_SEED).stream(signal, requests=requests, size=size, services=1)
    return [_block(body, f"otlp/{signal}+protobuf", number) for number, body in enumerate(stream)]


def _block(payload: bytes, encoding: str, number: int) -> LandedBlock:
    name = f"{number:08}-0000-5000-8000-000000000000"
    return LandedBlock(name, name, name, EPOCH + number, encoding, payload)


def _compare(signal: str, landed: list[LandedBlock], times: int) -> list[Result]:
    decode, loops = SIGNALS[signal]
    decoded, expected = decode(landed), loops(landed)
    rows = expected.num_rows
    if decoded.failures or repr(decoded.table.slice(0, 500).to_pylist()) != repr(
        expected.slice(0, 500).to_pylist()
    ):
        raise AssertionError(f"{signal} are not decoded as OpenTelemetry does")
    sizes = {
        "records a block": rows // len(landed),
        "bytes a record": sum(len(block.payload) for block in landed) / rows,
        "Arrow bytes": decoded.table.nbytes / rows,
    }
    del decoded, expected
    ours = theirs = float("inf")
    for number in range(times):
        ours = min(ours, _seconds(lambda: decode(landed)))
        if number < 3:
            theirs = min(theirs, _seconds(lambda: loops(landed)))
    figures: dict[str, Figure] = {
        **sizes,
        "records/s": int(rows / ours),
        "× loops": theirs / ours,
        "slow way": f"{decode(landed).fallbacks} of {len(landed)}",
    }
    targets = {f"{_LEAST_LOGS:,} records/s": rows / ours >= _LEAST_LOGS} if signal == "logs" else {}
    loop_figures: dict[str, Figure] = {**sizes, "records/s": int(rows / theirs), "× loops": 1.0}
    return [
        Result(f"{signal}, lakebed.decode", figures, targets),
        Result(f"{signal}, opentelemetry-proto and loops", loop_figures),
    ]


def _json(signal: Any, total: int, times: int) -> Result:
    made = [Generator(_SEED + n).make(signal, 100, services=1) for n in range(total // 100)]
    landed = [
        _block(to_json(request.resource_logs[0]), f"otlp/{signal}+json", number)
        for number, request in enumerate(made)
    ]
    decode, _ = SIGNALS[signal]
    decoded = decode(landed)
    rows = decoded.table.num_rows
    ours = min(_seconds(lambda: decode(landed)) for _ in range(times))
    figures: dict[str, Figure] = {
        "records a block": rows // len(landed),
        "bytes a record": sum(len(block.payload) for block in landed) / rows,
        "Arrow bytes": decoded.table.nbytes / rows,
        "records/s": int(rows / ours),
        "slow way": f"{decoded.fallbacks} of {len(landed)}",
    }
    return Result(f"{signal} as JSON, lakebed.decode", figures)


def _seconds(work: Callable[[], object]) -> float:
    """Processor time, so that neighbours on the machine count as little as possible."""
    gc.collect()
    before = time.process_time()
    work()
    return time.process_time() - before
