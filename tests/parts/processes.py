"""Processes of their own without waiting for imports: they are forked from one that did nothing but
import, so that they begin without connections and without threads.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "psycopg",
        "pysqlite3.dbapi2",
        "sqlalchemy.dialects.postgresql.psycopg",
        "sqlalchemy.dialects.sqlite.pysqlite",
        "tests.conftest",
        "tests.proof.killing",
        "tests.tables.crowd",
        "tests.tables.importing.killed_imports",
        "tests.tables.killing",
        "lakebed.query.embedded.engine",
    ]
)


def run_alone(work: Callable[..., Any], log: Path, *arguments: Any) -> Any:
    """What some work returns that is done in a process of its own; its last words if it dies."""
    receive, send = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_work, args=(work, log, send, arguments))
    process.start()
    send.close()
    try:
        result = receive.recv()
    except EOFError:
        process.join()
        raise AssertionError(f"ended with {process.exitcode}: {log.read_text()}") from None
    process.join()
    return result


def _work(work: Callable[..., Any], log: Path, send: Any, arguments: tuple[Any, ...]) -> None:
    with log.open("w") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    send.send(work(*arguments))
