"""The findings of given facts: no machine is looked at here."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from lakebed.catalog.connections.health import Health, Software
from lakebed.doctor import checks
from lakebed.doctor.checks import ENOUGH_BYTES, Finding, LakeState, Skipped, Status, run_check
from lakebed.doctor.machine import Disk, Port
from lakebed.errors import Unavailable
from lakebed.extras import Extra
from lakebed.model.time import SECOND

OK, BAD, SKIPPED = Status.OK, Status.BAD, Status.SKIPPED
DAY = 24 * 3600 * SECOND
HEALTH = Health(
    software="PostgreSQL 18.4",
    revision="0003",
    needed_revision="0003",
    is_known_revision=True,
    ahead_us=0,
    give_or_take_us=1000,
    ticks_ahead_us=-DAY,
    journal_mode=None,
)
LAKE = LakeState(HEALTH, "postgresql://db/lake", has_keys=False)
LOST = Unavailable("it is gone")
SAFE, UNSAFE = Software("3.53.4", True), Software("3.45.0", False)
PORT = Port("OTLP", "serve_otlp_port", "127.0.0.1", 4317)
DISK = Disk("store", "/data/store", 1, ENOUGH_BYTES, 9 * ENOUGH_BYTES)
PYTHON = platform.python_version()


def catalog(**changes: object) -> LakeState:
    return replace(LAKE, health=replace(HEALTH, **changes))  # type: ignore[arg-type]


def clock(**changes: object) -> Callable[[], str]:
    return partial(checks.check_clock, catalog(**changes).health)


def fail() -> NoReturn:
    raise LOST


def java() -> str:
    return "Java 21.0.5 at /java"


def workers(version: str) -> Callable[[], str]:
    return partial(checks.check_workers, lambda: ("4", version), is_installed=True)


def port(listener: str | None, first: str = "OTLP", *, is_running: bool = False) -> partial[str]:
    return partial(checks.check_port, PORT, listener, first, is_running)


@pytest.mark.parametrize(
    ("check", "status", "found"),
    [
        (partial(checks.check_java, None), SKIPPED, "pyspark is not installed"),
        (partial(checks.check_java, java), OK, "Java 21.0.5 at /java"),
        (partial(checks.check_java, fail), BAD, "gone"),
        (partial(checks.check_workers, None, is_installed=False), SKIPPED, "not installed"),
        (partial(checks.check_workers, None, is_installed=True), SKIPPED, "--spark"),
        (partial(checks.check_workers, fail, is_installed=True), BAD, "gone"),
        (workers(PYTHON), OK, f"ran a job on Python {PYTHON}"),
        (workers("2.7.18"), BAD, f"workers run Python 2.7.18, this is {PYTHON}"),
        (partial(checks.check_catalog, LAKE), OK, "postgresql://db/lake (PostgreSQL 18.4) answers"),
        (partial(checks.check_catalog, LOST), BAD, "gone"),
        (partial(checks.check_catalog, catalog(revision=None)), BAD, "there is no catalog"),
        (partial(checks.check_catalog, catalog(revision="0002")), BAD, "needs 0003"),
        (
            partial(checks.check_catalog, catalog(revision="0009", is_known_revision=False)),
            *(BAD, "does not know"),
        ),
        (partial(checks.check_catalog, replace(LAKE, problem=LOST)), BAD, "gone"),
        (partial(checks.check_sqlite, None, None), SKIPPED, "on a server"),
        (partial(checks.check_sqlite, SAFE, None), OK, "write-ahead"),
        (partial(checks.check_sqlite, UNSAFE, None), OK, "rollback journal"),
        (
            partial(checks.check_sqlite, SAFE, "delete"),
            *(BAD, "should use journal mode wal, and uses delete"),
        ),
        (partial(checks.check_clock, None), SKIPPED, "not known"),
        (clock(), OK, "within 1ms"),
        (clock(journal_mode="wal"), OK, "is this machine's"),
        (clock(ahead_us=5 * SECOND), OK, "within 5s"),
        (clock(ahead_us=6 * SECOND), BAD, "6s behind the catalog's"),
        (clock(ahead_us=-3 * DAY - 1), BAD, "3d ahead of the catalog's"),
        (clock(ahead_us=6 * SECOND, give_or_take_us=2 * SECOND), OK, "8s"),
        (clock(ticks_ahead_us=DAY), BAD, "last tick is 1d ahead"),
        (clock(ticks_ahead_us=None), OK, "within"),
        (partial(checks.check_store, None), SKIPPED, "not known"),
        (partial(checks.check_store, LAKE), SKIPPED, "not known"),
        (partial(checks.check_certificate, None, None, 0), SKIPPED, "no certificate"),
        (port(None), OK, "127.0.0.1:4317 is free"),
        (port("lakebed 0.1.0"), OK, "lakebed 0.1.0 answers"),
        (port("a gRPC server", is_running=True), OK, "beside a server of lakebed"),
        (port("", is_running=True), BAD, "does not say what it is"),
        (port("a gRPC server"), BAD, "a gRPC server answers"),
        (port(None, first="HTTP"), BAD, "is to be that of HTTP too"),
        (partial(checks.check_disk, DISK), OK, "1.0 GiB of 9.0 GiB free at /data/store"),
        (
            partial(checks.check_disk, replace(DISK, free_bytes=ENOUGH_BYTES - 1)),
            *(BAD, "1,024 MiB of 9.0 GiB free"),
        ),
        (partial(checks.check_disk, replace(DISK, has_free_files=False)), BAD, "no file"),
    ],
)
def test_check_of_fact(check: Callable[[], str], status: Status, found: str) -> None:
    finding = run_check("it", check)
    assert finding.status is status
    assert found in finding.found
    assert (finding.advice is not None) == (status is BAD)


def test_advice_on_taken_port_names_setting() -> None:
    assert "serve_otlp_port" in str(run_check("port of OTLP", port("")).advice)


def judge_settings(*arguments: object) -> list[Finding]:
    return [run_check(*check) for check in checks.list_setting_checks(*arguments)]  # type: ignore[arg-type]


def test_every_wrong_setting_is_a_finding() -> None:
    (missing,) = judge_settings(None, (), {})
    assert (missing.status, missing.found) == (OK, "there is no settings file")
    (read,) = judge_settings(Path("etc/lakebed.toml"), (), {"LAKEBED_PORT": None})
    assert (read.status, read.found) == (OK, "read etc/lakebed.toml")
    findings = judge_settings(None, ("a is wrong", "b is wrong"), {"LAKEBED_LAEK": "LAKEBED_LAKE"})
    assert [finding.status for finding in findings] == [BAD] * 3
    assert "LAKEBED_LAKE" in str(findings[2].advice)


@pytest.mark.parametrize(
    ("host", "has_keys", "without_keys", "status"),
    [
        ("127.0.0.1", False, False, OK),
        ("::1", False, False, OK),
        ("localhost", False, False, OK),
        ("0.0.0.0", False, False, BAD),
        ("lake.example.org", False, False, BAD),
        ("0.0.0.0", False, True, OK),
        ("0.0.0.0", True, False, OK),
        ("0.0.0.0", True, True, OK),
        ("0.0.0.0", None, False, SKIPPED),
    ],
)
def test_server_that_other_machines_reach_needs_keys(
    host: str, has_keys: bool | None, without_keys: bool, status: Status
) -> None:
    check = partial(checks.check_keys, host, has_keys, without_keys)
    assert run_check("keys", check).status is status


def test_extras_have_purpose_and_install_line() -> None:
    assert checks.check_extra(Extra("serve", "a server", ("json",))) == "installed, for a server"
    missing = Extra("spark", "builds", ("json", "no_such_module", "no_such_package.part"))
    with pytest.raises(Skipped) as skipped:
        checks.check_extra(missing)
    assert str(skipped.value) == (
        "no_such_module, no_such_package.part not installed; needed for builds: "
        "pip install 'lakebed[spark]'"
    )
    findings = [Finding("extra spark", SKIPPED, ""), Finding("extra serve", OK, "")]
    assert checks.list_missing_abilities(findings) == ["build"]
