"""Requests to land, and how what has landed is looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, BinaryIO

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakebed.catalog.records import blocks, files
from lakebed.lake import Lake
from lakebed.model.block import Block
from lakebed.model.time import TimeRange
from lakebed.storage.objects import Store
from tests.parts.data import stored_files

EVERYTHING = TimeRange(0, 1 << 62)


def request_of(*resources: tuple[str, str]) -> bytes:
    """A request of logs: for each resource its service's name and one message; no message, no
    record."""
    request = ExportLogsServiceRequest()
    for service, message in resources:
        group = request.resource_logs.add()
        attribute = group.resource.attributes.add(key="service.name")
        attribute.value.string_value = service
        if message:
            record = group.scope_logs.add().log_records.add(
                time_unix_nano=1_800_000_000_000_000_000
            )
            record.body.string_value = message
    return request.SerializeToString()


def landed(lake: Lake) -> list[Block]:
    """Every block, by insert time."""
    with lake.catalog.read() as connection:
        return blocks.list_blocks(connection, EVERYTHING)


def payload_of(lake: Lake, block: Block) -> bytes:
    """A block's bytes as its segment has them."""
    return lake.store.read(block.segment_path, block.segment_offset, block.payload_size)


def count_rows(lake: Lake, table: str) -> int:
    with lake.catalog.read() as connection:
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())


def unaccounted_files(lake: Lake) -> set[str]:
    """Files that neither a segment's row nor a reservation knows, and segments without a file."""
    with lake.catalog.read() as connection:
        recorded = {each.segment_path for each in blocks.list_segments(connection)}
        temporary = {each.file_path for each in files.list_files(connection)}
    stored = stored_files(lake)
    return (stored - recorded - temporary) | (recorded - stored)


def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    """Look again until something holds; for what happens in another thread."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.001)


class DisturbedStore:
    """A store that calls a hook when an object is created: ``before`` its first byte, or ``after``
    it is durable. Everything else is the real store's."""

    def __init__(
        self,
        store: Store,
        *,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._before = before
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        return self._create(path)

    @contextmanager
    def _create(self, path: str) -> Iterator[BinaryIO]:
        self._before()
        with self._store.create(path) as sink:
            yield sink
        self._after()


def disturb(lake: Lake, **hooks: Callable[[], None]) -> None:
    """Let the lake's landing meet a disturbance whenever it writes a segment."""
    lake._lander._writer._store = DisturbedStore(lake.store, **hooks)  # type: ignore[assignment]
