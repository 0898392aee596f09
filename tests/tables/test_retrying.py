"""Operations are tried again when another process was faster: they succeed at the last attempt, and
fail with the cause after it.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lakebed.errors import AlreadyThere, LeaseLost, StalePlan
from lakebed.ingest import segments
from lakebed.lake import Lake
from lakebed.samples.generator import Generator
from lakebed.tables import delete, erase
from lakebed.tables.fold import fold as folding
from lakebed.tables.importing import quarantine
from lakebed.tables.insert import insert as inserting
from lakebed.writing import files
from tests.parts.data import publish_hour, readings
from tests.tables.parts import BY_ID, LOOSE, NOON, make


class Failing:
    """Replaces a method of an object; fails so many times, then does what the method did."""

    def __init__(self, owner: object, name: str, error: Exception, times: int) -> None:
        self.calls = 0
        self._method = getattr(owner, name)
        self._error = error
        self._times = times
        setattr(owner, name, self)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls <= self._times:
            raise type(self._error)(str(self._error))
        return self._method(*arguments, **options)


Prepare = Callable[[Lake], tuple[object, str, Callable[[], object]]]
"""Returns the object and the method that fails, and the operation that calls it."""


def fill(lake: Lake, schema: Any) -> Any:
    table = make(lake, schema)
    for value in range(3):
        row = {"id": value, "time": NOON, "value": value}
        table.insert({name: row[name] for name in row if name in table.schema.names})
    return table


def delete_marks(lake: Lake) -> tuple[object, str, Callable[[], object]]:
    table = fill(lake, BY_ID)
    return lake.tables.deleter, "_ask", lambda: table.delete_rows("value = 1")


def delete_rows(lake: Lake) -> tuple[object, str, Callable[[], object]]:
    table = fill(lake, LOOSE)
    return lake.tables.deleter._publisher, "replace_all", lambda: table.delete_rows("value = 1")


def fold(lake: Lake) -> tuple[object, str, Callable[[], object]]:
    table = fill(lake, LOOSE)
    return lake.tables.folder, "_fold", table.fold


def forget(lake: Lake) -> tuple[object, str, Callable[[], object]]:
    table = fill(lake, LOOSE)
    return lake.tables.deleter._publisher, "replace_all", lambda: table.forget(value=1)


def insert(lake: Lake) -> tuple[object, str, Callable[[], object]]:
    table = fill(lake, LOOSE)
    return (
        lake.tables.deleter._publisher,
        "insert",
        lambda: table.insert({"time": NOON, "value": 9}),
    )


def write_table(lake: Lake) -> tuple[object, str, Callable[[], object]]:
    table = fill(lake, LOOSE)
    return (
        lake.tables.deleter._publisher._files,
        "_write",
        lambda: table.insert({"time": NOON, "value": 9}),
    )


def publish_partition(lake: Lake) -> tuple[object, str, Callable[[], object]]:
    lake.views.register(readings())
    return lake.partitions._publisher._files, "_write", lambda: publish_hour(lake, 0)


def quarantine_bytes(lake: Lake) -> tuple[object, str, Callable[[], object]]:
    keeper = lake.tables.deleter._publisher.quarantine
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of abc
    return keeper, "_copy", lambda: keeper.keep(lambda: io.BytesIO(b"abc"), digest, "a test")


def land_request(lake: Lake) -> tuple[object, str, Callable[[], object]]:
    request = Generator(1).serialized("logs", 2)
    return (
        lake.telemetry._lander._writer,
        "_store_blocks",
        lambda: lake.telemetry.land("logs", request),
    )


@pytest.mark.parametrize(
    ("prepare", "module", "error"),
    [
        (delete_marks, delete, StalePlan("another was faster")),
        (delete_marks, delete, LeaseLost("the lease was lost")),
        (delete_rows, delete, StalePlan("another was faster")),
        (fold, folding, StalePlan("another was faster")),
        (fold, folding, LeaseLost("the lease was lost")),
        (forget, erase, StalePlan("another was faster")),
        (forget, erase, LeaseLost("the lease was lost")),
        (insert, inserting, StalePlan("another was faster")),
        (insert, inserting, LeaseLost("the lease was lost")),
        (write_table, files, AlreadyThere("the name is taken")),
        (publish_partition, files, AlreadyThere("the name is taken")),
        (publish_partition, files, LeaseLost("the lease was lost")),
        (quarantine_bytes, quarantine, AlreadyThere("the name is taken")),
        (land_request, segments, AlreadyThere("the name is taken")),
        (land_request, segments, LeaseLost("the lease was lost")),
    ],
)
@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_operation_is_tried_again_until_the_last_attempt_and_then_fails_with_its_cause(
    lake: Lake, prepare: Prepare, module: Any, error: Exception
) -> None:
    attempts: int = module._ATTEMPTS
    owner, name, act = prepare(lake)
    method = getattr(owner, name)
    failing = Failing(owner, name, error, attempts)
    with pytest.raises(type(error), match=str(error)):
        act()
    assert failing.calls == attempts
    setattr(owner, name, method)
    failing = Failing(owner, name, error, attempts - 1)
    act()
    assert failing.calls == attempts


def test_forget_of_nothing_is_tried_once(lake: Lake) -> None:
    table = fill(lake, LOOSE)
    assert table.forget(value=100) == []
    assert isinstance(table.query().to_arrow(), pa.Table)
