"""A view set: a named, versioned definition of rows, and the hash that names its schema.

The hash and the stored definition are spelled by this module, not by a library, so that they stay
the same across processes and library versions.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakebed.errors import BadInput
from lakebed.model.source import (
    Source,
    decode_source,
    describe_source,
    encode_source,
    fingerprint,
)

if TYPE_CHECKING:
    import pyarrow as pa

GLOBAL = "global"
TARGET_BYTES = 64 << 20
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_MOST = 1 << 31
_PLAIN = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "string",
    "large_string",
    "binary",
    "large_binary",
    "date32",
]


@dataclass(frozen=True, slots=True)
class ViewSet:
    """The declaration of a view set: the rows' schema, its version, the event time and the sort
    order."""

    name: str
    version: int
    schema: pa.Schema
    time_column: str
    sort_order: tuple[str, ...] = ()
    retention_us: int | None = None
    source: Source | None = None
    target_bytes: int = TARGET_BYTES
    """About how large a partition's file becomes by merging small neighbours."""
    description: str = ""
    schema_hash: bytes = field(init=False, compare=False)
    """SHA-256 over the canonical schema, the declared version and, if its rows come from SQL, that
    SQL and the hashes of what it reads."""

    def __post_init__(self) -> None:
        check_view_set_name(self.name)
        numbers = {
            "version": self.version,
            "retention_us": self.retention_us or 1,
            "target_bytes": self.target_bytes,
        }
        for what, number in numbers.items():
            if type(number) is not int:
                raise BadInput(f"the {what} of view set {self.name} is {number!r}, no whole number")
        if not 1 <= self.version < _MOST:
            raise BadInput(f"view set {self.name} has version {self.version}; versions start at 1")
        if self.retention_us is not None and not 0 < self.retention_us < _MOST**2:
            raise BadInput(f"view set {self.name} cannot keep rows for {self.retention_us} us")
        if not 0 < self.target_bytes < _MOST:
            raise BadInput(f"view set {self.name} has a target of {self.target_bytes} bytes")
        # Names that Parquet does not keep (of list items and map entries) are made canonical.
        object.__setattr__(self, "schema", decode_schema(encode_schema(self.schema)))
        names = self.schema.names
        if len(set(names)) != len(names):
            raise BadInput(f"view set {self.name} names a column twice")
        if self.time_column not in names:
            raise BadInput(f"view set {self.name} has no column {self.time_column!r} for its time")
        time_type = encode_type(self.schema.field(self.time_column).type)
        if not (isinstance(time_type, dict) and "timestamp" in time_type and time_type["zone"]):
            raise BadInput(
                f"the time column {self.time_column} of view set {self.name} is {time_type}",
                hint="declare it as pa.timestamp('us', 'UTC')",
            )
        for column in self.sort_order:
            if column not in names:
                raise BadInput(f"view set {self.name} has no column {column!r} to sort by")
            if not _has_order(encode_type(self.schema.field(column).type)):
                raise BadInput(f"view set {self.name} cannot be sorted by column {column!r}")
        object.__setattr__(self, "schema_hash", self._hash())

    def _hash(self) -> bytes:
        return hash_schema(self.schema, self.version, fingerprint(self.source))

    def require_no_source(self) -> None:
        """Raise `BadInput` if builds make the rows: rows that a program publishes would silently
        replace those that landed in their range."""
        if self.source is not None:
            source_text = describe_source(self.source)
            raise BadInput(
                f"view set {self.name} takes no rows: builds make them ({source_text})",
                hint="register a view set of your own for these rows",
            )

    def definition(self) -> str:
        """Return the JSON that the catalog stores and `from_definition` reads back."""
        parts = {
            "name": self.name,
            "version": self.version,
            "schema": encode_schema(self.schema),
            "time_column": self.time_column,
            "sort_order": list(self.sort_order),
            "retention_us": self.retention_us,
            "source": encode_source(self.source),
            "target_bytes": self.target_bytes,
        }
        optional = {"description": self.description} if self.description else {}
        return _canonical_json(parts | optional)

    @classmethod
    def from_definition(cls, text: str) -> ViewSet:
        """The view set that `definition` wrote."""
        value = json.loads(text)
        return cls(
            name=value["name"],
            version=value["version"],
            schema=decode_schema(value["schema"]),
            time_column=value["time_column"],
            sort_order=tuple(value["sort_order"]),
            retention_us=value["retention_us"],
            source=decode_source(value.get("source")),
            target_bytes=value.get("target_bytes", TARGET_BYTES),
            description=value.get("description", ""),
        )


