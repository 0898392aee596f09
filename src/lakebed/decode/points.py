"""The data points of one kind of metric as columns; those that the kind does not have are NULL."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.decode.columns.arrays import (
    STRING_MAP,
    Marks,
    counts,
    enum_text,
    hex_ids,
    instants,
    list_of,
    relist,
    relist_structs,
)
from lakebed.decode.columns.columnar import CannotRead, ReadMode
from lakebed.decode.columns.values import string_maps

EXEMPLAR = pa.struct(
    [
        ("time_unix_nano", pa.int64()),
        ("value", pa.float64()),
        ("int_value", pa.int64()),
        ("trace_id", pa.string()),
        ("span_id", pa.string()),
        ("properties", STRING_MAP),
    ]
)
POINT_TYPES = {
    "value": pa.float64(),
    "properties": STRING_MAP,
    "int_value": pa.int64(),
    "kind": pa.string(),
    "temporality": pa.string(),
    "is_monotonic": pa.bool_(),
    "time_unix_nano": pa.int64(),
    "start_time_unix_nano": pa.int64(),
    "flags": pa.int64(),
    "count": pa.int64(),
    "sum": pa.float64(),
    "min": pa.float64(),
    "max": pa.float64(),
    "explicit_bounds": list_of(pa.float64()),
    "bucket_counts": list_of(pa.int64()),
    "scale": pa.int32(),
    "zero_count": pa.int64(),
    "zero_threshold": pa.float64(),
    "positive_offset": pa.int32(),
    "positive_bucket_counts": list_of(pa.int64()),
    "negative_offset": pa.int32(),
    "negative_bucket_counts": list_of(pa.int64()),
    "quantiles": list_of(pa.float64()),
    "quantile_values": list_of(pa.float64()),
    "exemplars": list_of(EXEMPLAR),
}
_TEMPORALITIES = [None, "delta", "cumulative"]


@dataclass(frozen=True, slots=True)
class Points:
    """All points of one kind in a batch of metrics."""

    metric: pa.Array
    """For each point, the index of its metric."""
    columns: dict[str, pa.Array]
    marks: Marks


def count_points(data: pa.Array) -> int:
    """Return the number of points that all metrics of a kind have."""
    return len(_children(data)["data_points"].flatten())


def read_points(kind: str, data: pa.Array, mode: ReadMode) -> Points:
    """The points of all metrics of a kind; `data` has a struct, or NULL, for each metric."""
    parts = _children(data)
    lists = parts["data_points"]
    metric = pc.list_parent_indices(lists)
    points = _children(lists.flatten())
    marks = Marks(len(metric))
    columns: dict[str, pa.Array] = {
        "kind": pa.repeat(pa.scalar(kind), len(metric)),
        "properties": string_maps(points["attributes"], marks, mode).array(),
        "time_unix_nano": instants(points["time_unix_nano"], marks),
        "start_time_unix_nano": instants(points["start_time_unix_nano"], marks),
        "flags": points["flags"].cast(pa.int64()),
    }
    if "aggregation_temporality" in parts:
        named = enum_text(pc.fill_null(parts["aggregation_temporality"], 0), _TEMPORALITIES)
        columns["temporality"] = named.take(metric)
    if "is_monotonic" in parts:
        columns["is_monotonic"] = parts["is_monotonic"].take(metric)
    if "as_double" in points:
        columns["value"], columns["int_value"] = _numbers(points)
    if "count" in points:
        columns["count"] = counts(points["count"], marks)
    for name in ("sum", "min", "max", "scale", "zero_threshold"):
        if name in points:
            columns[name] = points[name]
    if "zero_count" in points:
        columns["zero_count"] = counts(points["zero_count"], marks)
    if "explicit_bounds" in points:
        columns["explicit_bounds"] = relist(
            points["explicit_bounds"], points["explicit_bounds"].flatten()
        )
        columns["bucket_counts"] = _bucket_counts(points["bucket_counts"], marks)
    for sign in ("positive", "negative"):
        if sign in points:
            buckets = _children(points[sign])
            columns[f"{sign}_offset"] = buckets["offset"]
            columns[f"{sign}_bucket_counts"] = _bucket_counts(buckets["bucket_counts"], marks)
    if "quantile_values" in points:
        lists = points["quantile_values"]
        pairs = _children(lists.flatten())
        columns["quantiles"] = relist(lists, pairs["quantile"])
        columns["quantile_values"] = relist(lists, pairs["value"])
    if "exemplars" in points:
        columns["exemplars"] = _exemplars(points["exemplars"], marks, mode)
    for name, type_ in POINT_TYPES.items():
        if name not in columns:
            columns[name] = pa.nulls(len(metric), type_)
    return Points(metric, columns, marks)


def _children(structs: pa.Array) -> dict[str, pa.Array]:
    names = [structs.type.field(index).name for index in range(structs.type.num_fields)]
    return dict(zip(names, structs.flatten(), strict=True))


def _numbers(points: dict[str, pa.Array]) -> tuple[pa.Array, pa.Array]:
    """The value of each point as a double, and as the int that it was."""
    doubles, ints = points["as_double"], points["as_int"]
    if ints.null_count == len(ints):
        return doubles, ints
    if pc.any(pc.and_(doubles.is_valid(), ints.is_valid())).as_py():
        raise CannotRead("a number is of several kinds at once")
    return pc.coalesce(doubles, ints.cast(pa.float64(), safe=False)), ints


def _bucket_counts(lists: pa.Array, marks: Marks) -> pa.Array:
    count_marks = Marks(len(lists.flatten()))
    numbers = counts(lists.flatten(), count_marks)
    if count_marks.masks:
        marks.add_all(count_marks.gather(pc.list_parent_indices(lists), len(lists)))
    return relist(lists, numbers)


def _exemplars(lists: pa.Array, marks: Marks, mode: ReadMode) -> pa.Array:
    exemplars = _children(lists.flatten())
    exemplar_marks = Marks(len(exemplars["time_unix_nano"]))
    value, int_value = _numbers(exemplars)
    columns = [
        instants(exemplars["time_unix_nano"], exemplar_marks),
        value,
        int_value,
        hex_ids(exemplars["trace_id"], 16, exemplar_marks),
        hex_ids(exemplars["span_id"], 8, exemplar_marks),
        string_maps(exemplars["filtered_attributes"], exemplar_marks, mode).array(),
    ]
    return relist_structs(lists, columns, EXEMPLAR, exemplar_marks, marks)
