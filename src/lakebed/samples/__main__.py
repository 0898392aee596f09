"""``python -m lakebed.samples [RECORDS] > requests.jsonl``: logs, metrics and traces of the last
minutes, so many records of each, one OTLP request a line.
"""

from __future__ import annotations

import sys
import time

from lakebed.samples.generator import Generator, Kind
from lakebed.samples.otlp_json import to_json

_KINDS: tuple[Kind, ...] = ("logs", "metrics", "traces")
_MINUTES_NS = 10 * 60 * 1_000_000_000


def main(arguments: list[str]) -> int:
    """Write samples to standard output. Return 2 without a number of records."""
    if arguments in (["--help"], ["-h"]):
        sys.stdout.write(
            "Usage: python -m lakebed.samples [RECORDS] > requests.jsonl\n\n"
            "Logs, metrics and traces of the last minutes, so many records of each (100), one\n"
            "OTLP request a line. Land them with: lakebed land requests.jsonl\n"
        )
        return 0
    records = arguments[0] if arguments else "100"
    if len(arguments) > 1 or not records.isascii() or not records.isdigit():
        sys.stderr.write("error: say how many records: python -m lakebed.samples 100\n")
        return 2
    now = time.time_ns()
    generator = Generator(seed=now, begin_ns=now - _MINUTES_NS)
    for kind in _KINDS:
        sys.stdout.buffer.write(to_json(generator.make(kind, int(records))) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
