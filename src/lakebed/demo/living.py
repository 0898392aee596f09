"""The living demo: a server on an embedded lake, a shop and a fleet of rings that send to it, Spark
that builds, and what to look at. It ends in order, and its folder with it unless it is to be kept.
What the server warns of is among the lake's own logs.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from types import FrameType
from typing import TYPE_CHECKING, TextIO, cast

from rich.console import Console
from rich.table import Table

from lakebed.catalog import clock
from lakebed.demo.rings import DATABASE, TABLE, Fleet, make_table
from lakebed.demo.shop import Shop
from lakebed.demo.terminals import ClosableTerminal, write_nowhere
from lakebed.demo.visits import SERVICES
from lakebed.errors import LakebedError
from lakebed.lake import Lake
from lakebed.model.partition import Partition
from lakebed.model.time import format_instant, to_instant
from lakebed.opening import init_lake, open_lake
from lakebed.serve.server import Listening, Server
from lakebed.storage.layout import CATALOG_FILE
from lakebed.upkeep.upkeep import Upkeep

if TYPE_CHECKING:
    import pyarrow as pa

QUERIES = (
    (
        "which requests are slow",
        "SELECT name, count(*) AS n, round(max(duration_ns) / 1e6) AS slowest_ms, "
        "count(*) FILTER (WHERE status_code = 'error') AS failed "
        "FROM spans WHERE kind = 'server' GROUP BY name ORDER BY slowest_ms DESC LIMIT 5",
    ),
    (
        "what goes wrong, and where",
        "SELECT service_name, severity_text, msg, count(*) AS n FROM log_entries "
        "WHERE severity_number >= 17 GROUP BY ALL ORDER BY n DESC LIMIT 5",
    ),
    (
        "whose heart beats fastest",
        f"SELECT ring, count(*) AS n, min(bpm) AS lowest, max(bpm) AS highest "
        f"FROM {DATABASE}.{TABLE} GROUP BY ring ORDER BY highest DESC LIMIT 5",
    ),
)
_PORTS = (4318, 4317, 50051)
_HISTORY_MINUTES, _VISITS = 30, 600
_VISITS_BETWEEN_MEASURES = 40
"""Two minutes of visits: often enough for a line, and soon sent."""
_HISTORY_HOURS = 24
_BUILT = ("log_entries", "measures", "spans")
_SECOND_NS = 1_000_000_000
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the demo."""

    once: bool = False
    """Run everything through and end."""
    keep: Path | None = None
    """A folder for the lake, which stays; otherwise it is gone at the end."""
    any_ports: bool = False
    seed: int = 7
    started_at: float = field(default_factory=time.monotonic)
    """The start of the command, by the monotonic clock."""


class Ended(Exception):
    """Raised if the user ends the demo before all of it was shown."""


def run(options: DemoOptions) -> bool:
    """Run the demo until it is ended, or once. Return True if every record that was sent is in
    the lake."""
    console = Console(
        file=cast(TextIO, ClosableTerminal(sys.stdout)), highlight=False, soft_wrap=True
    )
    with _lake_folder(options.keep) as folder, _catch_end(folder, options) as end:
        try:
            return _Demo(options, console, end).run(folder)
        except Ended:
            return not options.once  # nothing was compared
        finally:
            if options.keep is None:
                console.print("\nThe lake is gone again.")
            elif (folder / CATALOG_FILE).exists():
                console.print(f"\nThe lake is in {folder}")


@contextmanager
def _catch_end(folder: Path, options: DemoOptions) -> Iterator[threading.Event]:
    """Yield an event that is set by Ctrl-C, SIGTERM and the end of the terminal, unless that is
    to be ignored, as after nohup. A second Ctrl-C or SIGTERM ends the process at once."""
    end = threading.Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        if end.is_set():
            if options.keep is None:
                shutil.rmtree(folder.parent, ignore_errors=True)
            os._exit(_INTERRUPTED)
        end.set()

    def hang_up(_number: int, _frame: FrameType | None) -> None:
        for terminal in (
            sys.__stdout__,
            sys.__stderr__,
        ):  # whoever writes to a terminal that is gone
            if terminal is not None:  # gets an error, in the middle of ending
                write_nowhere(terminal)
        end.set()  # shell and system may both say so: a second one is no hurry

    if threading.current_thread() is not threading.main_thread():
        yield end
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, hang_up)
    try:
        yield end
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _lake_folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep
        return
    folder = Path(tempfile.mkdtemp(prefix="lakebed-demo-"))
    try:
        yield folder / "lake"
    finally:
        shutil.rmtree(folder)


