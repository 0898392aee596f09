"""Lakebed: a telemetry lakehouse whose truth is a transactional SQL catalog.

import lakebed

lake = lakebed.init("weather")          # or open("weather"), or connect("grpc://…") for queries
lake.views.register(lakebed.ViewSet(…))
lake.partitions.publish("readings", begin, end, rows)
with lake.partitions.snapshot("readings") as snapshot:
    snapshot.read_all("readings")
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    raise ImportError("lakebed runs on Linux and macOS, not on Windows: use it in WSL 2")

if TYPE_CHECKING:
    from lakebed.client.client import Client, connect
    from lakebed.errors import LakebedError
    from lakebed.lake import Lake
    from lakebed.model.time import TimeRange
    from lakebed.model.view_set import ViewSet
    from lakebed.upkeep.embedded import init_embedded as init
    from lakebed.upkeep.embedded import open_embedded as open  # noqa: A004
    from lakebed.views.sql.declaration import SqlView
    from lakebed.writing.publish import NewPartition

__version__ = "0.1.0"
__all__ = [
    "Client",
    "Lake",
    "LakebedError",
    "NewPartition",
    "SqlView",
    "TimeRange",
    "ViewSet",
    "connect",
    "init",
    "open",
]

_HOMES = {
    "Client": ("lakebed.client.client", "Client"),
    "Lake": ("lakebed.lake", "Lake"),
    "LakebedError": ("lakebed.errors", "LakebedError"),
    "NewPartition": ("lakebed.writing.publish", "NewPartition"),
    "SqlView": ("lakebed.views.sql.declaration", "SqlView"),
    "TimeRange": ("lakebed.model.time", "TimeRange"),
    "ViewSet": ("lakebed.model.view_set", "ViewSet"),
    "connect": ("lakebed.client.client", "connect"),
    "init": ("lakebed.upkeep.embedded", "init_embedded"),
    "open": ("lakebed.upkeep.embedded", "open_embedded"),
}

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless somebody listens


def __getattr__(name: str) -> Any:
    """Public names are loaded when first used, so that `import lakebed` stays cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module 'lakebed' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)
