"""The Arrow types that fit others: an engine may compute a wider or differently encoded column than
it is declared, as long as casting it back loses nothing.
"""

from __future__ import annotations

from itertools import starmap

import pyarrow as pa
from pyarrow import types


def fits(got: pa.DataType, declared: pa.DataType) -> bool:
    """Return True if values of one type can be stored as the other: numbers as numbers, but no
    fractions as whole numbers; text as text; lists, maps and structs by the types of their items.
    """
    if got == declared or types.is_null(got):
        return True
    if types.is_dictionary(got):
        return fits(got.value_type, declared)
    if _is_number(declared):
        whole = types.is_integer(got) or (types.is_decimal(got) and got.scale == 0)
        return whole or (_is_number(got) and not types.is_integer(declared))
    if types.is_timestamp(declared):
        return types.is_timestamp(got) and (got.tz is None) == (declared.tz is None)
    if types.is_map(declared):
        return types.is_map(got) and all(
            starmap(fits, [(got.key_type, declared.key_type), (got.item_type, declared.item_type)])
        )
    if _is_list(declared):
        return _is_list(got) and fits(got.value_type, declared.value_type)
    if types.is_struct(declared):
        return types.is_struct(got) and _same_fields(got, declared)
    return any(
        is_kind(got) and is_kind(declared) for is_kind in (_is_text, _is_bytes, types.is_date)
    )


def _same_fields(got: pa.StructType, declared: pa.StructType) -> bool:
    return [field.name for field in got] == [field.name for field in declared] and all(
        fits(one.type, other.type) for one, other in zip(got, declared, strict=True)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_list_view(kind)
        or types.is_fixed_size_list(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )
