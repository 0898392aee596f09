"""Times that callers give relative to now, which are counted from the lake's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.catalog import clock
from lakebed.model.time import Instant, is_relative, parse_moment

if TYPE_CHECKING:
    from lakebed.catalog.catalog import Catalog


def resolve(catalog: Catalog, value: Instant) -> Instant:
    """Return a relative time, such as ``1h``, ``now`` or ``yesterday``, as an instant, and any
    other value as it is. `BadInput` for a text that is not a time."""
    if not isinstance(value, str):
        return value
    if not is_relative(value):
        parse_moment(value, 0)  # raises with a hint that knows relative times
        return value
    with catalog.read() as connection:
        return parse_moment(value, clock.upcoming(connection))


def resolve_range(
    catalog: Catalog, times: tuple[Instant, Instant] | None
) -> tuple[Instant, Instant] | None:
    """Return the two ends of a range, resolved."""
    return None if times is None else (resolve(catalog, times[0]), resolve(catalog, times[1]))


def resolve_past(catalog: Catalog, as_of: Instant | None) -> Instant | None:
    """Return a relative time as a tick of the past: the lake has not changed since its last tick,
    so a later time stands for that one. Any other value is returned as it is."""
    if as_of is None or not is_relative(as_of):
        return as_of if as_of is None else resolve(catalog, as_of)
    with catalog.read() as connection:
        return min(parse_moment(as_of, clock.upcoming(connection)), clock.now(connection))
