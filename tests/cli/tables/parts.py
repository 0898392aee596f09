"""A table of two devices, and its rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lakebed.opening import open_lake
from lakebed.settings import Settings

SCHEMA = {
    "time": {"type": "datetime", "unit": "ms"},
    "device": {"type": "string", "unique": True},
    "bpm": {"type": "int", "min": 20, "max": 250, "required": True},
    "tags": "string[]",
    "worn": "bool",
}
RING = {"time": "2026-11-16T05:00:00Z", "device": "ring-7", "bpm": 60, "worn": True}
WATCH = {"time": "2026-11-15T05:00:00Z", "device": "watch-1", "bpm": 70}


def write(name: str, value: Any) -> str:
    Path(name).write_text(value if isinstance(value, str) else json.dumps(value))
    return name


def rows_of(table: str = "home.pulse") -> list[tuple[str, int]]:
    with open_lake("lake", settings=Settings()) as lake:
        found = lake.query(f"SELECT device, bpm FROM {table} ORDER BY 1, 2").to_arrow()
    return [(each["device"], each["bpm"]) for each in found.to_pylist()]


UNCHANGED = [("ring-7", 60), ("watch-1", 70)]
