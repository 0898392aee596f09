"""What the metadata of a call asks for beside the statement: a range as micromegas' clients spell
it, and by the names that queries have anywhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lakebed.errors import BadInput
from lakebed.model.time import Instant


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a statement is to be run, and what its rows come with."""

    options: dict[str, Any] = field(default_factory=dict)
    """For `Queries.query`."""
    admin: bool = True
    """Whether the caller wants the functions that change the lake, who may have them."""
    keep_dictionaries: bool = False
    with_explanation: bool = False


def read_wishes(metadata: Iterable[tuple[str, Any]], longest: float | None) -> Wishes:
    """The wishes of a call; ``longest`` is how many seconds the server gives a statement."""
    given = {key.lower(): str(value) for key, value in metadata if not key.endswith("-bin")}

    def says(name: str, *, unless_said: bool = False) -> bool:
        word = given.get(name, "").lower()
        if word not in ("", "true", "false"):
            raise BadInput(f"{name} is {given[name]!r}", hint="say true or false")
        return word == "true" if word else unless_said

    options: dict[str, Any] = {"timeout": shorter(_read_seconds(given.get("timeout")), longest)}
    for name in ("begin", "end"):
        if given.get(f"query_range_{name}"):
            options[name] = given[f"query_range_{name}"]
    for name in ("begin", "end", "as_of"):
        if given.get(name):
            options[name] = _read_moment(given[name])
    if given.get("limit"):
        if not re.fullmatch(r"-?\d{1,18}", given["limit"]):
            raise BadInput(f"the limit is {given['limit']!r}, no whole number")
        options["limit"] = int(given["limit"])
    for name in ("stale", "explained"):
        if name in given:
            options[name] = says(name)
    return Wishes(
        options,
        admin=says("admin", unless_said=True),
        keep_dictionaries=says("preserve_dictionary"),
        with_explanation=says("explanation"),
    )


def shorter(asked: float | None, longest: float | None) -> float | None:
    """How long a statement may take: what the caller says, and never longer than the server."""
    return min((each for each in (asked, longest) if each is not None), default=None)


def _read_moment(text: str) -> Instant:
    """Microseconds since 1970 as a number; everything else as queries read it."""
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
