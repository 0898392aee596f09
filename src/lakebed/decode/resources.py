"""The sender of a request: its resource's attributes as strings, and the names derived from them.

The strings are the same as those of the columns that are built later: texts as they are, whole
numbers in decimal, doubles as Arrow writes them, bools ``true`` or ``false``, bytes in base64,
arrays and key-value lists as compact JSON. An attribute without a value is None, bad UTF-8 becomes
U+FFFD, and of several attributes with the same key the last counts.
"""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

_LARGEST_REMEMBERED = 16 << 10


@dataclass(frozen=True, slots=True)
class Resource:
    """The sender of telemetry; ``properties`` are shared and must not be changed."""

    service_name: str | None
    exe: str
    username: str
    computer: str
    properties: dict[str, str | None]


def describe_resource(resource: Any) -> Resource:
    """The sender that a Resource message describes, parsed with the relaxed messages.

    Senders repeat their resource in every request, so the latest small ones are remembered.
    """
    raw = resource.SerializeToString()
    if len(raw) > _LARGEST_REMEMBERED:
        return _describe(resource)
    kind: Any = type(resource)
    return _remember(kind, raw)


@lru_cache(maxsize=512)
def _remember(kind: Any, raw: bytes) -> Resource:
    return _describe(kind.FromString(raw))


def _describe(resource: Any) -> Resource:
    properties = {_text(pair.key): _show(pair.value) for pair in resource.attributes}
    service = properties.get("service.name")
    namespace = properties.get("service.namespace")
    return Resource(
        service_name=service,
        exe=spell_exe(service, namespace) or "",
        username=properties.get("process.owner") or "",
        computer=properties.get("host.name") or "",
        properties=properties,
    )


def spell_exe(service: str | None, namespace: str | None) -> str | None:
    """Return the value of ``exe``: the service's name, after its namespace and a slash if it has
    one; None without a name."""
    if not service:
        return None
    return f"{namespace}/{service}" if namespace else service


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _show(value: Any) -> str | None:
    plain = _plain(value)
    if plain is None or isinstance(plain, str):
        return plain
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, float):
        return show_double(plain)
    if isinstance(plain, int):
        return str(plain)
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    match value.WhichOneof("value"):
        case "string_value":
            return _text(value.string_value)
        case "bool_value":
            return value.bool_value
        case "int_value":
            return value.int_value
        case "double_value":
            number = value.double_value
            return number if math.isfinite(number) else str(number)  # JSON has no infinity
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "array_value":
            return [_plain(item) for item in value.array_value.values]
        case "kvlist_value":
            pairs = value.kvlist_value.values
            return {_text(pair.key): _plain(pair.value) for pair in pairs}
    return None


def show_double(number: float) -> str:
    """The shortest digits that read back as the number, laid out as Arrow's cast to string does."""
    if not math.isfinite(number):
        return str(number)
    sign = "-" if math.copysign(1, number) < 0 else ""
    if number == 0:
        return sign + "0"
    decimal = Decimal(repr(number)).normalize()
    digits = "".join(map(str, decimal.as_tuple().digits))
    exponent = decimal.adjusted()
    if not -6 <= exponent < 10:
        mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        return f"{sign}{mantissa}e{exponent:+d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole, part = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
    return f"{sign}{whole}.{part}" if part else sign + whole
