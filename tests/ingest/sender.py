"""A process that lands small requests from eight threads until it is killed, and prints the number
of each one once it is acknowledged.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading

from lakebed.opening import open_lake
from tests.ingest.parts import request_of


def main() -> None:
    lake = open_lake(sys.argv[1])
    numbers = itertools.count()

    def send() -> None:
        for number in numbers:
            lake.telemetry.land("logs", request_of(("sender", f"message {number}")))
            os.write(1, f"{number}\n".encode())

    for _ in range(8):
        threading.Thread(target=send).start()


if __name__ == "__main__":
    main()
