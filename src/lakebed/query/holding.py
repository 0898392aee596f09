"""A stream that vouches for its rows: all files that it read are still there when it gives its
first ones, and at its end. The embedded engine passes over a file that is gone without a word, and
files never come back; so what is there at the end was there all the time. Sums and sorted rows are
made of everything that is read, so that the first ones are as right as the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lakebed.errors import BadSql, Damage, DamagedFile, LakebedError, UnknownObject
from lakebed.model.partition import NO_SOURCE, Partition
from lakebed.query.result import Stream
from lakebed.query.snapshot import StatementSnapshot
from lakebed.storage import parquet
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import Store

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.query.verifying import Verification

_REQUESTS = 32


class HeldStream:
    """Another stream over the files of a snapshot. If one of them is missing it raises: that the
    snapshot was lost, or else that the lake is damaged."""

    def __init__(
        self,
        stream: Stream,
        snapshot: StatementSnapshot,
        store: Store,
        verification: Verification | None = None,
    ) -> None:
        self.schema = stream.schema
        self._stream = stream
        self._snapshot = snapshot
        self._store = store
        self._verification = verification

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            if self._verification is not None:
                self._verification.run()
            is_first = True
            for batch in self._stream:
                if is_first:
                    self._require_unchanged()
                is_first = False
                yield batch
            self._require_unchanged()
        except (Damage, BadSql) as error:
            if isinstance(error, Damage):
                self._snapshot.require_held()
            files = self._snapshot.files
            named = name_damage(error, files, self._store, self._verification)
            if named is error:  # an error is not its own cause
                if isinstance(error, Damage) and error.unless_damaged is not None:
                    raise error.unless_damaged from error
                raise
            raise named from error

    def _require_unchanged(self) -> None:
        """Raise unless every file is there, and verified as it is now."""
        versions = _require_there(self._store, self._snapshot.files)
        if self._verification is not None:
            self._verification.run(versions)

    def cancel(self) -> None:
        if self._verification is not None:
            self._verification.cancel()
        self._stream.cancel()

    def close(self) -> None:
        self._stream.close()


def name_damage(
    error: LakebedError,
    files: Sequence[Partition],
    store: Store,
    verification: Verification | None = None,
) -> LakebedError:
    """The same with the file that is damaged: an engine that cannot read one does not say which,
    and takes an empty one for a table without columns."""
    if isinstance(error, DamagedFile):
        return error
    try:
        versions = _require_there(store, files)
        if verification is not None:
            verification.run(versions)
    except DamagedFile as damage:
        return damage
    for partition in files if isinstance(error, Damage) else ():
        reason = _find_damage(store, partition)
        if reason is not None:
            return DamagedFile(
                f"cannot read {partition.describe()}: {reason}",
                hint=suggest_repair(partition),
            )
    return error


def suggest_repair(partition: Partition) -> str:
    """Return what can be done about a damaged file."""
    retire = partition.retire_command
    if partition.source_hash == NO_SOURCE:
        return f"put the file back from a backup, or accept the loss with: {retire}"
    return (
        "upkeep has it built again if its blocks are still there, and at once after: "
        f"{retire}; otherwise put the file back from a backup"
    )


def _find_damage(store: Store, partition: Partition) -> str | None:
    """What is wrong with a file, down to the checksums of its pages."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = partition.file_path or ""
    try:
        source = store.open(path)
        try:
            file = pq.ParquetFile(source, page_checksum_verification=True)
            parquet.validate(
                file.metadata,
                path=path,
                num_rows=partition.num_rows,
                expected_hash=partition.schema_hash,
            )
            for _ in file.iter_batches():
                pass
        finally:
            source.close()
    except (pa.ArrowException, LakebedError, OSError, ValueError) as error:
        return str(error).splitlines()[0]
    return None


def _require_there(store: Store, files: Sequence[Partition]) -> dict[str, str]:
    """Return the version of every file, or raise unless it is in the store and as large as the
    catalog says."""

    def check(partition: Partition) -> tuple[str, str]:
        path = partition.file_path or ""
        try:
            size, version = store.version(path)
        except UnknownObject as missing:
            raise DamagedFile(
                f"the file of {partition.describe()} is missing", hint=suggest_repair(partition)
            ) from missing
        if size != partition.file_size:
            raise DamagedFile(
                f"the file of {partition.describe()} has {size} bytes, not {partition.file_size}",
                hint=suggest_repair(partition),
            )
        return path, version

    if isinstance(store, LocalStore) or len(files) < 2:
        return dict(map(check, files))
    with ThreadPoolExecutor(_REQUESTS) as pool:
        return dict(pool.map(check, files))
