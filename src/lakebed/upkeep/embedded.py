"""A lake inside a program that has no server: when it is closed, it does a bounded share of what is
due. Never more than a batch of files, and nothing that needs Spark.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebed.lake import Lake, init_lake, open_lake
from lakebed.settings import read_settings
from lakebed.upkeep.duties import SHARE
from lakebed.upkeep.upkeep import Upkeep

if TYPE_CHECKING:
    from lakebed.settings import Settings


def open_embedded(
    path_or_url: str | Path, *, read_only: bool = False, settings: Settings | None = None
) -> Lake:
    """Open the lake in a folder, or the one whose catalog is at a URL. Fails without changing
    anything if there is none or its catalog is of another shape than this program's."""
    settings = settings or read_settings()
    lake = open_lake(path_or_url, read_only=read_only, settings=settings)
    return _tended(lake, settings)


def init_embedded(
    path: str | Path = ".", *, settings: Settings | None = None, **options: Any
) -> Lake:
    """Make a new lake and open it; the options are those of `lakebed.lake.init_lake`."""
    settings = settings or read_settings()
    return _tended(init_lake(path, settings=settings, **options), settings)


def _tended(lake: Lake, settings: Settings) -> Lake:
    """A shared catalog has servers that tend it."""
    if settings.tend_on_close and lake.is_embedded and not lake.catalog.read_only:
        lake.before_close = tend
    return lake


def tend(lake: Lake) -> None:
    """Do a share of what is due; what fails is recorded like every duty's failure."""
    Upkeep(lake, SHARE).run_due(patient=False)
