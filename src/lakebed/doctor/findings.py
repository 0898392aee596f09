"""What facts mean: each check's finding, and what to do about a bad one. Nothing here looks."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lakebed.catalog.health import Health, Software
from lakebed.doctor.facts import (
    CatalogSeen,
    CertificateSeen,
    DiskSeen,
    JavaSeen,
    PortSeen,
    PortState,
    SettingsSeen,
    StoreSeen,
    Trouble,
    WorkersSeen,
)
from lakebed.extras import Extra
from lakebed.model.time import SECOND, format_duration, format_instant

ENOUGH_BYTES = 1 << 30
"""Less free space than this is a finding: a merge alone writes files of hundreds of MiB."""

CLOCK_SLACK_US = 5 * SECOND
RENEW_US = 7 * 24 * 3600 * SECOND
"""A certificate that ends within this time is a finding."""

_UNITS_US = (24 * 3600 * SECOND, 3600 * SECOND, 60 * SECOND, SECOND, 1000)
_ABILITIES = {"extra spark": "build", "extra serve": "serve"}
_REPORT = "repeat what you did with `lakebed --debug …` and report what it prints"


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    BAD = "bad"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: how it ended, what was found, and, if that is bad, what to do."""

    check: str
    status: Status
    found: str
    advice: str | None = None


def _ok(check: str, found: str) -> Finding:
    return Finding(check, Status.OK, found)


def _bad(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Status.BAD, found, advice)


def _skipped(check: str, found: str) -> Finding:
    return Finding(check, Status.SKIPPED, found)


def troubled(check: str, trouble: Trouble, otherwise: str = _REPORT) -> Finding:
    """A check that could not be made; ``otherwise`` is the advice where the trouble has none."""
    return _bad(check, trouble.reason, trouble.hint or otherwise)


def judge_settings(seen: SettingsSeen | Trouble) -> Iterator[Finding]:
    """Settings must be readable; a variable that looks like a misspelled one is one."""
    if isinstance(seen, Trouble):
        yield troubled("settings", seen)
        return
    for problem in seen.problems:
        yield _bad("settings", problem, "correct it; until then its default holds for this report")
    meant = {name: known for name, known in (seen.unknown_variables or {}).items() if known}
    for name, known in meant.items():
        yield _bad("settings", f"{name} is no setting", f"did you mean {known}? rename or unset it")
    if not seen.problems and not meant:
        yield _ok("settings", f"read {seen.file}" if seen.file else "there is no settings file")


def judge_extras(extras: Iterable[Extra]) -> Iterator[Finding]:
    """Yield one finding for each extra: its modules, or what is missing, and its purpose."""
    for extra in extras:
        missing = extra.list_missing()
        if missing:
            yield _skipped(
                f"extra {extra.name}",
                f"{', '.join(missing)} not installed; needed for {extra.purpose}: "
                f"pip install 'lakebed[{extra.name}]'",
            )
        else:
            yield _ok(f"extra {extra.name}", f"installed, for {extra.purpose}")


def list_missing_abilities(findings: Iterable[Finding]) -> list[str]:
    """Return what this installation cannot do because of a missing extra: build, serve."""
    return [
        _ABILITIES[finding.check]
        for finding in findings
        if finding.status is Status.SKIPPED and finding.check in _ABILITIES
    ]


def judge_java(seen: JavaSeen | Trouble | None, *, connect_only: bool = False) -> Finding:
    """Return the finding for the Java that Spark runs on; None if pyspark is not installed.

    ``connect_only``: the installation is for Spark Connect, which needs no Java on this machine.
    """
    if seen is None:
        return _skipped(
            "java", "pyspark is not installed, so nothing is built here (lakebed[spark] has it)"
        )
    if isinstance(seen, Trouble) and connect_only:
        return _skipped("java", f"{seen.reason}; use Spark Connect, with --remote")
    if isinstance(seen, Trouble):
        return troubled("java", seen)
    return _ok("java", f"Java {seen.version} at {seen.home}, for Spark {seen.pyspark}")


