"""Made-up rows of any schema, few enough to run SQL over while a view set is declared: groups
recur, sums stay small and exact, and nothing is null or zero, so that SQL that is right for real
rows has no reason to fail on them. The same seed gives the same rows.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from decimal import Decimal
from typing import Any

import pyarrow as pa

_PATTERNS = 3
_SECOND = 1_000_000
_TIMES = [1_767_225_600 * _SECOND + offset * _SECOND for offset in (1, 8, 90, 4000)]
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def make_rows(
    schema: pa.Schema,
    count: int,
    seed: int,
    fixed: Collection[str] = (),
    used: Collection[str] = (),
) -> pa.Table:
    """Return random rows. Most repeat one of a few patterns but for a column or two, so that groups
    have several rows by any column. Columns named in ``fixed``, in lower case, have one value;
    those named in ``used`` vary (all, if none is)."""
    chance = random.Random(seed)  # noqa: S311
    patterns = [
        [_value(field.type, random.Random(seed_of_pattern)) for field in schema]  # noqa: S311
        for seed_of_pattern in range(_PATTERNS)
    ]
    places = [index for index, name in enumerate(schema.names) if name.lower() in used]
    places = places or list(range(len(schema)))
    rows = []
    for _ in range(count):
        row = list(chance.choice(patterns))
        for index in chance.sample(places, chance.randint(0, min(2, len(places)))):
            row[index] = _value(schema.field(index).type, chance)
        rows.append(row)
    for index, name in enumerate(schema.names):
        if name.lower() in fixed:
            for row in rows:
                row[index] = patterns[0][index]
    columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
    return pa.table(
        [pa.array(list(values), field.type) for values, field in zip(columns, schema, strict=True)],
        schema=schema,
    )


def _value(kind: pa.DataType, chance: random.Random) -> Any:
    types = pa.types
    if types.is_dictionary(kind):
        return _value(kind.value_type, chance)
    if types.is_boolean(kind):
        return chance.random() < 0.5
    if types.is_integer(kind):
        return chance.randint(1, 2 if kind.bit_width == 8 else 4)
    if types.is_floating(kind):
        return chance.choice([0.25, 0.5, 1.5, 2.0])
    if types.is_decimal(kind):
        return Decimal(chance.randint(1, 2)).scaleb(-kind.scale)
    if types.is_timestamp(kind):
        at = chance.choice(_TIMES) * _PER_SECOND[kind.unit] // _SECOND
        return pa.scalar(at, kind)
    if types.is_duration(kind):
        return pa.scalar(chance.randint(1, 4), kind)
    if types.is_date(kind):
        return pa.scalar(20_454 + chance.randint(0, 2), kind)
    if types.is_fixed_size_binary(kind):
        return bytes([chance.randint(1, 3)]) * kind.byte_width
    if types.is_binary(kind) or types.is_large_binary(kind):
        return bytes([48 + chance.randint(1, 3)])
    if types.is_map(kind):
        return [(_value(kind.key_type, chance), _value(kind.item_type, chance))]
    if types.is_list(kind) or types.is_large_list(kind):
        return [_value(kind.value_type, chance) for _ in range(chance.randint(1, 2))]
    if types.is_struct(kind):
        return {kind.field(i).name: _value(kind.field(i).type, chance) for i in range(len(kind))}
    return str(chance.randint(1, 3))  # text that is a number, where SQL wants to read one
