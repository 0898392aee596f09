"""Attributes of data points: a list of them, and filters by them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakebed.errors import BadInput

_MOST_CHOICES = 5_000
_MOST_VALUES = 50
_MOST_FILTERS = 20


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of points by which they can be filtered and split."""

    name: str
    values: Sequence[str]
    """The most frequent ones first."""
    values_left_out: int


@dataclass(frozen=True, slots=True)
class Filter:
    """An attribute that points must have; two filters of one name accept either value."""

    name: str
    value: str


def ask_for_attributes(where: str) -> str:
    """Return the statement for all attributes of some points with their most frequent values."""
    return f"""SELECT * FROM (
            SELECT name, value, count(*) OVER (PARTITION BY name) AS values,
                row_number() OVER (PARTITION BY name ORDER BY points DESC, value) AS place
            FROM (
                SELECT name, value, count(*) AS points FROM (
                    SELECT unnest(map_keys(properties)) AS name,
                        unnest(map_values(properties)) AS value
                    FROM measures WHERE {where}
                ) GROUP BY 1, 2
            )
        ) WHERE place <= {_MOST_VALUES} ORDER BY name, place LIMIT {_MOST_CHOICES}"""


def list_attributes(rows: Sequence[Mapping[str, Any]]) -> list[Attribute]:
    """Return the attributes in the rows of that statement."""
    values_by_name: dict[str, list[str]] = {}
    totals: dict[str, int] = {}
    for row in rows:
        if row["name"]:
            values_by_name.setdefault(row["name"], [])
            totals[row["name"]] = row["values"]
            if row["value"]:
                values_by_name[row["name"]].append(row["value"])
    return [
        Attribute(name, values, max(0, totals[name] - _MOST_VALUES))
        for name, values in values_by_name.items()
    ]


def plan_filters(texts: Sequence[str], names: Sequence[str]) -> list[Filter]:
    """Return the filters that ``name=value`` texts mean, where both may have equals signs: the name
    is an existing one, and of several the longest."""
    if len(texts) > _MOST_FILTERS:
        raise BadInput(
            f"{len(texts)} attributes are too many", hint=f"choose at most {_MOST_FILTERS}"
        )
    filters = []
    for text in texts:
        matching_names = [name for name in names if text.startswith(f"{name}=")]
        if not matching_names:
            raise BadInput(
                f"no point has an attribute as in {text!r}",
                hint=f"write name=value, with a name of {', '.join(names[:20]) or 'none here'}",
            )
        name = max(matching_names, key=len)
        filters.append(Filter(name, text[len(name) + 1 :]))
    return filters
