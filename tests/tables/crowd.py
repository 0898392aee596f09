"""Processes that insert into one table, or read it all the time, and say what they met."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lakebed.opening import open_lake

DAYS = ("2026-03-01T12:00:00Z", "2026-03-02T12:00:00Z")


def write(
    url: str, writer: int, count: int, acknowledged: Any, ready: Any, start: Any, results: Any
) -> None:
    """Insert numbers, each into two buckets at once; tell how many were acknowledged."""
    try:
        with open_lake(url) as lake:
            table = lake.tables.get("d", "t")
            keyed = bool(table.definition.key)
            ready.release()
            start.wait()
            for number in range(count):
                rows = [
                    {"writer": writer, "number": number, "time": day, "part": part}
                    for part, day in enumerate(DAYS)
                ]
                if keyed:  # and one row that everybody updates
                    rows.append({"writer": -1, "number": 0, "time": DAYS[0], "part": writer})
                table.insert(rows)
                acknowledged[writer] = number + 1
        results.put(None)
    except Exception as error:  # noqa: BLE001  (whatever it is, the test must know)
        results.put(f"{type(error).__name__}: {error}")


def read(url: str, acknowledged: Any, ready: Any, start: Any, stop: Any, results: Any) -> None:
    """Read everything again and again: never less than was acknowledged, never half an insert,
    never a gap, never a row twice."""
    problems: list[str] = []
    reads, before = 0, [0] * len(acknowledged)
    try:
        with open_lake(url) as lake:
            table = lake.tables.get("d", "t")
            ready.release()
            start.wait()
            while not stop.is_set():
                minimums = [max(pair) for pair in zip(before, acknowledged, strict=True)]
                rows = table.query("SELECT * FROM t").to_arrow().to_pylist()
                reads += 1
                before = _judge(rows, minimums, problems)
    except Exception as error:  # noqa: BLE001  (no reader may fail)
        problems.append(f"{type(error).__name__}: {error}")
    results.put((reads, problems[:5]))


def _judge(rows: list[dict[str, Any]], minimums: list[int], problems: list[str]) -> list[int]:
    """Return the number of inserts that were seen, by writer."""
    counts = Counter((row["writer"], row["number"], row["part"]) for row in rows)
    shared = [key for key in counts if key[0] == -1]
    if len(shared) > 1:
        problems.append(f"one key has {len(shared)} rows")
    totals = [0] * len(minimums)
    for (writer, number, part), count in counts.items():
        if writer == -1:
            continue
        if count > 1:
            problems.append(f"{(writer, number, part)} is there {count} times")
        if (writer, number, 1 - part) not in counts:
            problems.append(f"half of insert {(writer, number)}")
        totals[writer] = max(totals[writer], number + 1)
    for writer, (many, few) in enumerate(zip(totals, minimums, strict=True)):
        if many < few:
            problems.append(f"writer {writer} had {few} inserts acknowledged, {many} were seen")
        if any((writer, number, 0) not in counts for number in range(many)):
            problems.append(f"a gap among the inserts of writer {writer}")
    return totals
