"""A lake inside a program without a server: when it is closed, it does a bounded share of the
duties that are due. Never more than a batch of files, and nothing that needs Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from lakebed.lake import Lake
from lakebed.opening import init_lake, open_lake
from lakebed.upkeep.duties import SHARE
from lakebed.upkeep.upkeep import Upkeep

Asked = ParamSpec("Asked")


def _tended(get_lake: Callable[Asked, Lake]) -> Callable[Asked, Lake]:
    """Return the lake with a share of upkeep when it is closed. A shared catalog has servers for
    that."""

    @wraps(get_lake)
    def get_tended(*arguments: Asked.args, **options: Asked.kwargs) -> Lake:
        lake = get_lake(*arguments, **options)
        if lake.settings.tend_on_close and lake.is_embedded and not lake.catalog.read_only:
            lake.before_close = tend
        return lake

    return get_tended


def tend(lake: Lake) -> None:
    """Do a share of the duties that are due; a failure is recorded like that of every duty."""
    Upkeep(lake, SHARE).run_due(patient=False)


open_embedded = _tended(open_lake)
init_embedded = _tended(init_lake)
