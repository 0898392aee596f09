"""Options of a statement in the metadata of a call, by the names that queries have everywhere; a
range also as micromegas' clients spell it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lakebed.errors import BadInput
from lakebed.model.time import Instant
from lakebed.serve.limits import shorter


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Options of a statement, and of how its rows are sent."""

    query: dict[str, Any] = field(default_factory=dict)
    """Keywords of `Queries.query`."""
    admin: bool = True
    """True to offer the functions that change the lake, if the caller may use them."""
    keep_dictionaries: bool = False
    with_explanation: bool = False


def read_call_options(
    metadata: Iterable[tuple[str, Any]], most_seconds: float | None
) -> CallOptions:
    """Return the options of a call; ``most_seconds`` is the server's limit for a statement."""
    headers = {key.lower(): str(value) for key, value in metadata if not key.endswith("-bin")}

    def read_flag(name: str, *, default: bool = False) -> bool:
        text = headers.get(name, "").lower()
        if text not in ("", "true", "false"):
            raise BadInput(f"{name} is {headers[name]!r}", hint="say true or false")
        return text == "true" if text else default

    options: dict[str, Any] = {
        "timeout": shorter(_read_seconds(headers.get("timeout")), most_seconds)
    }
    for name in ("begin", "end"):
        if headers.get(f"query_range_{name}"):
            options[name] = headers[f"query_range_{name}"]
    for name in ("begin", "end", "as_of"):
        if headers.get(name):
            options[name] = _read_moment(headers[name])
    if headers.get("limit"):
        if not re.fullmatch(r"-?\d{1,18}", headers["limit"]):
            raise BadInput(f"the limit is {headers['limit']!r}, no whole number")
        options["limit"] = int(headers["limit"])
    for name in ("stale", "explained"):
        if name in headers:
            options[name] = read_flag(name)
    return CallOptions(
        options,
        admin=read_flag("admin", default=True),
        keep_dictionaries=read_flag("preserve_dictionary"),
        with_explanation=read_flag("explanation"),
    )


def _read_moment(text: str) -> Instant:
    """Return microseconds since 1970 as a number, and everything else as queries read it."""
    return int(text) if re.fullmatch(r"-?\d{1,19}", text) else text


def _read_seconds(text: str | None) -> float | None:
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise BadInput(f"the timeout is {text!r}, no number of seconds")
    return seconds
