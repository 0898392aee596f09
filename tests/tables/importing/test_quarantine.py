"""Foreign bytes are kept once, known to the catalog, and never swept."""

from __future__ import annotations

import errno
import hashlib
import io
from typing import BinaryIO, cast

import pytest

from lakebed.catalog.records import files
from lakebed.errors import StalePlan
from lakebed.lake import Lake
from lakebed.lifecycle.check import Severity
from lakebed.model.partition import FileState
from lakebed.storage.objects import read_all
from lakebed.tables.importing.quarantine import Quarantine
from tests.conftest import NewLake
from tests.parts.faults import break_commit

BYTES = b"PAR1 and nothing else"
DIGEST = hashlib.sha256(BYTES).hexdigest()


@pytest.fixture
def quarantine(lake: Lake) -> Quarantine:
    return Quarantine(lake.catalog, lake.store, lake._names)


def aside(lake: Lake) -> list[files.TemporaryFile]:
    with lake.catalog.read() as connection:
        return files.list_files(connection, [FileState.QUARANTINED])


def test_bytes_are_kept_as_they_are_and_never_swept(lake: Lake, quarantine: Quarantine) -> None:
    copy = quarantine.keep(lambda: io.BytesIO(BYTES), DIGEST, "a.parquet: truncated")
    assert not copy.repeated
    lake.sweeper.run()
    assert read_all(lake.store, copy.path) == BYTES
    (quarantined,) = aside(lake)
    assert (quarantined.file_path, quarantined.file_size, quarantined.reason) == (
        copy.path,
        len(BYTES),
        "a.parquet: truncated",
    )
    report = lake.checker.run()
    assert [(finding.severity, finding.kind) for finding in report.findings] == [
        (Severity.NOTE, "quarantined file")
    ]


def test_the_same_bytes_are_kept_once(lake: Lake, quarantine: Quarantine) -> None:
    first = quarantine.keep(lambda: io.BytesIO(BYTES), DIGEST, "first")
    second = quarantine.keep(lambda: io.BytesIO(BYTES), DIGEST, "second")
    assert (second.path, second.repeated) == (first.path, True)
    assert quarantine.find(DIGEST) == first.path
    assert len(aside(lake)) == 1


def test_another_process_that_was_quicker_wins(lake: Lake, quarantine: Quarantine) -> None:
    def open_late() -> io.BytesIO:
        quarantine.keep(lambda: io.BytesIO(BYTES), DIGEST, "quicker")
        return io.BytesIO(BYTES)

    late = quarantine.keep(open_late, DIGEST, "late")
    (quarantined,) = aside(lake)
    assert (late.path, late.repeated, quarantined.reason) == (
        quarantined.file_path,
        True,
        "quicker",
    )
    lake.sweeper.run()
    assert not lake.sweeper.plan().files
    assert [finding.kind for finding in lake.checker.run().findings] == ["quarantined file"]


def test_bytes_that_changed_are_not_kept_under_the_old_digest(
    lake: Lake, quarantine: Quarantine
) -> None:
    with pytest.raises(StalePlan):
        quarantine.keep(lambda: io.BytesIO(b"other"), DIGEST, "changed")
    assert aside(lake) == []
    lake.sweeper.run()
    assert lake.checker.run().is_clean


@pytest.mark.parametrize("after", [True, False])
def test_an_unknown_commit_is_resolved(lake: Lake, quarantine: Quarantine, after: bool) -> None:
    broken = break_commit(lake, after=after)
    if after:
        quarantine.keep(lambda: io.BytesIO(BYTES), DIGEST, "once")
    else:
        with pytest.raises(Exception, match="nothing was committed"):
            quarantine.keep(lambda: io.BytesIO(BYTES), DIGEST, "not yet")
        quarantine.keep(lambda: io.BytesIO(BYTES), DIGEST, "once")
    assert broken() == 1
    (quarantined,) = aside(lake)
    assert quarantined.reason == "once"


def test_a_bucket_keeps_them_too(new_lake: NewLake, s3_bucket: str) -> None:
    lake = new_lake(store=f"s3://{s3_bucket}/lake")
    quarantine = Quarantine(lake.catalog, lake.store, lake._names)
    quarantined = quarantine.keep(lambda: io.BytesIO(BYTES), DIGEST, "far away")
    assert read_all(lake.store, quarantined.path) == BYTES
    assert lake.checker.run().is_clean


class Failing(io.RawIOBase):
    """A source on a disk that is going."""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        raise OSError(errno.EIO, "Input/output error")


def test_a_source_that_cannot_be_read_is_not_the_stores_fault(
    lake: Lake, quarantine: Quarantine
) -> None:
    with pytest.raises(OSError, match="Input/output error") as failed:
        quarantine.keep(lambda: cast(BinaryIO, Failing()), DIGEST, "going")
    assert failed.value.errno == errno.EIO
    assert aside(lake) == []
    lake.sweeper.run()
    assert lake.checker.run().is_clean
