"""The rules of validation once more, as plainly as possible, and records to try them on."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import msgspec
import pyarrow as pa
from hypothesis import strategies as st

from lakebed.model.tables.declaration import parse_schema
from lakebed.model.tables.schema import FIRST_INSTANT, LAST_INSTANT, TYPES, Column
from lakebed.model.time import to_instant
from lakebed.tables.insert.validation import Validated, show, validate
from tests.tables.insert.validating import AT, TIMES


class No(Exception):
    pass


NO_TIME = "datetime such as 2026-11-16T05:00:00Z"
NO_ZONE = (
    "datetime with a zone (add Z or an offset such as +02:00 to a text, "
    "and a zone such as UTC to a datetime or a column)"
)


def plain_time(text: str) -> int:
    shape = re.sub("[0-9]", "0", text)
    if shape in ("0000-00-00", "0000.00.00"):
        text = f"{text}T00:00:00Z"
    for dash, t in ((dash, t) for dash in "-." for t in "Tt "):
        if re.match(rf"0000[{dash}]00[{dash}]00{t}00(?![:0])", shape):
            text = f"{text[:13]}:00:00{text[13:]}"
            if text[19:20] in (".", ","):
                raise No(NO_TIME)
        if re.match(rf"0000[{dash}]00[{dash}]00{t}00:00(?!:)", shape):
            text = f"{text[:16]}:00{text[16:]}"
            if text[19:20] in (".", ","):
                raise No(NO_TIME)
    shape = re.sub("[0-9]", "0", text[:19])
    if shape not in [f"0000{dash}00{dash}00{t}00:00:00" for dash in "-." for t in "Tt "]:
        raise No(NO_TIME)
    rest = text[19:]
    fraction = ""
    if rest.startswith((".", ",")):
        fraction = rest[1:].rstrip("Zz").split("+")[0].split("-")[0]
        rest = rest[1 + len(fraction) :]
        if not fraction or set(fraction) - set("0123456789"):
            raise No(NO_TIME)
    offset = 0
    if rest not in ("", "Z", "z"):
        if re.sub("[0-9]", "0", rest)[1:] not in ("00:00", "0000", "00") or rest[0] not in "+-":
            raise No(NO_TIME)
        hours, minutes = int(rest[1:3]), int(rest[3:].removeprefix(":") or 0)
        if hours > 23 or minutes > 59:
            raise No(NO_TIME)
        offset = (hours * 60 + minutes) * (1 if rest[0] == "+" else -1)
    try:
        parts = [int(text[a:b]) for a, b in ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19))]
        moment = datetime(*parts, tzinfo=UTC)
    except ValueError:
        raise No(NO_TIME) from None
    if not rest:
        raise No(NO_ZONE)
    return to_instant(moment) + int(fraction[:6].ljust(6, "0")) - offset * 60_000_000


def plain_number(value: float, unit: str | None) -> int:
    if unit is None:
        raise No("datetime as text; for numbers the column needs a unit")
    factor = {"s": 10**6, "ms": 10**3, "us": 1, "ns": 1}[unit]
    if isinstance(value, int):
        return math.floor(value * factor // (1000 if unit == "ns" else 1))
    if not math.isfinite(value) or abs(value) > 1e30:
        raise No("datetime of the years 1 to 9999")
    return round(value / 1000 if unit == "ns" else value * factor)


def plain_value(value: Any, kind: str, unit: str | None) -> Any:
    """Return the stored value, by the simplest implementation of the rules."""
    if value is None:
        return None
    if kind.endswith("[]"):
        if type(value) not in (list, tuple):
            raise No(kind)
        items = []
        for index, item in enumerate(value):
            try:
                items.append(plain_value(item, kind[:-2], unit))
            except No as no:
                raise No(f"{no} at [{index}]") from None
        return items
    if kind == "json":
        if not plain_json(value):
            raise No("a JSON value")
        return msgspec.json.encode(value, order="deterministic").decode()
    if kind == "datetime":
        if type(value) is str:
            instant = plain_time(value)
        elif type(value) is datetime:
            if value.tzinfo is None:
                raise No(NO_ZONE)
            instant = (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        elif type(value) is date:
            instant = (value.toordinal() - 719_163) * 86_400_000_000
        elif type(value) in (int, float):
            instant = plain_number(value, unit)
        else:
            raise No("datetime")
        if not FIRST_INSTANT <= instant <= LAST_INSTANT:
            raise No("datetime of the years 1 to 9999")
        return instant
    if kind == "int" and type(value) is float and value == value // 1:
        value = int(value)
    if kind == "float" and type(value) is int:
        try:
            value = float(value)
        except OverflowError:
            raise No("float of at most 64 bits") from None
    if type(value) is not {"int": int, "float": float, "string": str, "bool": bool}[kind]:
        raise No(kind)
    if kind == "int" and not -(2**63) <= value < 2**63:
        raise No("int of at most 64 bits")
    if kind == "string" and not is_unicode(value):
        raise No("string of valid unicode")
    return value


def plain_json(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str and is_unicode(key) for key in value) and all(
            map(plain_json, value.values())
        )
    if type(value) in (list, tuple):
        return all(map(plain_json, value))
    if type(value) is str:
        return is_unicode(value)
    return type(value) in (int, bool, type(None)) or (type(value) is float and math.isfinite(value))


def is_unicode(text: str) -> bool:
    return not any(0xD800 <= ord(letter) <= 0xDFFF for letter in text)


def plain_validate(records: list[Any], schema: Any) -> tuple[list[Any], list[int], list[Any]]:
    rows, accepted, bad = [], [], []
    for index, record in enumerate(records):
        if not isinstance(record, dict):
            bad.append((index, [("", "an object", show(record))]))
            continue
        problems, row, flags = [], {}, []
        for column in schema.columns:
            value = record.get(column.name)
            try:
                row[column.name] = stored = plain_value(value, column.type, column.unit)
            except No as no:
                bad_value = value
                for item_index in re.findall(r" at \[(\d+)\]", str(no)):
                    bad_value = value[int(item_index)]
                problems.append((column.name, str(no), show(bad_value)))
                continue
            if stored is None and column.required:
                problems.append((column.name, "a value", "nothing"))
            low, high = column.bounds
            outside = None
            if stored is not None and low is not None and not stored >= low:
                outside = f"at least {column.min}"
            elif stored is not None and high is not None and not stored <= high:
                outside = f"at most {column.max}"
            if outside and schema.out_of_range == "flag":
                flags.append(column.name)
            elif outside:
                problems.append((column.name, outside, show(value)))
        for name, value in record.items():
            if name not in schema.names:
                expected = f"a column of the table ({', '.join(schema.names)})"
                bad_value = str(name).encode(errors="backslashreplace").decode()
                problems.append((bad_value, expected, show(value)))
        if problems:
            bad.append((index, problems))
        else:
            accepted.append(index)
            rows.append(
                row | ({"_out_of_range": flags or None} if schema.out_of_range == "flag" else {})
            )
    return rows, accepted, bad


def as_plain(validated: Validated, total: int) -> tuple[list[Any], list[int], list[Any]]:
    table = validated.rows
    for index, field in enumerate(table.schema):
        if field.type == TIMES:
            table = table.set_column(index, field.name, table[field.name].cast(pa.int64()))
        elif field.type == pa.list_(TIMES):
            as_numbers = table[field.name].cast(pa.list_(pa.int64()))
            table = table.set_column(index, field.name, as_numbers)
    rows = table.to_pylist()
    accepted = list(range(total)) if validated.accepted is None else validated.accepted
    bad = [
        (bad_record.index, [(p.column, p.expected, p.got) for p in bad_record.problems])
        for bad_record in validated.bad
    ]
    return rows, accepted, bad


EDGES = (0, 2**31, 2**53, -(2**53), 2**63, -(2**63), 2**64, 10**400)
INTS = st.integers(-5, 300) | st.sampled_from(
    [edge + more for edge in EDGES for more in (-1, 0, 1)]
    + [1794830400, 1794830400123, 1794830400123456, 1794830400123456789, 253402300800]
)
FLOATS = st.floats() | st.sampled_from([1.0, 2.5, -0.0, 2.0**53, 2.0**63, -(2.0**63), 1e300])
FLOATS |= st.floats(0, 2e9) | st.integers(-1000, 1000).map(lambda n: n + 0.5)
TEXTS = st.text(max_size=4) | st.sampled_from(["", "\ud800", "5", "true", "ü"])


@st.composite
def time_texts(draw: st.DrawFn) -> str:
    moment = draw(st.datetimes())
    dash, t = draw(st.sampled_from("-.")), draw(st.sampled_from("Tt "))
    text = f"{moment.year:04}{dash}{moment.month:02}{dash}{moment.day:02}{t}{moment:%H:%M:%S}"
    text += draw(st.just("") | st.from_regex(r"\.[0-9]{1,12}", fullmatch=True))
    zones = ["", "Z", "z", "+00:00", "-12:45", "+23:59", "+01:00", "+0130", "-07"]
    text += draw(st.sampled_from(zones))
    if draw(st.integers(0, 9)) == 0:  # sometimes, a date, or a time without seconds
        text = (
            text[:10]
            if draw(st.booleans())
            else text[: draw(st.sampled_from([13, 16]))] + draw(st.sampled_from(zones))
        )
    if draw(st.integers(0, 9)) == 0:  # sometimes, break it
        position = draw(st.integers(0, len(text)))
        cut, put = draw(st.integers(0, 2)), draw(st.sampled_from(["", "9", "Z", ".", "-", "x"]))
        text = text[:position] + put + text[position + cut :]
    return text


ZONES = st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=30))])
DATETIMES = st.datetimes(timezones=ZONES)
SCALAR_VALUES = [INTS, FLOATS, TEXTS, st.booleans(), time_texts(), DATETIMES, st.binary(max_size=2)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS | st.sampled_from([0.5, math.nan]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
ANY = st.one_of(*SCALAR_VALUES, JSON, st.just({1: 2}), st.just((1, 2)))


@st.composite
def columns(draw: st.DrawFn) -> tuple[Column, list[Any]]:
    """A column and values for it: all of one kind, to be taken as a whole, or a mixture."""
    kind = draw(st.sampled_from(TYPES))
    bounds: dict[str, Any] = {}
    if draw(st.booleans()) and kind in ("int", "float"):
        bounds = draw(st.sampled_from([{"min": 30}, {"max": 200}, {"min": 0, "max": 100}]))
    if draw(st.booleans()) and kind == "datetime":
        bounds = {"min": "1970-01-01T00:00:00Z", "max": "2026-11-16T12:00:00Z"}
    if kind.startswith("datetime"):
        bounds["unit"] = draw(st.sampled_from([None, "s", "ms", "us", "ns"]))
    spec = {"type": kind, "required": draw(st.booleans()), **bounds}
    fitting = {
        "int": INTS,
        "float": INTS | FLOATS,
        "string": TEXTS,
        "bool": st.booleans(),
        "datetime": st.one_of(time_texts(), INTS, FLOATS, DATETIMES),
        "json": JSON,
    }[kind.removesuffix("[]")]
    if kind == "datetime":
        fitting = draw(st.sampled_from([time_texts(), INTS, FLOATS, DATETIMES]))
    several = draw(st.sampled_from([fitting, fitting | st.none(), fitting | ANY]))
    if kind.endswith("[]"):
        several = st.lists(several, max_size=3) | draw(st.sampled_from([st.none(), ANY]))
    return spec, draw(st.lists(several, min_size=1, max_size=5))


@st.composite
def tables(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    drawn_columns = draw(st.lists(columns(), min_size=1, max_size=3))
    total = max(len(values) for _, values in drawn_columns)
    specs = {f"c{index}": spec for index, (spec, _) in enumerate(drawn_columns)}
    records: list[Any] = [{"at": AT} for _ in range(total)]
    for index, (_, values) in enumerate(drawn_columns):
        for record, value in zip(records, values, strict=False):  # the others lack it
            record[f"c{index}"] = value
    if draw(st.integers(0, 4)) == 0:
        records[draw(st.integers(0, total - 1))]["more"] = 1
    if draw(st.integers(0, 4)) == 0:
        records.insert(draw(st.integers(0, total)), draw(ANY))
    flag = draw(st.sampled_from(["reject", "flag"]))
    return parse_schema(
        {"columns": specs | {"at": {"type": "datetime", "time": True}}, "out_of_range": flag}
    ), records


def assert_plain(records: list[Any], schema: Any) -> None:
    validated = validate(records, schema)
    validated.rows.validate(full=True)
    assert repr(as_plain(validated, len(records))) == repr(plain_validate(records, schema))
