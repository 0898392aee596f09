"""A fleet of rings on people's fingers that send heart rates to a table over HTTP, as devices
do. Some send a corrected record later, which replaces the first.
"""

from __future__ import annotations

import json
import math
import urllib.request
from collections.abc import Sequence
from random import Random
from typing import Any

from lakebed.lake import Lake
from lakebed.model.time import SECOND, format_instant

DATABASE, TABLE = "fleet", "heart_rate"
_SCHEMA = {
    "time": {"type": "datetime", "unique": True},
    "ring": {"type": "string", "unique": True, "description": "the serial number"},
    "bpm": {"type": "int", "required": True, "min": 20, "max": 250},
    "battery": {"type": "float", "min": 0, "max": 1},
}
_MINUTE = 60 * SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


def make_table(lake: Lake) -> None:
    """Create the rings' table, unless it exists."""
    if DATABASE not in lake.tables.list_databases():
        lake.tables.create_database(DATABASE)
    if TABLE not in {table.name for table in lake.tables.list_tables(DATABASE)}:
        lake.tables.create_table(DATABASE, TABLE, _SCHEMA, bucket="day")


class Fleet:
    """Rings whose wearers come from a seed. ``keys`` are the keys of the rows that must be in
    the table."""

    def __init__(self, url: str, seed: int, rings: int = 12) -> None:
        self.keys: set[tuple[str, str]] = set()
        self.sent = 0
        self._address = f"{url}/v1/tables/{DATABASE}/{TABLE}"
        self._chance = Random(seed)  # noqa: S311
        self._rings = [f"ring-{number:02}" for number in range(1, rings + 1)]
        self._resting = {ring: self._chance.randint(48, 66) for ring in self._rings}

    def send_history(self, now: int, hours: int) -> None:
        """Send a record every five minutes, and corrected ones of every third ring."""
        for index, ring in enumerate(self._rings):
            times = range(now - now % (5 * _MINUTE) - hours * _HOUR, now, 5 * _MINUTE)
            self._send([self._measure(ring, time) for time in times])
            if index % 3 == 0:
                self._send([self._measure(ring, time) for time in times[-12:]])

    def send_now(self, now: int) -> None:
        """Send a record of every ring, and a corrected earlier one."""
        now -= now % SECOND
        self._send([self._measure(ring, now) for ring in self._rings])
        ring, time = self._chance.choice(sorted(self.keys))
        again = {"time": time, "ring": ring, "bpm": self._chance.randint(50, 70), "battery": 0.5}
        self._send([again])

    def _measure(self, ring: str, time: int) -> dict[str, Any]:
        awake = max(0.0, math.sin(math.tau * ((time % _DAY) / _DAY - 0.25)))
        exercise = 60 if self._chance.random() < 0.05 * awake else 0
        bpm = self._resting[ring] + 22 * awake + exercise + self._chance.gauss(0, 3)
        battery = 1 - (time % _DAY) / _DAY * 0.8
        return {
            "time": format_instant(time),
            "ring": ring,
            "bpm": min(max(round(bpm), 30), 220),
            "battery": round(battery, 3),
        }

    def _send(self, records: Sequence[dict[str, Any]]) -> None:
        request = urllib.request.Request(  # noqa: S310
            self._address,
            json.dumps(records).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60):  # noqa: S310
            self.sent += len(records)
        self.keys |= {(record["ring"], record["time"]) for record in records}
