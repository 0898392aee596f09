"""Runs every verb of the installed lakebed once, in an installation that may lack extras.

Runs in the installation under test, with the standard library and lakebed only:

    python every_verb.py FOLDER README.md

Prints one JSON document: the outcome of each verb, and the verbs that were not run.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import traceback
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LAKE = "--lake=shop"
KEY = {"type": "string", "unique": True}
RECORDS = [{"time": "2026-11-16T05:00:00Z", "ring": ring, "bpm": 61} for ring in ("left", "right")]
SCHEMA = {"time": {"type": "datetime", "unique": True}, "ring": KEY, "bpm": "int"}
VIEW = """name = "errors_per_minute"
time_column = "minute"
sql = "SELECT date_trunc('minute', time) AS minute, count(*) AS n FROM log_entries GROUP BY 1"
merge_sql = "SELECT minute, sum(n) AS n FROM errors_per_minute GROUP BY 1"
"""
PAGES = ["/", "/lake", "/logs", "/sql", "/tables", "/tables/home/heart_rate", "/metrics", "/livez"]


def run_verb(arguments: list[str]) -> dict[str, Any]:
    """Run one command line in this process; return its exit code and what it printed."""
    from lakebed.cli.main import run

    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run(arguments)
        except BaseException:  # noqa: BLE001  (a traceback is what this looks for)
            traceback.print_exc()
            code = -1
    printed, errors = (bytes(stream.buffer.getvalue()).decode() for stream in (out, err))  # type: ignore[attr-defined]
    return {"verb": arguments, "code": code, "out": printed, "err": errors}


def list_verbs() -> set[str]:
    """Return every verb of the command line, as typed."""
    import typer

    from lakebed.cli.main import app

    def walk(command: Any, path: str) -> Iterator[str]:
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{path} {name}".strip())
        if not hasattr(command, "commands"):
            yield path

    return set(walk(typer.main.get_command(app), ""))


def write_inputs() -> None:
    """Write the files that the verbs read."""
    Path("records.json").write_text(json.dumps(RECORDS))
    Path("schema.json").write_text(json.dumps(SCHEMA))
    Path("errors.toml").write_text(VIEW)
    folder = Path("old/partition_date=2026-11-16")
    folder.mkdir(parents=True)
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.table({"time": pa.array([1793491200000000], pa.timestamp("us", "UTC")), "bpm": [61]})
    pq.write_table(rows.append_column("ring", pa.array(["left"])), folder / "one.parquet")
    pq.write_table(rows, "rows.parquet")
    import lakebed

    readings = lakebed.ViewSet("readings", 1, rows.schema, "time", ("time",))
    Path("readings.json").write_text(readings.definition())
    samples = [sys.executable, "-m", "lakebed.samples"]
    with Path("requests.jsonl").open("wb") as file:
        subprocess.run(samples, stdout=file, check=True)


def list_command_lines() -> list[list[str]]:
    """Return a command line for each verb, in an order in which each has something to do."""
    lines = """
        init shop
        config
        config --json
        doctor
        land requests.jsonl
        build --plan
        build
        query "SELECT level, count(*) AS n FROM log_entries GROUP BY level"
        query "SELECT count(*) AS n FROM log_entries" --engine spark
        query "SELECT count(*) AS n FROM log_entries" --format csv
        tables create home
        tables create home.heart_rate --schema schema.json
        tables create --propose records.json
        tables insert home.heart_rate records.json
        tables insert home.heart_rate records.json
        query "SELECT ring, avg(bpm) FROM home.heart_rate GROUP BY ring"
        tables list
        tables show home.heart_rate
        tables alter home.heart_rate --add note:string
        tables delete home.heart_rate --where "ring = 'left'" --yes
        tables forget home.heart_rate ring=left
        tables alter home.heart_rate --keep 90000d
        tables expire home.heart_rate
        tables import old home.old --unique ring --unique time --yes
        tables delete home.old --yes
        tables restore home.old
        views list
        views show log_entries
        views define errors.toml
        views register readings.json
        views keep log_entries 30d
        partitions publish readings rows.parquet --begin 2026-11-01T00:00Z --end 2026-11-01T01:00Z
        partitions list
        partitions retire readings --begin 2026-11-01T00Z --end 2026-11-01T02Z --confirm readings -y
        partitions restore PARTITION
        partitions list --retired
        views remove readings --yes
        serve
        keys create gateway --role ingest
        keys list
        keys revoke KEY
        backup create saved
        backup restore saved again
        blocks keep 30d
        blocks retire --expired
        upkeep --once
        sweep
        check
        journal
        leases
        migrate
        tour
        doctor
    """
    import shlex

    return [shlex.split(line) for line in lines.strip().splitlines()]


_WITHOUT_LAKE = ("init", "tour", "backup restore", "tables create --propose")
_NAMES = {"KEY": r"^key (\w+) of", "PARTITION": r"(\w{8}-[\w-]{27})"}
"""Words in command lines that stand for what an earlier command printed."""


def run_verbs() -> Iterator[dict[str, Any]]:
    """Run every command line in turn."""
    values: dict[str, str] = {}
    for arguments in list_command_lines():
        if arguments == ["serve"]:
            yield serve()
            continue
        lake = [] if " ".join(arguments).startswith(_WITHOUT_LAKE) else [LAKE]
        outcome = run_verb([*(values.get(word, word) for word in arguments), *lake])
        for name, pattern in _NAMES.items():
            match = re.search(pattern, outcome["out"] + outcome["err"], re.MULTILINE)
            if match is not None and arguments[0] in ("keys", "partitions"):
                values.setdefault(name, match[1])
        yield outcome


def serve() -> dict[str, Any]:
    """Start a server, ask for its pages and a statement, and stop it."""
    ports = [f"--{name}=0" for name in ("port", "otlp-port", "flight-port")]
    command = [sys.executable, "-m", "lakebed", "serve", LAKE, *ports]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    lines: list[str] = []
    answers: dict[str, int] = {}
    for line in server.stderr:
        lines.append(line)
        address = re.search(r"serving (http://\S+);", line)
        if address is None:
            continue
        for page in PAGES:
            answers[page] = ask(address[1] + page)
        statement = b"SELECT ring, avg(bpm) FROM home.heart_rate GROUP BY ring"
        answers["/v1/query"] = ask(f"{address[1]}/v1/query", statement)
        server.send_signal(signal.SIGTERM)
    code = server.wait()
    return {"verb": ["serve"], "code": code, "out": "", "err": "".join(lines), "answers": answers}


def ask(address: str, body: bytes | None = None) -> int:
    """Return the status of an answer."""
    try:
        with urllib.request.urlopen(address, body) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def main(folder: str, readme: str) -> None:
    """Run everything in a folder and print the report."""
    code = re.search(r"```python\n(.*?)```", Path(readme).read_text(), re.DOTALL)
    assert code is not None
    os.chdir(folder)
    write_inputs()
    example = subprocess.run([sys.executable, "-c", code[1]], capture_output=True, text=True)
    outcomes = list(run_verbs())
    outcomes.append(run_verb(["demo", "--once", "--any-ports"]))
    ran = [" ".join(outcome["verb"]) for outcome in outcomes]
    report = {
        "example": {"code": example.returncode, "out": example.stdout, "err": example.stderr},
        "outcomes": outcomes,
        "not_run": sorted(v for v in list_verbs() if not any(r.startswith(v) for r in ran)),
    }
    sys.stdout.write("\n" + json.dumps(report) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
