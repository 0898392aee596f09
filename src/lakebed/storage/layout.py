"""Every path in a store is spelled here. Paths are relative to the store, so a lake can be moved.

    lake.json                                                 the store's mark: whose it is
    partitions/<view set>/<instance>/<yyyy-mm>/<id>.parquet   one partition's rows
    probe-<id>                                                made and removed by a probe

No path contains ``=``: engines would take such folders for partition columns.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from lakebed.errors import BadInput

MARK = "lake.json"
CATALOG_FILE = "catalog.sqlite3"
STORE_FOLDER = "store"
ROOT = "partitions"
_PARTITION = re.compile(
    r"partitions/[a-z][a-z0-9_]*/[A-Za-z0-9][\w.-]*/\d{4}-\d\d/[0-9a-f-]{36}\.parquet"
)


def partition_path(view_set: str, instance: str, tick: int, file_id: str) -> str:
    """The path of a new partition's file, filed by the month of its reservation."""
    month = datetime.fromtimestamp(tick // 1_000_000, UTC).strftime("%Y-%m")
    return f"partitions/{view_set}/{instance}/{month}/{file_id}.parquet"


def probe_path(probe_id: str) -> str:
    """Where a probe writes its few bytes."""
    return f"probe-{probe_id}"


def is_ours(path: str) -> bool:
    """Whether Lakebed could have written a file at this path."""
    return path == MARK or path.startswith("probe-") or _PARTITION.fullmatch(path) is not None


def check_path(path: str) -> str:
    """The path, if it is relative, plain and stays inside the store."""
    parts = path.split("/")
    odd = "\\" in path or not path.isprintable()
    if odd or any(part in ("", ".", "..") for part in parts):
        raise BadInput(
            f"{path!r} is not a path inside the lake",
            hint="give the path as `lakebed partitions list` shows it",
        )
    return path
