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
from lakebed.demo.terminals import Outlived, write_nowhere
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
"""Two minutes: often enough for a line, and soon sent."""
_HISTORY_HOURS = 24
_BUILT = ("log_entries", "measures", "spans")
_SECOND_NS = 1_000_000_000
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Wishes:
    """What somebody wants of the demo."""

    once: bool = False
    """Run everything through and end."""
    keep: Path | None = None
    """A folder for the lake, which stays; otherwise it is gone at the end."""
    any_ports: bool = False
    seed: int = 7
    begun: float = field(default_factory=time.monotonic)
    """When it was asked for, by the monotonic clock."""


class Ended(Exception):
    """Somebody wants it to end before it was all there."""


def run(wishes: Wishes) -> bool:
    """Run the demo until it is ended, or once; whether all was found that was sent."""
    console = Console(file=cast(TextIO, Outlived(sys.stdout)), highlight=False, soft_wrap=True)
    with _lake_folder(wishes.keep) as folder, _told_to_end(folder, wishes) as end:
        try:
            return _Demo(wishes, console, end).run(folder)
        except Ended:
            return not wishes.once  # nothing was compared
        finally:
            if wishes.keep is None:
                console.print("\nThe lake is gone again.")
            elif (folder / CATALOG_FILE).exists():
                console.print(f"\nThe lake is in {folder}")