def check_view_set_name(name: str) -> str:
    """The name, if it is one; view set names become folders and SQL tables."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInput(
            f"{name!r} is not a view set name",
            hint="use lowercase letters, digits and _, at most 63, beginning with a letter",
        )
    return name


def check_instance(instance: str) -> str:
    """The instance id, if it is one; instance ids become folders."""
    if not isinstance(instance, str) or not _INSTANCE.fullmatch(instance):
        raise BadInput(
            f"{instance!r} is not an instance of a view set",
            hint="use letters, digits and _ . -, at most 128, beginning with a letter or digit",
        )
    return instance


def hash_schema(schema: pa.Schema, version: int, source: str = "") -> bytes:
    """The hash that partitions of this schema, version and source's fingerprint carry."""
    parts: dict[str, Any] = {"schema": encode_schema(schema), "version": version}
    text = _canonical_json(parts | ({"source": source} if source else {}))
    return hashlib.sha256(text.encode()).digest()


def _canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def encode_schema(schema: pa.Schema) -> list[Any]:
    """The schema as plain values; Arrow's own metadata is not part of it."""
    return [_encode_field(field) for field in schema]


def decode_schema(fields: list[Any]) -> pa.Schema:
    """The Arrow schema that `encode_schema` described."""
    import pyarrow as pa

    return pa.schema([_decode_field(field) for field in fields])


def _encode_field(field: pa.Field) -> list[Any]:
    return [field.name, encode_type(field.type), field.nullable]


def _encode_item(name: str, field: pa.Field) -> list[Any]:
    """A nested field under the name that Parquet gives it."""
    return [name, encode_type(field.type), field.nullable]


def _has_order(kind: Any) -> bool:
    """Return True if rows can be sorted by a column of this encoded type."""
    unsortable = {"list", "large_list", "map", "struct", "dictionary"}
    return isinstance(kind, str) or not unsortable & set(kind)


def _decode_field(value: list[Any]) -> pa.Field:
    import pyarrow as pa

    return pa.field(value[0], decode_type(value[1]), nullable=value[2])


def encode_type(kind: pa.DataType) -> Any:
    """An Arrow type as plain values; types that Parquet or Spark cannot hold are refused."""
    import pyarrow as pa

    for name in _PLAIN:
        if kind == pa.type_for_alias(name):
            return name
    types = pa.types
    if types.is_timestamp(kind) and kind.unit != "s":  # Parquet has no seconds
        return {"timestamp": kind.unit, "zone": kind.tz}
    if types.is_duration(kind) and kind.unit != "s":
        return {"duration": kind.unit}
    if types.is_decimal128(kind):
        return {"decimal": [kind.precision, kind.scale]}
    if types.is_fixed_size_binary(kind):
        return {"fixed_binary": kind.byte_width}
    if types.is_dictionary(kind) and kind.value_type == pa.string() and not kind.ordered:
        return {"dictionary": [encode_type(kind.index_type), encode_type(kind.value_type)]}
    if types.is_large_list(kind):
        return {"large_list": _encode_item("element", kind.value_field)}
    if types.is_list(kind):
        return {"list": _encode_item("element", kind.value_field)}
    if types.is_map(kind) and not kind.keys_sorted:
        return {
            "map": [_encode_item("key", kind.key_field), _encode_item("value", kind.item_field)]
        }
    if types.is_struct(kind) and kind.num_fields:
        return {"struct": [_encode_field(kind.field(i)) for i in range(kind.num_fields)]}
    raise BadInput(f"columns of type {kind} cannot be stored")


def canonical(kind: pa.DataType) -> pa.DataType:
    """The type as view sets declare it, or itself if none does."""
    try:
        return decode_type(encode_type(kind))
    except BadInput:
        return kind


def decode_type(value: Any) -> pa.DataType:
    """The Arrow type that `encode_type` described."""
    import pyarrow as pa

    if isinstance(value, str):
        if value not in _PLAIN:
            raise BadInput(
                f"{value!r} is not a column type", hint=f"one of {', '.join(_PLAIN)}, or an object"
            )
        return pa.type_for_alias(value)
    match value:
        case {"timestamp": unit, "zone": zone}:
            return pa.timestamp(unit, zone)
        case {"duration": unit}:
            return pa.duration(unit)
        case {"decimal": [precision, scale]}:
            return pa.decimal128(precision, scale)
        case {"fixed_binary": width}:
            return pa.binary(width)
        case {"dictionary": [index, values]}:
            return pa.dictionary(decode_type(index), decode_type(values))
        case {"large_list": item}:
            return pa.large_list(_decode_field(item))
        case {"list": item}:
            return pa.list_(_decode_field(item))
        case {"map": [key, item]}:
            return pa.map_(_decode_field(key), _decode_field(item))
        case {"struct": fields}:
            return pa.struct([_decode_field(field) for field in fields])
    raise BadInput(f"{value!r} is not a column type")
