"""Write files for one transaction: names are reserved, files written and validated, and then they
are published. View sets and users' tables write in this way only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from lakebed.errors import AlreadyThere, LeaseLost
from lakebed.model.view_set import ViewSet
from lakebed.storage import parquet
from lakebed.storage.objects import Store
from lakebed.storage.parquet import WrittenFile
from lakebed.writing.name_reservations import NamePool

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_ATTEMPTS = 2
_WRITERS = 4


@dataclass(frozen=True, slots=True)
class NewFile:
    """Conforming rows that become one file in a folder of a view set."""

    view_set: ViewSet
    folder: str
    rows: pa.Table


class FileWriter:
    """Writes files under reserved names. Safe to use from several threads."""

    def __init__(self, store: Store, names: NamePool) -> None:
        self._store = store
        self._names = names

    def publish(self, new: Sequence[NewFile], commit: Callable[[str, list[WrittenFile]], T]) -> T:
        """Write the files and pass them to ``commit`` with the lease that owns their names; repeat
        it under other names if these were lost. If it raises, the files are left to sweeps."""
        keys = [(file.view_set.name, file.folder) for file in new]
        for attempt in range(_ATTEMPTS):
            lease, names = "", {}
            for key, count in Counter(keys).items():
                lease, names[key] = self._names.take(*key, count)
            paths = [names[key].pop() for key in keys]
            try:
                with self._names.using(lease, paths):
                    return commit(lease, self._write(new, paths))
            except (LeaseLost, AlreadyThere):
                # The process seemed dead, or the answer to a write was lost: the rows are here.
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("every attempt returns or raises")

    def _write(self, new: Sequence[NewFile], paths: Sequence[str]) -> list[WrittenFile]:
        def write(store: Store, file: NewFile, path: str) -> WrittenFile:
            return parquet.write(store, path, file.rows, file.view_set)

        if len(new) <= 1:
            return [write(self._store, file, path) for file, path in zip(new, paths, strict=True)]
        with self._store.together() as store, ThreadPoolExecutor(_WRITERS) as writers:
            return list(writers.map(partial(write, store), new, paths))