class _Demo:
    def __init__(self, options: DemoOptions, console: Console, end: threading.Event) -> None:
        self._options = options
        self._console = console
        self._end = end

    def run(self, folder: Path) -> bool:
        is_new = not (folder / CATALOG_FILE).exists()
        with init_lake(folder) if is_new else open_lake(folder) as lake:
            make_table(lake)
            self._print_step(f"a lake in {folder}: a catalog in SQLite, a store of Parquet files")
            with self._serving(lake) as (port, flight_port):
                url = f"http://127.0.0.1:{port}"
                with urllib.request.urlopen(f"{url}/lake", timeout=60) as page:  # noqa: S310
                    page.read()
                took = time.monotonic() - self._options.started_at
                self._print_step(
                    f"a server; its first page was there {took:.1f} s after the start: {url}"
                )
                return self._live(lake, url, flight_port)

    @contextmanager
    def _serving(self, lake: Lake) -> Iterator[tuple[int, int]]:
        """Run the server in a thread and yield its ports for HTTP and FlightSQL. A thread, because
        this process tells it when to end."""
        http, otlp, flight = (0, 0, 0) if self._options.any_ports else _find_ports()
        if 0 in (http, otlp, flight) and not self._options.any_ports:
            self._say("Some of the usual ports are taken by another program; free ones are used.")
        listening = Listening(
            port=http, otlp_port=otlp, flight_port=flight, own_telemetry_seconds=15
        )
        server = Server(lake, listening)
        ready: Queue[int] = Queue()
        thread = threading.Thread(target=server.run, args=(ready.put,), name="lakebed-demo-server")
        thread.start()
        try:
            yield ready.get(timeout=60), server.ports["FlightSQL"]
        finally:
            server.stop()
            again = "; Ctrl-C again does not wait" if self._end.is_set() else ""
            self._say(f"ending; what was begun is finished first{again} …")
            thread.join()

    def _live(self, lake: Lake, url: str, flight_port: int) -> bool:
        shop = Shop(url, self._options.seed)
        fleet = Fleet(url, self._options.seed)
        before = _count_telemetry(lake)
        with lake.catalog.read() as connection:
            since = clock.now(connection)
        try:
            self._send_history(shop, fleet)
            self._show_ways(url, flight_port)
            self._run_live(lake, shop, fleet, since)
            if not self._options.once:
                return True
            shop.flush()
            return self._judge(lake, shop, fleet, before)
        finally:
            shop.close()

    def _send_history(self, shop: Shop, fleet: Fleet) -> None:
        now = time.time_ns()
        apart = _HISTORY_MINUTES * 60 * _SECOND_NS // _VISITS
        with self._console.status("the shop serves its customers of the last half hour …"):
            for visit in range(_VISITS):
                self._look_up()
                at = now - (_VISITS - visit) * apart
                if visit % _VISITS_BETWEEN_MEASURES == 0:
                    shop.set_clock(at)
                shop.visit(at)
            shop.set_clock(None)
            shop.flush()
        counts = shop.sent
        self._print_step(
            f"a shop of {len(SERVICES)} services, instrumented with the OpenTelemetry SDK: "
            f"{counts['visits']:,} visits of the last half hour, {counts['spans']:,} spans, "
            f"{counts['log lines']:,} log lines"
        )
        with self._console.status("rings send the heart rates of the last day …"):
            fleet.send_history(now // 1000, _HISTORY_HOURS)
        again = fleet.sent - len(fleet.keys)
        self._print_step(
            f"a fleet of rings: {fleet.sent:,} heart rates of the last day as JSON records, "
            f"{again:,} of them corrections, which replaced the first"
        )

    def _find_built(self, lake: Lake, since: int) -> list[Partition]:
        """Return the partitions that Spark has built since a tick, once there is one of each view
        set."""
        (build,) = (s for d, s in Upkeep(lake).list_duties() if d.name == "build")
        if build.error is not None:
            raise LakebedError(f"Spark could not build: {build.error}")
        new_partitions = [
            partition
            for partition in lake.partitions.list_partitions()
            if partition.view_set in _BUILT and partition.published_at > since
        ]
        return (
            new_partitions
            if {partition.view_set for partition in new_partitions} == {*_BUILT}
            else []
        )

    def _show_ways(self, url: str, flight: int) -> None:
        command = sys.argv[0] if sys.argv[0].endswith("lakebed") else "lakebed"
        say = self._console.print
        say(f"\n[bold]Look at it[/]\n  {url}/")
        say("\n[bold]Point your own program at it[/]")
        say(f"  export OTEL_EXPORTER_OTLP_ENDPOINT={url}")
        say("  export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf")
        say("  export OTEL_SERVICE_NAME=my-program")
        say("\n[bold]Three queries to try[/], here or on the page /sql")
        for what, sql in QUERIES:
            say(f"  # {what}\n  {command} query --lake grpc://127.0.0.1:{flight} \\", markup=False)
            say(f'    "{sql}"', markup=False)
        say("")

    def _run_live(self, lake: Lake, shop: Shop, fleet: Fleet, since: int) -> None:
        """Let customers visit and rings send until the demo is ended or, with ``once``, until
        Spark has built."""
        is_built = False
        with self._console.status("Spark starts …") as status:
            while not self._end.wait(1):
                self._serve_one_second(shop, fleet)
                if not is_built and (new_partitions := self._find_built(lake, since)):
                    is_built = True
                    rows = sum(partition.num_rows for partition in new_partitions)
                    self._print_step(
                        f"Spark built {len(new_partitions)} partitions with {rows:,} rows, "
                        "and goes on"
                    )
                    if self._options.once:
                        return
                counts = {**shop.sent, "heart rates": fleet.sent}
                status.update(describe(counts, is_built=is_built))
        if self._options.once:
            raise Ended

    def _serve_one_second(self, shop: Shop, fleet: Fleet) -> None:
        now = time.time_ns()
        for visit in range(3):
            shop.visit(now - (3 - visit) * _SECOND_NS // 3 - 6 * _SECOND_NS)
        fleet.send_now(now // 1000)

    def _judge(self, lake: Lake, shop: Shop, fleet: Fleet, before: Mapping[str, int]) -> bool:
        """Run the example queries, and compare the records in the lake with those sent and those
        that were there before."""
        for what, sql in QUERIES:
            self._console.print(f"[bold]{what}[/]")
            self._console.print(_as_text(lake.query(sql, admin=False).to_arrow()))
            self._console.print()
        stored_counts = {
            what: count - before[what] for what, count in _count_telemetry(lake).items()
        }
        stored_counts["heart rates"] = _count_found(lake, fleet)
        sent = {
            "spans": shop.sent["spans"],
            "log lines": shop.sent["log lines"],
            "heart rates": len(fleet.keys),
        }
        for what, sent_count in sent.items():
            self._console.print(f"{what}: {sent_count:,} sent, {stored_counts[what]:,} in the lake")
        return stored_counts == sent

    def _look_up(self) -> None:
        if self._end.is_set():
            raise Ended

    def _print_step(self, what: str) -> None:
        self._console.print(f"[green]✓[/] {what}")

    def _say(self, what: str) -> None:
        self._console.print(what)


def describe(counts: Mapping[str, int], *, is_built: bool) -> str:
    """Return the progress for a line of a terminal, which cuts off what is too long."""
    spelled = ", ".join(
        f"{counts[what]:,} {what}" for what in ("spans", "log lines", "heart rates")
    )
    return f"Ctrl-C ends it; {spelled}{'' if is_built else '; Spark builds'}"


def _count_telemetry(lake: Lake) -> dict[str, int]:
    """Return the counts of the shop's telemetry in the lake."""
    services = ", ".join(f"'{service}'" for service in SERVICES)
    counts = {}
    for what, table in (("spans", "spans"), ("log lines", "log_entries")):
        sql = f"SELECT count(*) AS n FROM {table} WHERE service_name IN ({services})"
        (counts[what],) = lake.query(sql).to_arrow()["n"].to_pylist()
    return counts


def _count_found(lake: Lake, fleet: Fleet) -> int:
    """Return the number of the fleet's rows that are in the lake."""
    rows = lake.query(f"SELECT ring, time FROM {DATABASE}.{TABLE}").to_arrow().to_pylist()
    return len(
        fleet.keys & {(row["ring"], format_instant(to_instant(row["time"]))) for row in rows}
    )


def _as_text(rows: pa.Table) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2))
    for name in rows.column_names:
        table.add_column(name)
    for row in rows.to_pylist():
        table.add_row(*(str(cell) for cell in row.values()))
    return table


def _find_ports() -> tuple[int, ...]:
    """Return the usual ports, or any free port in place of one that is in use."""
    return tuple(port if _is_free(port) else 0 for port in _PORTS)


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
