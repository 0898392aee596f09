"""List the files of a foreign tree and classify them by their bytes. Files are opened for reading
only. A footer reaches pyarrow only after our own check: some footers abort the process.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lakebed.errors import BadInput, DamagedFooter
from lakebed.storage import footer as footers
from lakebed.tables.importing.report import FileClass, ImportFile
from lakebed.tables.insert.convert_columns import as_values
from lakebed.tables.insert.pandas_index import list_row_numbers, without_row_numbers

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_CHUNK_BYTES = 8 << 20
_BATCH_ROWS = 1 << 16
_SAMPLE_ROWS = 100


class Broken(Exception):
    """The file cannot be read to its end; the message says why."""


@dataclass(frozen=True, slots=True)
class InspectedFile:
    """A file of the tree with the facts read from its bytes. If ``schema`` is set, ``file.kind`` is
    SOUND so far; the rows have not been checked."""

    file: ImportFile
    source: Path
    schema: pa.Schema | None = None
    footer: bytes = b""
    """The digest of the footer that was walked."""


# ---- the tree -----------------------------------------------------------------------------------


def list_tree(folder: Path) -> list[tuple[ImportFile, Path]]:
    """Return every file and every empty folder below a folder, sorted by path, without opening
    files. Entries that must not be opened have their final class, all others are SOUND so far."""
    if not folder.is_dir():
        return [(describe(folder, folder.name), folder)]
    entries: list[tuple[ImportFile, Path]] = []
    unread: list[OSError] = []
    for directory, folders, names in os.walk(folder, onerror=unread.append):
        at = Path(directory)
        links = [name for name in folders if (at / name).is_symlink()]
        for name in [*names, *links]:
            entries.append((describe(at / name, _relative(at / name, folder)), at / name))
        if not names and not folders and at != folder:
            entries.append((_folder(at, folder, FileClass.EMPTY_DIRECTORY, ""), at))
    for error in unread:
        at = Path(error.filename)
        reason = (error.strerror or "cannot be listed").lower()
        entries.append((_folder(at, folder, FileClass.UNREADABLE, reason), at))
    return sorted(entries, key=lambda entry: entry[0].path)


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _folder(path: Path, root: Path, kind: FileClass, reason: str) -> ImportFile:
    modified = path.lstat().st_mtime_ns // 1000
    return ImportFile(_relative(path, root), kind, reason=reason, modified=modified)


def describe(path: Path, relative: str) -> ImportFile:
    """Classify a file without opening it: SOUND unless its metadata rules it out."""
    try:
        status = path.stat()
    except OSError as error:
        is_link = path.is_symlink()
        reason = "a link to nothing" if is_link else (error.strerror or str(error)).lower()
        return ImportFile(relative, FileClass.UNREADABLE, reason=reason)
    modified = status.st_mtime_ns // 1000
    if stat.S_ISDIR(status.st_mode):
        reason = "a link to a folder, which is not followed"
        return ImportFile(relative, FileClass.NOT_A_FILE, reason=reason, modified=modified)
    if not stat.S_ISREG(status.st_mode):
        reason = "a pipe, a socket or a device"
        return ImportFile(relative, FileClass.NOT_A_FILE, reason=reason, modified=modified)
    return ImportFile(relative, FileClass.SOUND, status.st_size, modified=modified)


# ---- one file -----------------------------------------------------------------------------------


def inspect_file(file: ImportFile, source: Path, unfinished: str | None) -> InspectedFile:
    """Classify a file by its bytes. ``unfinished`` is the reason why its name rules it out."""
    if file.kind is not FileClass.SOUND:
        return InspectedFile(file, source)
    try:
        with source.open("rb") as opened:
            size, digest = _digest(opened)
            file = replace(file, size=size, digest=digest if size else "")
            if unfinished is not None:
                kind, reason = FileClass.TEMPORARY, unfinished
            elif not size:
                kind, reason = FileClass.ZERO_BYTES, ""
            else:
                kind, reason = _classify_by_ends(opened, size)
            if kind is not FileClass.SOUND:
                return InspectedFile(replace(file, kind=kind, reason=reason), source)
            footer = _read_footer(opened, size)
            parsed = footers.parse(footer, path="it")
            schema = _open(opened, parsed).schema_arrow
            for name in list_row_numbers(schema):
                schema = schema.remove(schema.get_field_index(name))
    except (Broken, DamagedFooter) as error:
        return InspectedFile(
            replace(file, kind=FileClass.UNREADABLE, reason=_explain(error)), source
        )
    except OSError as error:  # from the system: no byte of the file was read
        reason = (error.strerror or str(error)).lower()
        return InspectedFile(
            replace(file, kind=FileClass.UNREADABLE, reason=reason, digest=""), source
        )
    return InspectedFile(
        replace(file, rows=parsed.num_rows), source, schema, footers.digest(footer)
    )


def _digest(opened: BinaryIO) -> tuple[int, str]:
    sha256, size = hashlib.sha256(), 0
    while chunk := opened.read(_CHUNK_BYTES):
        sha256.update(chunk)
        size += len(chunk)
    return size, sha256.hexdigest()


def _classify_by_ends(opened: BinaryIO, size: int) -> tuple[FileClass, str]:
    """Return the class by the first and last bytes, with a reason; SOUND if both are Parquet's."""
    opened.seek(0)
    head = opened.read(len(_MAGIC))
    if head == _ENCRYPTED:
        return FileClass.UNREADABLE, "it is encrypted"
    if head != _MAGIC:
        short = size < len(_MAGIC) and _MAGIC.startswith(head)
        return (FileClass.TRUNCATED, "it ends at once") if short else (FileClass.NOT_PARQUET, "")
    try:
        _measure_footer(opened, size)
    except DamagedFooter as error:
        return FileClass.TRUNCATED, _explain(error)
    return FileClass.SOUND, ""


