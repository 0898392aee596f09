"""Properties in SQL: one value by its key, and how many there are. Those of a record or data point
are a map; those of its process are the text of a JSON object.

The engine gives a Python function one exact list of argument types, and converts neither a map to
text nor one map type to another. So there are two functions of each kind, and the map must be
exactly `PROPERTIES`, down to the names of its inner fields: a table must be registered with the
Arrow schema of its view set, as a schema that the engine reads out of a Parquet file calls these
fields otherwise.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import ScalarUDF, udf

PROPERTIES = pa.map_(pa.string(), pa.string())


def functions() -> list[ScalarUDF]:
    """Return every function of this module, to be registered with a session.

    ``property_get(properties, key)`` and ``properties_length(properties)`` read a map;
    ``json_get(text, key)`` and ``json_length(text)`` the text of a JSON object. All return NULL
    for NULL; the last two also for text that is not a JSON object.
    """
    text, count = pa.string(), pa.int32()
    return [
        udf(_get, [PROPERTIES, text], text, "immutable", "property_get"),
        udf(_length, [PROPERTIES], count, "immutable", "properties_length"),
        udf(_json_get, [text, text], text, "immutable", "json_get"),
        udf(_json_length, [text], count, "immutable", "json_length"),
    ]


def _get(maps: pa.MapArray, keys: pa.Array) -> pa.Array:
    """Return the value of each row's key, the last of several. NULL if there is none, or it is
    NULL."""
    rows = len(maps)
    if not rows:
        return pa.array([], pa.string())
    offsets = maps.offsets
    begin, end = offsets[0].as_py(), offsets[-1].as_py()
    entry_keys = maps.keys.slice(begin, end - begin)
    entries = pa.ListArray.from_arrays(pc.subtract(offsets, offsets[0]), entry_keys)
    row_of_entry = pc.list_parent_indices(entries)
    sought_keys = keys[0] if _is_one(keys) else keys.take(row_of_entry)
    hits = pc.indices_nonzero(pc.equal(entry_keys, sought_keys))
    hit_of_row = pc.inverse_permutation(row_of_entry.take(hits), max_index=rows - 1)
    values = maps.items.slice(begin, end - begin).take(hits.take(hit_of_row))
    return pc.if_else(maps.is_valid(), values, None) if maps.null_count else values


def _length(maps: pa.MapArray) -> pa.Array:
    begins, ends = maps.offsets.slice(0, len(maps)), maps.offsets.slice(1)
    return pc.if_else(maps.is_valid(), pc.subtract(ends, begins), None)


def _json_get(texts: pa.Array, keys: pa.Array) -> pa.Array:
    """Return the value of each row's key: a string as it is, anything else as it is written, but
    null as NULL. NULL if there is none, or the text is not a JSON object."""
    coded = texts.dictionary_encode()
    objects = [_read(text) for text in coded.dictionary.to_pylist()]
    if _is_one(keys):
        key = keys[0].as_py()
        values = pa.array([_value(parsed, key) for parsed in objects], pa.string())
        return values.take(coded.indices)
    # One look for each distinct pair of text and key.
    coded_keys = keys.dictionary_encode()
    names = coded_keys.dictionary.to_pylist()
    ahead = pc.multiply(coded.indices.cast(pa.int64()), len(names))
    pairs = pc.add(ahead, coded_keys.indices.cast(pa.int64())).dictionary_encode()
    looks = (divmod(pair, len(names)) for pair in pairs.dictionary.to_pylist())
    values = pa.array([_value(objects[text], names[key]) for text, key in looks], pa.string())
    return values.take(pairs.indices)


def _json_length(texts: pa.Array) -> pa.Array:
    coded = texts.dictionary_encode()
    objects = (_read(text) for text in coded.dictionary.to_pylist())
    lengths = pa.array([None if parsed is None else len(parsed) for parsed in objects], pa.int32())
    return lengths.take(coded.indices)


def _is_one(keys: pa.Array) -> bool:
    """Return True if every row has the same key, as when it was written into the SQL."""
    if not len(keys) or keys.null_count:
        return False
    return bool(pc.all(pc.equal(keys, keys[0])).as_py())


_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STRING = msgspec.json.Decoder(str)


def _read(text: str) -> dict[str, msgspec.Raw] | None:
    """Return the members of a JSON object, the last of those with the same key."""
    try:
        return _OBJECT.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _value(members: dict[str, msgspec.Raw] | None, key: str) -> str | None:
    raw = None if members is None else members.get(key)
    if raw is None:
        return None
    text = bytes(raw).strip()
    if text.startswith(b'"'):
        return _STRING.decode(text)
    return None if text == b"null" else text.decode()
