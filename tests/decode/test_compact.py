"""Compact rows are the same rows: shared texts are dictionary arrays, until they are written."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.decode import logs, metrics, spans
from lakebed.model.view_set import ViewSet
from lakebed.samples.generator import Generator
from lakebed.storage import parquet
from lakebed.storage.local import LocalStore
from tests.decode.parts import block

SIGNALS = [(logs, "logs"), (metrics, "metrics"), (spans, "traces")]
PATH = "partitions/rows/global/2026-11/00000000-0000-0000-0000-000000000000.parquet"


@pytest.mark.parametrize(("module", "signal"), SIGNALS)
def test_compact_rows_are_written_as_the_plain_ones(
    module: ModuleType, signal: str, tmp_path: Path
) -> None:
    generator = Generator(5)
    blocks = [block(generator.serialized(signal, 200), signal) for _ in range(3)]  # type: ignore[arg-type]
    plain, compact = module.decode(blocks).table, module.decode(blocks, compact=True).table
    kinds = {field.name: field.type for field in compact.schema}
    assert pa.types.is_dictionary(kinds["process_properties"])
    assert compact.nbytes < plain.nbytes / 2
    assert _values(compact) == _values(plain)
    view_set = ViewSet("rows", 1, module.SCHEMA, "time", ("time",))
    rows = parquet.conform(compact, view_set)
    store = LocalStore(tmp_path)
    written = parquet.write(store, PATH, rows, view_set)
    assert written.num_rows == plain.num_rows
    read = pq.read_table(tmp_path / PATH)
    assert read.schema.equals(view_set.schema)
    assert _values(read) == _values(parquet.conform(plain, view_set))


def _values(table: pa.Table) -> str:
    return repr(table.to_pylist())  # NaN is not equal to itself
