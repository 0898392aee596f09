"""A lake's life in a minute: the operations on partitions, explained as they happen."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.model.partition import Partition
from lakebed.model.time import format_instant, to_instant
from lakebed.model.view_set import ViewSet
from lakebed.opening import init_lake

if TYPE_CHECKING:
    import pyarrow as pa

_MIDNIGHT = to_instant("2026-11-01T00:00:00Z")
_HOUR = 3600 * 1_000_000
_ROWS = 1000


def run() -> None:
    """Run the tour, with a real lake in a temporary folder."""
    console = Console(highlight=False, width=None if Console().is_terminal else 110)
    with tempfile.TemporaryDirectory(prefix="lakebed-tour-") as folder:
        lake = init_lake(Path(folder) / "weather", grace="0s")
        with lake:
            for title, chapter in _CHAPTERS:
                console.rule(f"[bold]{title}", align="left")
                chapter(lake, console.print)
                console.print()
    console.print("The folder of this tour is gone again. Next: README.md, or lakebed --help")


def _readings(version: int) -> ViewSet:
    import pyarrow as pa

    fields = [
        ("time", pa.timestamp("us", "UTC")),
        ("station", pa.string()),
        ("celsius", pa.float64()),
    ]
    if version > 1:
        fields.append(("humidity", pa.float64()))
    return ViewSet("readings", version, pa.schema(fields), "time", ("station", "time"))


def _rows(hour: int, version: int) -> pa.Table:
    """An hour of measurements from four stations."""
    import pyarrow as pa

    begin = _MIDNIGHT + hour * _HOUR
    step = _HOUR // _ROWS
    columns = {
        "time": [begin + step * i for i in range(_ROWS)],
        "station": [f"station-{i % 4}" for i in range(_ROWS)],
        "celsius": [8.0 + hour + (i % 40) / 10 for i in range(_ROWS)],
        "humidity": [50.0 + i % 20 for i in range(_ROWS)],
    }
    schema = _readings(version).schema
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


Print = Callable[[object], None]


def _create(lake: Lake, tell: Print) -> None:
    lake.views.register(_readings(1))
    tell("A lake is a catalog (SQL, the truth) and a store (Parquet files, the bytes).")
    tell(f"  catalog  {lake.catalog.dialect.describe()}")
    tell("  store    a folder; a bucket works the same")
    tell("A view set says what the rows look like: [bold]readings[/] version 1 was registered.")


def _publish(lake: Lake, tell: Print) -> None:
    for hour in (0, 1, 3):
        lake.partitions.publish(
            "readings", _MIDNIGHT + hour * _HOUR, _MIDNIGHT + (hour + 1) * _HOUR, _rows(hour, 1)
        )
    lake.partitions.publish_completed_empty(
        "readings", _MIDNIGHT + 2 * _HOUR, _MIDNIGHT + 3 * _HOUR
    )
    tell("Four hours were published. In hour 2 nothing was measured: that is a fact of its own, an")
    tell("[bold]empty partition[/], stated as complete. It is a row in the catalog without a file.")
    tell(_table(lake.partitions.list_partitions()))
    with lake.partitions.snapshot("readings") as snapshot:
        tell(f"A snapshot reads {snapshot.read_all('readings').num_rows:,} rows.")


def _evolve(lake: Lake, tell: Print) -> None:
    lake.views.register(_readings(2))
    lake.partitions.publish("readings", _MIDNIGHT, _MIDNIGHT + _HOUR, _rows(0, 2))
    tell(
        "Version 2 adds a column. Partitions of version 1 became [bold]incompatible[/]: queries do"
    )
    tell("not see them any more. Hour 0 was built again, beside its older twin: the schema hash is")
    tell("part of a partition's identity.")
    tell(_incompatible(lake))


def _retire(lake: Lake, tell: Print) -> None:
    plan = lake.retirement.plan_incompatible()
    tell(f"The plan to retire them ({len(plan.partitions)} partitions, {plan.bytes:,} bytes) says:")
    for warning in plan.warnings:
        tell(f"  warning: {warning}")
    tell("So it wants a word more: [bold]--allow-loss[/]. Then:")
    for summary in lake.retirement.retire_incompatible_partitions("readings", allow_loss=True):
        for message in summary.messages:
            tell(f"  {message}")
    tell("Retiring hides; nothing was deleted yet.")


def _restore(lake: Lake, tell: Print) -> None:
    retired = [
        partition
        for partition in lake.partitions.list_partitions(include_retired=True)
        if not partition.is_live and partition.insert_range.begin == _MIDNIGHT + _HOUR
    ]
    restored = lake.retirement.restore(retired[0].partition_id)
    tell(f"Hour 1 was a mistake. Restored as a new row with the same file: {restored.partition_id}")
    tell(_table(lake.partitions.list_partitions()))


def _sweep(lake: Lake, tell: Print) -> None:
    with lake.partitions.snapshot("readings"):
        pass
    lake.leases.beat()
    plan = lake.sweeper.plan()
    tell(
        "A sweep deletes what was retired longer ago than the grace period (none, on this tour) and"
    )
    tell("that no reader's lease protects. First the plan:")
    for file in plan.files:
        tell(f"  delete {file.file_path.rsplit('/', 1)[1]} ({file.file_size:,} bytes)")
    tell(f"  forget {len(plan.empty)} empty partition")
    result = lake.sweeper.run()
    tell(f"Told to, it swept {result.files} files and {result.empty_partitions} empty partition.")


def _check(lake: Lake, tell: Print) -> None:
    report = lake.checker.run(Level.PAGES)
    verdict = "clean" if report.is_clean else "damaged"
    tell(
        f"Every rule, file, footer and page was checked: [bold]{verdict}[/], {report.rows:,} rows."
    )
    for finding in report.findings:
        tell(f"  {finding.severity}: {finding.kind} {finding.subject}: {finding.message}")
    for path in (partition.file_path for partition in lake.partitions.list_partitions("readings")):
        if path:
            footer = lake.partitions.get_footer(path)
            tell(f"The footer of {path.rsplit('/', 1)[1]}: {len(footer):,} bytes in the catalog.")


def _table(partitions: list[Partition]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2))
    for column in ("insert range begins", "schema", "rows", "bytes", "file"):
        table.add_column(column, justify="right" if column in ("rows", "bytes") else "left")
    for partition in partitions:
        table.add_row(
            format_instant(partition.insert_range.begin)[:16],
            partition.schema_hash.hex()[:8],
            f"{partition.num_rows:,}",
            f"{partition.file_size:,}",
            partition.file_path.rsplit("/", 1)[1][:8] + "….parquet"
            if partition.file_path
            else "none: empty",
        )
    return table


def _incompatible(lake: Lake) -> Table:
    return _table(
        [incompatible.partition for incompatible in lake.retirement.list_incompatible_partitions()]
    )


_CHAPTERS = (
    ("1. A lake is made", _create),
    ("2. Partitions are published, an empty one too", _publish),
    ("3. The schema evolves", _evolve),
    ("4. Incompatible partitions are retired", _retire),
    ("5. One is restored", _restore),
    ("6. What is left is swept", _sweep),
    ("7. The lake is checked", _check),
)