def judge_workers(seen: WorkersSeen | Trouble | None, *, installed: bool) -> Finding:
    """Whether Spark's Python workers start; None if it was not tried."""
    if not installed:
        return _skipped("spark workers", "pyspark is not installed")
    if seen is None:
        return _skipped(
            "spark workers", "not tried; `lakebed doctor --spark` does, in some seconds"
        )
    if isinstance(seen, Trouble):
        return troubled(
            "spark workers", seen, "run `lakebed --debug build` and read what Spark says"
        )
    if seen.worker_python != seen.driver_python:
        return _bad(
            "spark workers",
            f"workers run Python {seen.worker_python}, this is {seen.driver_python}",
            "unset PYSPARK_PYTHON, or let it name this Python",
        )
    return _ok("spark workers", f"Spark {seen.spark} ran a job on Python {seen.worker_python}")


def judge_ports(ports: Sequence[PortSeen | Trouble] | None) -> Iterator[Finding]:
    """Ports must be free, or be those of a server of ours that runs already.

    ``ports`` is None if this installation has no server.
    """
    if ports is None:
        yield _skipped("port", "the extra serve is not installed, so no server listens here")
        return
    runs = any(isinstance(each, PortSeen) and each.is_lakebed for each in ports)
    first: dict[str, str] = {}
    for each in ports:
        if isinstance(each, Trouble):
            yield troubled("port", each)
            continue
        check = f"port of {each.what}"
        choose = f"stop what uses it, or choose another with {each.setting}"
        if each.state is PortState.ANY:
            yield _ok(check, f"{each.address}: the system chooses one that is free")
        elif first.setdefault(each.address, each.what) != each.what:
            yield _bad(
                check,
                f"{each.address} is to be that of {first[each.address]} too",
                f"choose another with {each.setting}",
            )
        elif each.state is PortState.FREE:
            yield _ok(check, f"{each.address} is free")
        elif each.state is PortState.REFUSED:
            yield _bad(
                check,
                f"cannot listen on {each.address}: {each.reason}",
                f"choose another with serve_host or {each.setting}",
            )
        elif each.is_lakebed:
            yield _ok(check, f"{each.answer} answers on {each.address}")
        elif runs and each.answer:
            yield _ok(check, f"{each.answer} answers on {each.address}, beside a server of lakebed")
        else:
            who = each.answer or "something that does not say what it is"
            yield _bad(check, f"{each.address} is taken: {who} answers", choose)


def judge_certificate(seen: CertificateSeen | Trouble | None, now_us: int) -> Finding:
    """A certificate must fit its key and not end soon; None if none is configured."""
    if seen is None:
        return _skipped("tls", "no certificate is configured")
    if isinstance(seen, Trouble):
        return troubled("tls", seen, "give PEM files: serve_certificate and serve_private_key")
    left = seen.not_after_us - now_us
    until = f"{seen.certificate} and its key fit; valid until {format_instant(seen.not_after_us)}"
    if left < RENEW_US:
        return _bad("tls", until, "renew it, and start the server again")
    return _ok("tls", until)


