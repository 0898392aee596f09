"""Build and recognise every path in a store. Paths are relative to the store, so a lake can be
moved.

    lake.json                                                 the store's mark: whose it is
    partitions/<view set>/<instance>/<yyyy-mm>/<id>.parquet   one partition's rows
    segments/<yyyy-mm>/<id>.segment                           the bytes of many blocks, as they came
    quarantine/<sha256>-<id>.file                             foreign bytes, kept as they were found
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
ROOTS = ("partitions", "segments", "quarantine")
SEGMENTS = "segments/"
_PARTITION = re.compile(
    r"partitions/[a-z][a-z0-9_]*/[A-Za-z0-9][\w.-]*/\d{4}-\d\d/[0-9a-f-]{36}\.parquet"
)

_SEGMENT = re.compile(r"segments/\d{4}-\d\d/[0-9a-f-]{36}\.segment")
_QUARANTINED = re.compile(r"quarantine/[0-9a-f]{64}-[0-9a-f-]{36}\.file")


def partition_path(view_set: str, instance: str, tick: int, file_id: str) -> str:
    """Return the path of a new partition's file, filed by the month of its reservation."""
    return f"partitions/{view_set}/{instance}/{_month(tick)}/{file_id}.parquet"


def segment_path(tick: int, file_id: str) -> str:
    """Return the path of a new segment, filed by the month of its reservation."""
    return f"segments/{_month(tick)}/{file_id}.segment"


def quarantine_path(digest: str, file_id: str) -> str:
    """Return the path of quarantined bytes, which the digest identifies.
    Paths of the same bytes begin alike, up to an empty id."""
    return f"quarantine/{digest}-{file_id}" + (".file" if file_id else "")


def _month(tick: int) -> str:
    return datetime.fromtimestamp(tick // 1_000_000, UTC).strftime("%Y-%m")


def probe_path(probe_id: str) -> str:
    """Return the path of the object that a probe writes."""
    return f"probe-{probe_id}"


def is_ours(path: str) -> bool:
    """Return True if Lakebed could have written a file at this path."""
    patterns = (_PARTITION, _SEGMENT, _QUARANTINED)
    is_known_path = any(pattern.fullmatch(path) is not None for pattern in patterns)
    return path == MARK or path.startswith("probe-") or is_known_path


def is_segment(path: str) -> bool:
    """Return True if a path has the form of a segment's path."""
    return _SEGMENT.fullmatch(path) is not None


def check_path(path: str) -> str:
    """Return the path; raise unless it is relative, printable and inside the store."""
    parts = path.split("/")
    odd = "\\" in path or not path.isprintable()
    if odd or any(part in ("", ".", "..") for part in parts):
        raise BadInput(
            f"{path!r} is not a path inside the lake",
            hint="give the path as `lakebed partitions list` shows it",
        )
    return path
