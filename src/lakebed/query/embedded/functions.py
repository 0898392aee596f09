"""Our own functions: what the columns mean, why there are no rows, and bringing partitions back.

``list_columns()``
    Every column of every view set, with its comment.
``explain_empty(view_set, begin, end)``
    The ranges of insert time between two instants of which a query sees no rows, each with the
    reason, a detail and what to do about it. For a user's table, ``'database.table'``, the ranges
    are of the rows' own time.
``restore_partition(partition_id)``
    Bring a retired partition back: ``SUCCESS: …`` or ``ERROR: …``. For administrators.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakebed.errors import UnknownViewSet
from lakebed.model.time import TimeRange
from lakebed.query import listings
from lakebed.query.embedded.calls import Arguments, LakeChange, LakeTable, Planning


def _list_columns(planning: Planning, _arguments: Arguments) -> Any:
    return planning.find_listing(listings.VIEW_COLUMNS)


def _explain_empty(planning: Planning, arguments: Arguments) -> Any:
    name = get_view_set_name(planning, arguments)
    return planning.explain_empty(name, TimeRange(arguments.instant(1), arguments.instant(2)))


def get_view_set_name(planning: Planning, arguments: Arguments) -> str:
    """Return the first argument, which must name a view set or table of the snapshot."""
    name = arguments.text(0)
    if name not in planning.view_sets:
        raise UnknownViewSet(
            f"no view set is called {name!r}", hint="see what there is in list_view_sets()"
        )
    return name


TABLES = [
    LakeTable("list_columns()", _list_columns),
    LakeTable("explain_empty(view_set, begin, end)", _explain_empty),
]
CHANGES = [
    LakeChange(
        "restore_partition(partition_id)",
        [pa.string()],
        lambda changes, rows: changes.restore_partitions([row[0] for row in rows]),
    ),
]