def judge_keys(host: str, *, has_keys: bool | None, without_keys: bool) -> Finding:
    """A server that can be reached from elsewhere needs keys, or an explicit word."""
    if has_keys is None:
        return _skipped("keys", "not known: the catalog has them")
    if has_keys and without_keys:
        return _ok("keys", "the lake has keys, and serve_without_keys lets everybody in without")
    if has_keys:
        return _ok("keys", "the lake has keys, callers must show one")
    if _is_loopback(host):
        return _ok("keys", f"the lake has none, and {host} is reached from this machine only")
    if without_keys:
        return _ok("keys", f"the lake has none, and everybody who reaches {host} may come in")
    return _bad(
        "keys",
        f"the lake has no keys, and {host} can be reached from elsewhere: it is not served",
        "make one with: lakebed keys create NAME --role ingest; or set serve_without_keys",
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def judge_disks(disks: Sequence[DiskSeen | Trouble]) -> Iterator[Finding]:
    """There must be space where files are written; folders of one file system are one finding."""
    by_device: dict[int, list[DiskSeen]] = {}
    for each in disks:
        if isinstance(each, Trouble):
            yield troubled("disk", each)
        else:
            by_device.setdefault(each.device, []).append(each)
    for together in by_device.values():
        one = together[0]
        check = f"disk of {', '.join(each.what for each in together)}"
        free = f"{_size(one.free_bytes)} of {_size(one.total_bytes)} free at {one.path}"
        if not one.has_free_files:
            yield _bad(
                check, f"no file can be added at {one.path}", "delete files: it has no inodes left"
            )
        elif one.free_bytes < ENOUGH_BYTES:
            yield _bad(
                check, free, "free some space, or see what may go: lakebed sweep, lakebed blocks"
            )
        else:
            yield _ok(check, free)


def _size(count: int) -> str:
    gib = count / (1 << 30)
    return f"{gib:,.1f} GiB" if gib >= 1 else f"{count / (1 << 20):,.0f} MiB"


def judge_catalog(seen: CatalogSeen | Trouble) -> Finding:
    """The catalog must answer, have this program's shape, and take writes."""
    if isinstance(seen, Trouble):
        return troubled(
            "catalog",
            seen,
            "see that it is whole, that you may read it, and that its disk has space",
        )
    health = seen.health
    what = f"{seen.place} ({health.software})"
    if health.revision is None:
        return _bad("catalog", f"there is no catalog in {what}", "make one with: lakebed init")
    if not health.is_known_revision:
        return _bad(
            "catalog",
            f"{what} is at revision {health.revision}, which this program does not know",
            "it was migrated by a newer lakebed; use that one",
        )
    if health.revision != health.needed_revision:
        return _bad(
            "catalog",
            f"{what} is at revision {health.revision}, this program needs {health.needed_revision}",
            "bring it up to date with: lakebed migrate",
        )
    if seen.trouble is not None:
        return troubled("catalog", seen.trouble, "check who may write it, and who holds it")
    return _ok("catalog", f"{what} answers at revision {health.revision} and can be written")


def judge_sqlite(software: Software | Trouble | None, health: Health | None) -> Finding:
    """Write-ahead logging where the library is safe for it; None if the catalog is no SQLite."""
    if software is None:
        return _skipped("sqlite", "the catalog is on a server")
    if isinstance(software, Trouble):
        return troubled("sqlite", software)
    wanted = "wal" if software.is_safe_for_wal else "delete"
    if health is not None and health.journal_mode not in (None, wanted):
        return _bad(
            "sqlite",
            f"SQLite {software.version} should use journal mode {wanted}, and uses "
            f"{health.journal_mode}",
            "close every process that uses the catalog, and try again",
        )
    if software.is_safe_for_wal:
        return _ok("sqlite", f"SQLite {software.version} with write-ahead logging")
    return _ok(
        "sqlite",
        f"SQLite {software.version} with a rollback journal: safe, and slower than 3.51.3 would be",
    )


def judge_clock(seen: CatalogSeen | Trouble) -> Finding:
    """The clocks of machine and catalog must agree, and ticks must not be in the future."""
    if isinstance(seen, Trouble):
        return _skipped("clock", "not known: the catalog does not answer")
    health = seen.health
    ahead = abs(health.ahead_us)
    if ahead - health.give_or_take_us > CLOCK_SLACK_US:
        direction = "behind" if health.ahead_us > 0 else "ahead of"
        return _bad(
            "clock",
            f"this machine's clock is {_about(ahead)} {direction} the catalog's",
            "set both by NTP: event times of this machine and insert times do not fit each other",
        )
    ticks = health.ticks_ahead_us
    if ticks is not None and ticks > CLOCK_SLACK_US:
        return _bad(
            "clock",
            f"the lake's last tick is {_about(ticks)} ahead of the catalog's clock",
            "set the clock by NTP: until it catches up, insert times are later than they should be",
        )
    if health.journal_mode is not None:
        return _ok("clock", "the catalog's is this machine's; no tick is in the future")
    return _ok("clock", f"within {_about(ahead + health.give_or_take_us)} of the catalog's")


def _about(micros: int) -> str:
    """A duration for people, in its largest unit."""
    unit = next((each for each in _UNITS_US if micros >= each), _UNITS_US[-1])
    return format_duration(max(unit, micros // unit * unit))


def judge_server(address: str, trouble: Trouble | None) -> Finding:
    """A server that stands for the lake must answer and take the key."""
    if trouble is not None:
        return troubled(
            "server",
            trouble,
            "check LAKEBED_KEY, that the server runs, and that the network reaches it",
        )
    return _ok("server", f"{address} answers; what the lake needs is where that server runs")


def judge_store(seen: StoreSeen | Trouble | None) -> Finding:
    """The store must be the lake's and must create without overwriting; None if not known."""
    if seen is None:
        return _skipped("store", "not known: the catalog says where it is")
    if isinstance(seen, Trouble):
        return troubled("store", seen, "check that it is there, mounted, and that you may write it")
    return _ok("store", f"{seen.url} is this lake's, and refuses to overwrite")
