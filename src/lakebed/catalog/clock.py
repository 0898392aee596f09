"""The lake's clock. A transaction takes a tick by updating one row, which stays locked until the
transaction ends: so ticks are unique and in commit order, and no snapshot can gain rows in its
past.
"""

from __future__ import annotations

import sqlalchemy as sa

from lakebed.catalog.expressions import catalog_clock, greatest
from lakebed.catalog.schema import lake_clock
from lakebed.errors import LakeNotFound, SnapshotExpired
from lakebed.model.time import format_instant

_ADVANCE = (
    sa.update(lake_clock)
    .values(
        now=greatest(lake_clock.c.now + sa.bindparam("ticks", type_=sa.BigInteger), catalog_clock())
    )
    .returning(lake_clock.c.now)
)


_NOW = sa.select(lake_clock.c.now)
UPCOMING = greatest(lake_clock.c.now + 1, catalog_clock())
"""An estimate of the next tick."""


def advance(connection: sa.Connection, ticks: int = 1) -> int:
    """Take ``ticks`` new ticks and return the last of them; holds the clock until commit."""
    now = connection.scalar(_ADVANCE, {"ticks": ticks})
    if now is None:
        raise LakeNotFound("the catalog has no clock", hint="make a lake with: lakebed init")
    return int(now)


def now(connection: sa.Connection) -> int:
    """The last tick of this snapshot."""
    return int(connection.scalar(_NOW) or 0)


def upcoming(connection: sa.Connection) -> int:
    """Return an estimate of the next tick without taking one."""
    return int(connection.scalar(sa.select(UPCOMING)) or 0)


def sweep_horizon(connection: sa.Connection) -> int:
    """The tick before which retired partitions may be gone."""
    return int(connection.scalar(sa.select(lake_clock.c.sweep_horizon)) or 0)


def require_readable(connection: sa.Connection, as_of: int) -> None:
    """Raise unless everything that was live at a past tick is still there."""
    last = now(connection)
    horizons = sa.select(greatest(lake_clock.c.sweep_horizon, lake_clock.c.blocks_horizon))
    horizon = int(connection.scalar(horizons) or 0)
    if as_of > last:
        raise SnapshotExpired(
            f"{format_instant(as_of)} is in the future of the lake",
            hint=f"its last tick is {format_instant(last)}",
        )
    if as_of < horizon:
        raise SnapshotExpired(
            f"the lake as of {format_instant(as_of)} has been swept",
            hint=f"the past is readable from {format_instant(horizon)} on",
        )


def raise_sweep_horizon(connection: sa.Connection, tick: int) -> None:
    """Record that a partition that was retired at this tick is being swept."""
    connection.execute(
        sa.update(lake_clock).values(sweep_horizon=greatest(lake_clock.c.sweep_horizon, tick))
    )


def raise_blocks_horizon(connection: sa.Connection, tick: int) -> None:
    """Record that the lake as of an earlier tick would need blocks that are gone."""
    connection.execute(
        sa.update(lake_clock).values(blocks_horizon=greatest(lake_clock.c.blocks_horizon, tick))
    )


def blocks_from(connection: sa.Connection) -> int:
    """Return the tick before which every block was retired; partitions built from them are
    frozen."""
    return int(connection.scalar(sa.select(lake_clock.c.blocks_from)) or 0)


def raise_blocks_from(connection: sa.Connection, tick: int) -> None:
    """Record that the blocks before this tick are gone."""
    connection.execute(
        sa.update(lake_clock).values(blocks_from=greatest(lake_clock.c.blocks_from, tick))
    )