@contextmanager
def _told_to_end(folder: Path, wishes: Wishes) -> Iterator[threading.Event]:
    """Set by Ctrl-C, SIGTERM and the end of its terminal, unless that is to be ignored, as after
    nohup. A second Ctrl-C or SIGTERM does not wait for what is going on."""
    end = threading.Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        if end.is_set():
            if wishes.keep is None:
                shutil.rmtree(folder.parent, ignore_errors=True)
            os._exit(_INTERRUPTED)
        end.set()

    def hang_up(_number: int, _frame: FrameType | None) -> None:
        for each in (sys.__stdout__, sys.__stderr__):  # whoever writes to a terminal that is gone
            if each is not None:  # gets an error, in the middle of ending
                write_nowhere(each)
        end.set()  # shell and system may both say so: a second one is no hurry

    if threading.current_thread() is not threading.main_thread():
        yield end
        return
    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
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
    def __init__(self, wishes: Wishes, console: Console, end: threading.Event) -> None:
        self._wishes = wishes
        self._console = console
        self._end = end

    def run(self, folder: Path) -> bool:
        is_new = not (folder / CATALOG_FILE).exists()
        with init_lake(folder) if is_new else open_lake(folder) as lake:
            make_table(lake)
            self._did(f"a lake in {folder}: a catalog in SQLite, a store of Parquet files")
            with self._serving(lake) as (port, flight_port):
                url = f"http://127.0.0.1:{port}"
                with urllib.request.urlopen(f"{url}/lake", timeout=60) as page:  # noqa: S310
                    page.read()
                took = time.monotonic() - self._wishes.begun
                self._did(f"a server; its first page was there {took:.1f} s after the start: {url}")
                return self._live(lake, url, flight_port)

    @contextmanager
    def _serving(self, lake: Lake) -> Iterator[tuple[int, int]]:
        """The server in a thread, because this one is told when to end; its ports for HTTP and
        FlightSQL."""
        http, otlp, flight = (0, 0, 0) if self._wishes.any_ports else _find_ports()
        if 0 in (http, otlp, flight) and not self._wishes.any_ports:
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
        shop = Shop(url, self._wishes.seed)
        fleet = Fleet(url, self._wishes.seed)
        before = _count_telemetry(lake)
        with lake.catalog.read() as connection:
            since = clock.now(connection)
        try:
            self._send_history(shop, fleet)
            self._show_ways(url, flight_port)
            self._go_on(lake, shop, fleet, since)
            if not self._wishes.once:
                return True
            shop.flush()
            return self._judge(lake, shop, fleet, before)
        finally:
            shop.close()

    def _send_history(self, shop: Shop, fleet: Fleet) -> None:
        now = time.time_ns()
        apart = _HISTORY_MINUTES * 60 * _SECOND_NS // _VISITS
        with self._console.status("the shop serves its customers of the last half hour …"):
            for place in range(_VISITS):
                self._look_up()
                at = now - (_VISITS - place) * apart
                if place % _VISITS_BETWEEN_MEASURES == 0:
                    shop.set_clock(at)
                shop.visit(at)
            shop.set_clock(None)
            shop.flush()
        told = shop.told
        self._did(
            f"a shop of {len(SERVICES)} services, instrumented with the OpenTelemetry SDK: "
            f"{told['visits']:,} visits of the last half hour, {told['spans']:,} spans, "
            f"{told['log lines']:,} log lines"
        )
        with self._console.status("rings send the heart rates of the last day …"):
            fleet.send_history(now // 1000, _HISTORY_HOURS)
        again = fleet.sent - len(fleet.keys)
        self._did(
            f"a fleet of rings: {fleet.sent:,} heart rates of the last day as JSON records, "
            f"{again:,} of them corrections, which replaced the first"
        )

    def _find_built(self, lake: Lake, since: int) -> list[Partition]:
        """What Spark has built since a tick, once it has built something of everything."""
        (build,) = (s for d, s in Upkeep(lake).list_duties() if d.name == "build")
        if build.error is not None:
            raise LakebedError(f"Spark could not build: {build.error}")
        found = [
            each
            for each in lake.partitions.list_partitions()
            if each.view_set in _BUILT and each.published_at > since
        ]
        return found if {each.view_set for each in found} == {*_BUILT} else []

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

    def _go_on(self, lake: Lake, shop: Shop, fleet: Fleet, since: int) -> None:
        """Customers come and rings send, until it is ended, or, if it is for once, until Spark has
        built."""
        is_built = False
        with self._console.status("Spark starts …") as status:
            while not self._end.wait(1):
                self._serve_one_second(shop, fleet)
                if not is_built and (found := self._find_built(lake, since)):
                    is_built = True
                    rows = sum(each.num_rows for each in found)
                    self._did(
                        f"Spark built {len(found)} partitions with {rows:,} rows, and goes on"
                    )
                    if self._wishes.once:
                        return
                told = {**shop.told, "heart rates": fleet.sent}
                status.update(describe(told, is_built=is_built))
        if self._wishes.once:
            raise Ended

    def _serve_one_second(self, shop: Shop, fleet: Fleet) -> None:
        now = time.time_ns()
        for place in range(3):
            shop.visit(now - (3 - place) * _SECOND_NS // 3 - 6 * _SECOND_NS)
        fleet.send_now(now // 1000)

    def _judge(self, lake: Lake, shop: Shop, fleet: Fleet, before: Mapping[str, int]) -> bool:
        """Ask what was asked for above, and whether all that was sent is there, beside what was
        there before."""
        for what, sql in QUERIES:
            self._console.print(f"[bold]{what}[/]")
            self._console.print(_as_text(lake.query(sql, admin=False).to_arrow()))
            self._console.print()
        there = {what: count - before[what] for what, count in _count_telemetry(lake).items()}
        there["heart rates"] = _count_found(lake, fleet)
        sent = {
            "spans": shop.told["spans"],
            "log lines": shop.told["log lines"],
            "heart rates": len(fleet.keys),
        }
        for what, wanted in sent.items():
            self._console.print(f"{what}: {wanted:,} sent, {there[what]:,} in the lake")
        return there == sent

    def _look_up(self) -> None:
        if self._end.is_set():
            raise Ended

    def _did(self, what: str) -> None:
        self._console.print(f"[green]✓[/] {what}")

    def _say(self, what: str) -> None:
        self._console.print(what)


def describe(told: Mapping[str, int], *, is_built: bool) -> str:
    """How it goes, in a line of a terminal: what is too long for it is cut at its end."""
    counts = ", ".join(f"{told[what]:,} {what}" for what in ("spans", "log lines", "heart rates"))
    return f"Ctrl-C ends it; {counts}{'' if is_built else '; Spark builds'}"


def _count_telemetry(lake: Lake) -> dict[str, int]:
    """How much of the shop's is in the lake."""
    services = ", ".join(f"'{each}'" for each in SERVICES)
    counts = {}
    for what, table in (("spans", "spans"), ("log lines", "log_entries")):
        sql = f"SELECT count(*) AS n FROM {table} WHERE service_name IN ({services})"
        (counts[what],) = lake.query(sql).to_arrow()["n"].to_pylist()
    return counts


def _count_found(lake: Lake, fleet: Fleet) -> int:
    """How many of the rows that a fleet should have are there."""
    rows = lake.query(f"SELECT ring, time FROM {DATABASE}.{TABLE}").to_arrow().to_pylist()
    return len(
        fleet.keys & {(row["ring"], format_instant(to_instant(row["time"]))) for row in rows}
    )


def _as_text(rows: pa.Table) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2))
    for name in rows.column_names:
        table.add_column(name)
    for row in rows.to_pylist():
        table.add_row(*(str(each) for each in row.values()))
    return table


def _find_ports() -> tuple[int, ...]:
    """The usual ports, or, for those that somebody else listens on, any."""
    return tuple(port if _is_free(port) else 0 for port in _PORTS)


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
