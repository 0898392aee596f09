"""Kills an operation at its system calls: a program runs under strace, which sends SIGKILL when the
n-th call of a kind is made. For the campaign; `killing` does the judging.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.proof.killing import (
    SCENARIOS,
    Place,
    Places,
    judge,
    operate,
    run_calmly,
)

CALLS = ("fsync", "fdatasync", "pwrite64", "write", "unlink", "mkdir", "ftruncate")
_CALL = re.compile(r"^\d+\s+(\w+)\(", re.M)


def _program(name: str, place: Place) -> list[str]:
    program = [sys.executable, "-m", "tests.proof.straced", "operate", name]
    return [*program, place.catalog, str(place.folder)]


def _count(name: str, place: Place) -> Counter[str]:
    log = place.folder / "strace.log"
    command = ["strace", "-f", "-o", str(log), "-e", f"trace={','.join(CALLS)}"]
    subprocess.run([*command, *_program(name, place)], check=True)
    found = Counter(_CALL.findall(log.read_text()))
    log.unlink()
    return found


def run(name: str, folder: Path, most: int) -> dict[str, Any]:
    """Kill at up to ``most`` calls of each kind, evenly spread; the report that the test judges."""
    scenario, places = SCENARIOS[name], Places("sqlite", "", folder)
    base = places.make(scenario.prepare)
    states, _ = run_calmly(places.copy(base), scenario)
    counts = _count(name, places.copy(base))
    failures, kills = [], 0
    for call, count in counts.items():
        for number in sorted(
            {1 + count * i // most for i in range(most)} & set(range(1, count + 1))
        ):
            place = places.copy(base)
            inject = f"inject={call}:signal=SIGKILL:when={number}"
            command = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]
            done = subprocess.run(
                [*command, *_program(name, place)], capture_output=True, check=False
            )
            kills += done.returncode != 0
            problems = judge(place, scenario, states)
            if problems:
                failures.append({"call": call, "number": number, "problems": problems})
            shutil.rmtree(place.folder)
    return {"counts": counts, "kills": kills, "failures": failures}


def main() -> None:
    """``straced operate SCENARIO CATALOG FOLDER``, or ``straced kill SCENARIO FOLDER MOST``."""
    verb, name = sys.argv[1:3]
    if verb == "operate":
        place = Place(sys.argv[3], Path(sys.argv[4]))
        with place.open() as lake:
            operate(place, lake, SCENARIOS[name])
        return
    sys.stdout.write(json.dumps(run(name, Path(sys.argv[3]), int(sys.argv[4]))))


if __name__ == "__main__":
    main()
