"""What given facts mean: no machine is looked at here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakebed.catalog.health import Health, Software
from lakebed.doctor import findings
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
from lakebed.doctor.findings import ENOUGH_BYTES, Finding, Status
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
CATALOG = CatalogSeen(HEALTH, "postgresql://db/lake", has_keys=False)
LOST = Trouble("it is gone")


def catalog(**changes: object) -> CatalogSeen:
    return replace(CATALOG, health=replace(HEALTH, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("finding", "status", "says"),
    [
        (findings.judge_java(None), SKIPPED, "pyspark is not installed"),
        (findings.judge_java(JavaSeen("21.0.5", "/java", "4.3.0")), OK, "Java 21.0.5 at /java"),
        (findings.judge_java(Trouble("too old", "install 17")), BAD, "too old"),
        (
            findings.judge_java(Trouble("there is no Java"), connect_only=True),
            *(SKIPPED, "there is no Java; use Spark Connect"),
        ),
        (findings.judge_workers(None, installed=False), SKIPPED, "not installed"),
        (findings.judge_workers(None, installed=True), SKIPPED, "--spark"),
        (findings.judge_workers(LOST, installed=True), BAD, "gone"),
        (findings.judge_workers(WorkersSeen("4", "3.11.7", "3.11.7"), installed=True), OK, "ran"),
        (
            findings.judge_workers(WorkersSeen("4", "3.12.1", "3.11.7"), installed=True),
            *(BAD, "workers run Python 3.12.1"),
        ),
        (findings.judge_catalog(CATALOG), OK, "postgresql://db/lake (PostgreSQL 18.4) answers"),
        (findings.judge_catalog(LOST), BAD, "gone"),
        (findings.judge_catalog(catalog(revision=None)), BAD, "there is no catalog"),
        (findings.judge_catalog(catalog(revision="0002")), BAD, "needs 0003"),
        (
            findings.judge_catalog(catalog(revision="0009", is_known_revision=False)),
            *(BAD, "does not know"),
        ),
        (findings.judge_catalog(replace(CATALOG, trouble=LOST)), BAD, "gone"),
        (findings.judge_sqlite(None, HEALTH), SKIPPED, "on a server"),
        (findings.judge_sqlite(LOST, None), BAD, "gone"),
        (findings.judge_sqlite(Software("3.53.4", True), None), OK, "write-ahead"),
        (findings.judge_sqlite(Software("3.45.0", False), None), OK, "rollback journal"),
        (
            findings.judge_sqlite(
                Software("3.53.4", True), replace(HEALTH, journal_mode="delete")
            ),
            *(BAD, "should use journal mode wal, and uses delete"),
        ),
        (findings.judge_clock(LOST), SKIPPED, "not known"),
        (findings.judge_clock(CATALOG), OK, "within 1ms"),
        (findings.judge_clock(catalog(journal_mode="wal")), OK, "is this machine's"),
        (findings.judge_clock(catalog(ahead_us=5 * SECOND)), OK, "within 5s"),
        (findings.judge_clock(catalog(ahead_us=6 * SECOND)), BAD, "6s behind the catalog's"),
        (findings.judge_clock(catalog(ahead_us=-3 * DAY - 1)), BAD, "3d ahead of the catalog's"),
        (findings.judge_clock(catalog(ahead_us=6 * SECOND, give_or_take_us=2 * SECOND)), OK, "8s"),
        (findings.judge_clock(catalog(ticks_ahead_us=DAY)), BAD, "last tick is 1d ahead"),
        (findings.judge_clock(catalog(ticks_ahead_us=None)), OK, "within"),
        (findings.judge_server("grpc://lake", None), OK, "grpc://lake answers"),
        (findings.judge_server("grpc://lake", LOST), BAD, "gone"),
        (findings.judge_store(None), SKIPPED, "not known"),
        (findings.judge_store(LOST), BAD, "gone"),
        (findings.judge_store(StoreSeen("s3://b/lake")), OK, "refuses to overwrite"),
        (findings.judge_certificate(None, 0), SKIPPED, "no certificate"),
        (findings.judge_certificate(LOST, 0), BAD, "gone"),
        (findings.judge_certificate(CertificateSeen("c.pem", 8 * DAY), 0), OK, "1970-01-09"),
        (findings.judge_certificate(CertificateSeen("c.pem", 8 * DAY), 2 * DAY), BAD, "c.pem"),
    ],
)  # fmt: skip
def test_a_fact_has_a_meaning(finding: Finding, status: Status, says: str) -> None:
    assert finding.status is status
    assert says in finding.found
    assert (finding.advice is not None) == (status is BAD)


def test_every_wrong_setting_is_a_finding_and_the_rest_is_not() -> None:
    (none,) = findings.judge_settings(SettingsSeen(None))
    assert none.status is OK
    (read,) = findings.judge_settings(SettingsSeen("etc/lakebed.toml", (), {"LAKEBED_PORT": None}))
    assert (read.status, read.found) == (OK, "read etc/lakebed.toml")
    seen = SettingsSeen(None, ("a is wrong", "b is wrong"), {"LAKEBED_LAEK": "LAKEBED_LAKE"})
    found = [*findings.judge_settings(seen)]
    assert [each.status for each in found] == [BAD] * 3
    assert "LAKEBED_LAKE" in str(found[2].advice)
    assert [each.status for each in findings.judge_settings(LOST)] == [BAD]


def port(state: PortState, **more: object) -> PortSeen:
    return PortSeen("OTLP", "serve_otlp_port", "127.0.0.1:4317", state, **more)  # type: ignore[arg-type]


def test_a_port_is_free_or_ours_or_in_the_way() -> None:
    ours = PortSeen(
        *("HTTP", "serve_port", "127.0.0.1:4318", PortState.TAKEN),
        answer="lakebed 0.1.0",
        is_lakebed=True,
    )
    grpc = port(PortState.TAKEN, answer="a gRPC server")
    silent = port(PortState.TAKEN)

    def judged(*ports: PortSeen | Trouble) -> list[Status]:
        return [each.status for each in findings.judge_ports(ports)]

    assert judged(port(PortState.FREE), port(PortState.ANY)) == [OK, OK]
    assert judged(ours, grpc) == [OK, OK]
    assert judged(ours, silent) == [OK, BAD]
    assert judged(grpc) == [BAD]
    assert judged(port(PortState.REFUSED, reason="permission denied"), LOST) == [BAD, BAD]
    one, other = port(PortState.FREE), replace(port(PortState.FREE), what="FlightSQL")
    assert judged(one, other) == [OK, BAD]
    (taken,) = findings.judge_ports([grpc])
    assert "a gRPC server answers" in taken.found
    assert "serve_otlp_port" in str(taken.advice)


def test_ports_are_skipped_where_no_server_is_installed() -> None:
    (skipped,) = findings.judge_ports(None)
    assert skipped.status is Status.SKIPPED
    assert "the extra serve is not installed" in skipped.found


def test_folders_of_one_disk_are_one_finding() -> None:
    store = DiskSeen("store", "/data/store", 1, ENOUGH_BYTES, 9 * ENOUGH_BYTES)
    same = replace(store, what="catalog", path="/data")
    full = DiskSeen("temporary files", "/tmp", 2, ENOUGH_BYTES - 1, ENOUGH_BYTES)
    fine, bad = findings.judge_disks([store, full, same])
    assert (fine.check, fine.status) == ("disk of store, catalog", OK)
    assert "1.0 GiB of 9.0 GiB free at /data/store" in fine.found
    assert (bad.check, bad.status) == ("disk of temporary files", BAD)
    (no_inodes,) = findings.judge_disks([replace(store, has_free_files=False)])
    assert no_inodes.status is BAD
    assert [each.status for each in findings.judge_disks([LOST])] == [BAD]


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
def test_who_can_be_reached_needs_keys(
    host: str, has_keys: bool | None, without_keys: bool, status: Status
) -> None:
    found = findings.judge_keys(host, has_keys=has_keys, without_keys=without_keys)
    assert found.status is status


def test_extras_have_one_finding_each_with_purpose_and_install_line() -> None:
    present = Extra("serve", "a server", ("json",))
    missing = Extra("spark", "builds", ("json", "no_such_module", "no_such_package.part"))
    installed, absent = findings.judge_extras([present, missing])
    assert (installed.check, installed.status) == ("extra serve", OK)
    assert installed.found == "installed, for a server"
    assert (absent.check, absent.status) == ("extra spark", SKIPPED)
    assert absent.found == (
        "no_such_module, no_such_package.part not installed; needed for builds: "
        "pip install 'lakebed[spark]'"
    )
    assert findings.list_missing_abilities([installed, absent]) == ["build"]
