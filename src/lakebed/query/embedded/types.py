"""Types inside the engine and outside: string views are faster, but older readers of Arrow do not
know them, so results leave the engine without them.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa


def with_views(schema: pa.Schema) -> pa.Schema:
    """Return the schema as the engine reads it from a file."""
    return pa.schema([field.with_type(_to_view(field.type)) for field in schema])


def _to_view(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.string_view()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.binary_view()
    return kind


def without_views(schema: pa.Schema) -> pa.Schema:
    """Return the schema as callers get it."""
    return pa.schema(
        [field.with_type(_plain(field.type)) for field in schema], metadata=schema.metadata
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _plain(kind.value_type), kind.ordered)
    return _rebuild(kind, _plain)


def _rebuild(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a nested type with its members changed."""

    def field(member: pa.Field) -> pa.Field:
        return member.with_type(change(member.type))

    if pa.types.is_struct(kind):
        return pa.struct([field(kind.field(index)) for index in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(field(kind.key_field), field(kind.item_field), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(field(kind.value_field), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(field(kind.value_field))
    if pa.types.is_list(kind):
        return pa.list_(field(kind.value_field))
    return kind
