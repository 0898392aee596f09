"""How commands are run in tests, the lake that they find, and what is left of it."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakebed.model.time import format_instant
from lakebed.model.view_set import ViewSet
from tests.parts.data import HOUR, T0, rows


@dataclass(frozen=True)
class Ran:
    """How one command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line that an error is."""
        assert self.code not in (0, 5), self.out + self.err
        assert self.out == ""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: ")
        assert "unexpected" not in lines[0]
        return lines[0]


Cli = Callable[..., Ran]


def settle(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(source, tmp_path / "weather")
    monkeypatch.setenv("LAKEBED_LAKE", str(tmp_path / "weather"))
    return tmp_path / "weather"


def hours(first: int, behind: int) -> list[str]:
    return [
        "--begin",
        format_instant(T0 + first * HOUR),
        "--end",
        format_instant(T0 + behind * HOUR),
    ]


def rows_file(folder: Path, count: int = 2, version: int = 1) -> Path:
    file = folder / f"rows{version}.parquet"
    pq.write_table(rows(count, version=version), file)
    return file


def register(cli: Cli, folder: Path, view_set: ViewSet) -> Ran:
    file = folder / "definition.json"
    file.write_text(view_set.definition())
    return cli("views", "register", file, "--yes")


def everything(folder: Path) -> dict[str, Any]:
    """All that a lake is: its catalog's rows but for clock and leases, and the bytes it stores."""
    with contextlib.closing(sqlite3.connect(folder / "catalog.sqlite3")) as connection:
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if name not in ("leases", "lake_clock")
        ]
        found: dict[str, Any] = {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()
            for name in tables
        }
    store = folder / "store"
    found["files"] = {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}
    return found


@contextlib.contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    before = everything(folder)
    yield
    assert everything(folder) == before


def listed(cli: Cli, *arguments: object) -> list[dict[str, Any]]:
    ran = cli("partitions", "list", "--json", *arguments)
    assert (ran.code, ran.err) == (0, "")
    return list(ran.json)


def file_of(folder: Path, partition: dict[str, Any]) -> Path:
    return folder / "store" / str(partition["file_path"])


RANGE = hours(5, 6)
RETIRE = ["partitions", "retire", "readings"]
