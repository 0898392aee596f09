"""Metrics: landed OTLP metrics to the rows of ``measures``, one for each data point."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.decode.blocks import Decoded, LandedBlock
from lakebed.decode.columns.arrays import (
    STRING_MAP,
    TIME,
    Marks,
    list_of,
    microseconds,
    optional_text,
)
from lakebed.decode.columns.batches import decode_blocks
from lakebed.decode.columns.columnar import CannotRead, ReadMode
from lakebed.decode.columns.envelope import LEADING, PROCESS_PROPERTIES, TRAILING, Envelope
from lakebed.decode.columns.spread import Family
from lakebed.decode.columns.values import string_maps
from lakebed.decode.points import EXEMPLAR, POINT_TYPES, count_points, read_points
from lakebed.model.signal import Signal

COLUMNS = {
    **LEADING,
    "time": "when it was measured, in microseconds: as sent, else as landed",
    "target": "name of the instrumentation scope",
    "name": "name of the metric",
    "unit": "unit of the metric",
    "value": "the number of a gauge or sum; NULL for distributions and where none was recorded",
    "properties": "attributes of the data point",
    "process_properties": PROCESS_PROPERTIES,
    "int_value": "the same number, exactly, if it was an integer",
    "description": "what the metric means",
    "kind": "gauge, sum, histogram, exponential_histogram or summary",
    "temporality": "delta or cumulative; NULL for gauges and summaries",
    "is_monotonic": "whether a sum only grows; NULL for other kinds",
    "time_unix_nano": "when it was measured, exactly; NULL if the sender did not say",
    "start_time_unix_nano": "since when it was gathered, exactly; NULL if the sender did not say",
    "flags": "data point flags: 1 means that no value was recorded",
    "count": "how many values a distribution holds",
    "sum": "their sum; NULL if the sender did not say",
    "min": "the least of them; NULL if the sender did not say",
    "max": "the greatest of them; NULL if the sender did not say",
    "explicit_bounds": "upper bounds of a histogram's buckets, but the last",
    "bucket_counts": "how many values are in each bucket of a histogram",
    "scale": "resolution of an exponential histogram",
    "zero_count": "how many of its values are zero or nearly so",
    "zero_threshold": "what nearly zero means",
    "positive_offset": "index of its first positive bucket",
    "positive_bucket_counts": "how many values are in each positive bucket",
    "negative_offset": "index of its first negative bucket",
    "negative_bucket_counts": "how many values are in each negative bucket",
    "quantiles": "which quantiles a summary gives, 0 to 1",
    "quantile_values": "the value of each of these quantiles",
    "exemplars": "single measurements that went into the data point",
    "metadata": "metadata of the metric",
    **TRAILING,
    "problems": "what could not be kept as it was sent, separated by commas; NULL if nothing",
}
"""Every column with its meaning."""

_TYPES = {
    "insert_time": TIME,
    "time": TIME,
    "properties": STRING_MAP,
    **POINT_TYPES,
    "exemplars": list_of(EXEMPLAR),
    "metadata": STRING_MAP,
    "scope_attributes": STRING_MAP,
    "scope_dropped_attributes_count": pa.int64(),
    "resource_dropped_attributes_count": pa.int64(),
}
SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in COLUMNS])

_KINDS = ("gauge", "sum", "histogram", "exponential_histogram", "summary")


def decode(
    blocks: Sequence[LandedBlock], *, slowly: bool = False, compact: bool = False
) -> Decoded:
    """The data points of the blocks as rows of `SCHEMA`; ``slowly`` is for comparison;
    with ``compact``, texts that many rows share are dictionary arrays."""
    return decode_blocks(blocks, Signal.METRICS, SCHEMA, _flatten, slowly=slowly, compact=compact)


def _flatten(
    envelope: Envelope, metrics: pa.RecordBatch, metric_scope: pa.Array, mode: ReadMode
) -> dict[str, pa.Array]:
    _refuse_two_kinds(metrics)
    envelope.expect_rows(sum(count_points(metrics[kind]) for kind in _KINDS))
    parts = [read_points(kind, metrics[kind], mode) for kind in _KINDS]
    marks = Marks.joined([part.marks for part in parts])
    row_metric = pa.concat_arrays([part.metric for part in parts])
    order = pc.sort_indices(row_metric)  # stable: points stay in the order of their metric
    row_metric = row_metric.take(order)
    marks = marks.spread(order)
    columns = {
        name: pa.concat_arrays([part.columns[name] for part in parts]).take(order)
        for name in parts[0].columns
    }
    columns |= envelope.columns(metric_scope.take(row_metric), marks)
    columns |= _of_metrics(envelope, metrics, Family.of(row_metric), marks, mode)
    time = microseconds(columns["time_unix_nano"])
    columns["time"] = pc.coalesce(time, columns["insert_time"]) if time.null_count else time
    columns["problems"] = marks.column()
    return columns


def _refuse_two_kinds(metrics: pa.RecordBatch) -> None:
    """A metric sent as two kinds is the last of them, which only the slow way can tell."""
    valid = [metrics[kind].is_valid() for kind in _KINDS]
    total = valid[0].cast(pa.int8())
    for mask in valid[1:]:
        total = pc.add(total, mask.cast(pa.int8()))
    if (pc.max(total).as_py() or 0) > 1:
        raise CannotRead("a metric is of several kinds at once")


def _of_metrics(
    envelope: Envelope, metrics: pa.RecordBatch, rows: Family, marks: Marks, mode: ReadMode
) -> dict[str, pa.Array]:
    metric_marks = Marks(metrics.num_rows)
    columns = {
        name: rows.spread(optional_text(metrics[name], metric_marks), envelope.budget)
        for name in ("name", "unit", "description")
    }
    metadata = string_maps(metrics["metadata"], metric_marks, mode)
    columns["metadata"] = rows.spread_maps(metadata, envelope.budget)
    marks.add_all(metric_marks.spread(rows.parents))
    return columns
