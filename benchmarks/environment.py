"""Where the figures come from: printed before them, because they mean nothing without it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.harness import connect_postgres, stopwatch
from lakebed.catalog.connections.dialects import find_dialect

_FILES = 300
_LIBRARIES = ("lakebed", "pyarrow", "sqlalchemy", "psycopg", "deltalake", "pyiceberg")


def describe(folder: Path, server_url: str) -> dict[str, str]:
    """What this run stands on, in the order in which it is printed."""
    return {
        "CPU": f"{_cpu_model()}, {os.cpu_count()} cores",
        "memory": _memory(),
        "load before": ", ".join(f"{load:.2f}" for load in os.getloadavg()),
        "system": f"{platform.system()} {platform.release()}",
        "temporary files": _file_system(folder),
        "Python": platform.python_version(),
        "libraries": ", ".join(f"{name} {_version(name)}" for name in _LIBRARIES),
        "SQLite": find_dialect(f"sqlite:///{folder}/catalog.sqlite3").describe(),
        "PostgreSQL": _postgres(server_url),
    }


def creating_a_file_us(folder: Path) -> float:
    """How long it takes to create an empty file, in microseconds. To find an inode, ext4 passes
    over those that were deleted in the last one to six minutes, one by one: after thousands were,
    each new file takes up to fifty times as long."""

    def create() -> None:
        for number in range(_FILES):
            os.close(os.open(folder / str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL))

    return stopwatch(create) / _FILES * 1e6


def _cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> str:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return f"{pages * size / 2**30:.0f} GiB"


def _file_system(folder: Path) -> str:
    """The type of the file system that holds the folder."""
    mounts = Path("/proc/self/mounts")
    best, kind = "", "unknown"
    for line in mounts.read_text().splitlines() if mounts.exists() else ():
        _device, point, found, *_rest = line.split()
        if folder.resolve().is_relative_to(point) and len(point) >= len(best):
            best, kind = point, found
    return kind


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def _postgres(server_url: str) -> str:
    with connect_postgres(server_url) as connection:
        settings = {
            name: connection.exec_driver_sql(f"SHOW {name}").scalar()
            for name in ("server_version", "fsync", "synchronous_commit", "shared_buffers")
        }
    number = settings.pop("server_version")
    return f"{number} ({', '.join(f'{name}={value}' for name, value in settings.items())})"