def _measure_footer(opened: BinaryIO, size: int) -> int:
    opened.seek(max(0, size - footers.TRAILER_BYTES))
    trailer = opened.read(footers.TRAILER_BYTES)
    return footers.footer_length(trailer, path="it", file_size=size)


def _read_footer(opened: BinaryIO, size: int) -> bytes:
    length = _measure_footer(opened, size)
    opened.seek(size - footers.TRAILER_BYTES - length)
    return opened.read(length)


def _open(opened: BinaryIO, parsed: pq.FileMetaData) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(opened, metadata=parsed, page_checksum_verification=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise Broken(_explain(error)) from error


def read_batches(opened: BinaryIO, size: int, walked: bytes = b"") -> Iterator[pa.Table]:
    """Yield all rows of a Parquet file in batches; raise `Broken` where they cannot be read. A
    footer with the digest ``walked`` was checked before and is not checked again."""
    import pyarrow as pa

    try:
        footer = _read_footer(opened, size)
        trusted = bool(walked) and footers.digest(footer) == walked
        parsed = footers.parse(footer, path="it", trusted=trusted)
    except DamagedFooter as error:
        raise Broken(_explain(error)) from error
    file = _open(opened, parsed)
    count = 0
    batches = file.iter_batches(_BATCH_ROWS)
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise Broken(f"after row {count}: {_explain(error)}") from error
        if batch is None:
            break
        count += batch.num_rows
        yield without_row_numbers(pa.Table.from_batches([batch]))
    if count != parsed.num_rows:
        raise Broken(f"it has {count} rows where its footer counts {parsed.num_rows}")


def read_sample(inspected: InspectedFile, names: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return a file's first values in some columns, or none if it cannot be read. Times are in UTC:
    the values serve to guess types only."""
    import pyarrow as pa

    try:
        with inspected.source.open("rb") as opened:
            rows = next(read_batches(opened, inspected.file.size, inspected.footer), None)
    except (Broken, OSError):
        return []
    if rows is None:
        return []
    rows = rows.slice(0, _SAMPLE_ROWS)
    columns: dict[str, list[Any]] = {}
    for name, values in zip(rows.column_names, rows.columns, strict=True):
        if name in names:
            if pa.types.is_date(values.type):
                values = values.cast(pa.timestamp("ms"))
            if pa.types.is_timestamp(values.type):  # Python has no nanoseconds
                values = values.cast(pa.timestamp("us", "UTC"), safe=False)
            columns[name] = as_values(values.combine_chunks())
    return [{name: values[row] for name, values in columns.items()} for row in range(rows.num_rows)]


def require_source(folder: Path) -> Path:
    """Return the resolved path to import; raise `BadInput` if it does not exist."""
    try:
        source = folder.expanduser().resolve()
        source.stat()
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(
            f"cannot import {folder}: {why.lower()}", hint="name a folder of Parquet files, or one"
        ) from None
    return source


def _explain(error: BaseException) -> str:
    """Return the error as one line without the name of the file."""
    text = (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(error, DamagedFooter):
        what, _, cause = text.partition(": ")
        return f"damaged footer: {cause}" if "footer of" in what else cause
    return text
