"""The resources and scopes around the records of a request, and the columns that every row takes
from them. All three signals nest alike: request, resources, scopes, records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.decode.blocks import LandedBlock
from lakebed.decode.columns.arrays import TIME, Marks, optional_text
from lakebed.decode.columns.columnar import ReadMode
from lakebed.decode.columns.spread import Budget, Family, StringMaps
from lakebed.decode.columns.values import string_maps
from lakebed.decode.resources import spell_exe

_ROW_BYTES = 384

LEADING = {
    "process_id": "the process that sent the record: one per resource",
    "stream_id": "the stream of its signal within that process",
    "block_id": "the block that the record landed in",
    "insert_time": "when the block landed, on the lake's clock",
    "exe": "service.namespace, if any, and service.name: namespace/name; NULL without a name",
    "username": "process.owner of the resource",
    "computer": "host.name of the resource",
}
PROCESS_PROPERTIES = (
    "attributes of the resource, as the text of a JSON object of strings: one text for each "
    "process, which costs next to nothing to repeat"
)
TRAILING = {
    "service_name": "service.name of the resource",
    "scope_name": "name of the instrumentation scope",
    "scope_version": "version of the instrumentation scope",
    "scope_attributes": "attributes of the instrumentation scope",
    "scope_schema_url": "schema URL of what the scope holds",
    "resource_schema_url": "schema URL of the resource",
    "scope_dropped_attributes_count": "attributes that the sender dropped from the scope",
    "resource_dropped_attributes_count": "attributes that the sender dropped from the resource",
}


@dataclass(frozen=True, slots=True)
class Envelope:
    """A batch of requests, read down to their scopes."""

    blocks: Sequence[LandedBlock]
    resource_block: pa.Array
    scope_resource: pa.Array
    record_scope: pa.Array
    """For each record, the index of its scope among all scopes of the batch."""
    records: pa.Array
    """The records as bytes."""
    resource_columns: dict[str, pa.Array]
    scope_columns: dict[str, pa.Array]
    scope_maps: StringMaps
    resource_marks: Marks
    scope_marks: Marks
    budget: Budget
    compact: bool
    """True if texts that rows share become dictionary arrays."""

    @classmethod
    def of(
        cls,
        blocks: Sequence[LandedBlock],
        batch: pa.RecordBatch,
        mode: ReadMode,
        *,
        compact: bool = False,
    ) -> Envelope:
        """Return the envelope of a batch that the envelope reader read, with a row for each
        block."""
        groups = batch.column(0)
        resources, scope_lists, resource_urls = groups.flatten().flatten()
        scopes, record_lists, scope_urls = scope_lists.flatten().flatten()
        resource_marks, scope_marks = Marks(len(resources)), Marks(len(scopes))
        attributes, resource_dropped = resources.flatten()
        resource_maps = string_maps(_no_nulls(attributes), resource_marks, mode)
        name, version, attributes, scope_dropped = scopes.flatten()
        scope_maps = string_maps(_no_nulls(attributes), scope_marks, mode)
        return cls(
            blocks=blocks,
            resource_block=pc.list_parent_indices(groups),
            scope_resource=pc.list_parent_indices(scope_lists),
            record_scope=pc.list_parent_indices(record_lists),
            records=record_lists.flatten(),
            resource_columns={
                **_who(resource_maps.array()),
                "process_properties": _objects(resource_maps.array()),
                "resource_schema_url": optional_text(resource_urls, resource_marks),
                "resource_dropped_attributes_count": _count(resource_dropped),
            },
            scope_columns={
                "scope_name": optional_text(name, scope_marks),
                "scope_version": optional_text(version, scope_marks),
                "scope_schema_url": optional_text(scope_urls, scope_marks),
                "scope_dropped_attributes_count": _count(scope_dropped),
            },
            scope_maps=scope_maps,
            resource_marks=resource_marks,
            scope_marks=scope_marks,
            budget=Budget(),
            compact=compact,
        )

    def expect_rows(self, rows: int) -> None:
        """Reserve memory for rows before they are made; raises `TooLarge`."""
        self.budget.spend(rows * _ROW_BYTES)

    def columns(self, row_scope: pa.Array, marks: Marks) -> dict[str, pa.Array]:
        """Every row's columns that come from its block, resource and scope.

        Rows of one scope stand together. Raises `TooLarge` if the rows take too much memory.
        """
        scopes = Family.of(row_scope)
        resources = Family.of(self.scope_resource.take(row_scope))
        row_block = self.resource_block.take(resources.parents)
        columns: dict[str, pa.Array] = {}
        for family, values in ((scopes, self.scope_columns), (resources, self.resource_columns)):
            columns |= {name: self._give(column, family) for name, column in values.items()}
        columns["target"] = columns["scope_name"]
        for name in ("process_id", "stream_id", "block_id"):
            values = pa.array([getattr(block, name) for block in self.blocks], pa.string())
            columns[name] = _share(values, row_block) if self.compact else values.take(row_block)
        ticks = pa.array([block.insert_time for block in self.blocks], TIME)
        columns["insert_time"] = ticks.take(row_block)
        columns["scope_attributes"] = scopes.spread_maps(self.scope_maps, self.budget)
        marks.add_all(self.scope_marks.spread(row_scope))
        marks.add_all(self.resource_marks.spread(resources.parents))
        return columns

    def _give(self, values: pa.Array, family: Family) -> pa.Array:
        if self.compact and pa.types.is_string(values.type):
            return _share(values, family.parents)
        return family.spread(values, self.budget)


def _share(values: pa.Array, parents: pa.Array) -> pa.Array:
    """The parents' texts for each of their rows, each distinct one kept once."""
    distinct = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(distinct.indices.take(parents), distinct.dictionary)


def _no_nulls(lists: pa.Array) -> pa.Array:
    """Lists of absent messages as empty lists."""
    if not lists.null_count:
        return lists
    return pa.ListArray.from_arrays(lists.offsets, lists.values)


def _count(numbers: pa.Array) -> pa.Array:
    return pc.fill_null(numbers.cast(pa.int64()), 0)


def _objects(properties: pa.Array) -> pa.Array:
    """Maps as texts of JSON; there are few, one for each resource of a request."""
    texts = [msgspec.json.encode(dict(pairs)).decode() for pairs in properties.to_pylist()]
    return pa.array(texts, pa.string())


def _who(properties: pa.Array) -> dict[str, pa.Array]:
    """Return the columns that name a process."""

    def find(key: str) -> pa.Array:
        return pc.map_lookup(properties, pa.scalar(key), "first")

    name = find("service.name")
    pairs = zip(name.to_pylist(), find("service.namespace").to_pylist(), strict=True)
    return {
        "exe": pa.array([spell_exe(*pair) for pair in pairs], pa.string()),
        "username": find("process.owner"),
        "computer": find("host.name"),
        "service_name": name,
    }
