"""Checks of any folder of Parquet files, a foreign Hive-style tree included, local or on S3.

A check only reads, opens no lake, and needs memory for one batch of files, however many there are.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from lakebed.errors import BadInput, Damage, LakebedError, UnknownObject
from lakebed.storage import footer as footers
from lakebed.storage import parquet
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import Listed, Store, open_store
from lakebed.tables.importing.paths import find_unfinished, list_bad_times, read_folders, show_path

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

DAMAGE, WARNING, NOTE = "damage", "warning", "note"
MOST_FINDINGS = 1000
"""So many findings of a kind are kept; the others are counted."""

_BATCH = 64
_THREADS = 8
_PAGE_THREADS = 2
"""Each holds the decoded pages of a row group."""
_MOST_VARIANTS = 200
"""So many different schemas, and combinations of folder names, are distinguished."""
_SHOWN = 3
_MAGICS = (b"PAR1", b"PARE")


@dataclass(frozen=True, slots=True)
class TreeFinding:
    """A finding about a file or folder; ``subject`` is its path in the tree."""

    severity: str
    kind: str
    subject: str
    message: str


@dataclass(slots=True)
class TreeReport:
    """The result of a check. ``counts`` has every finding, ``findings`` the first of each kind."""

    source: str
    pages: bool
    folders: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    findings: list[TreeFinding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    damaged: int = 0

    @property
    def is_clean(self) -> bool:
        """Return True if nothing is damaged; warnings and notes do not count."""
        return not self.damaged

    def add(self, severity: str, kind: str, path: str, message: str) -> None:
        """Count a finding, and keep it if it is among the first of its kind."""
        self.counts[kind] += 1
        self.damaged += severity == DAMAGE
        if self.counts[kind] <= MOST_FINDINGS:
            subject = show_path(path) or self.source
            self.findings.append(TreeFinding(severity, kind, subject, message))


def check_tree(
    source: str | Path,
    *,
    pages: bool = False,
    progress: Callable[[TreeReport], None] = lambda _report: None,
) -> TreeReport:
    """Check every file below a folder or an ``s3://bucket/prefix``, or one local file.

    Finds folders and files without rows, files that cannot be read, files whose columns are not
    those of most files, and Hive-style folders whose values cannot be read. ``pages`` reads every
    page, else only footers are read. `BadInput` if nothing is stored there.
    """
    store, single = _open_source(source)
    report = TreeReport(str(source), pages)
    check = _Check(store, report, single)
    listed = (item for item in store.list() if single is None or item.path == single)
    with ThreadPoolExecutor(_PAGE_THREADS if pages else _THREADS) as pool:
        while batch := list(islice(listed, _BATCH)):
            for item, look in zip(batch, pool.map(check.look, batch), strict=True):
                check.take(item, look)
            progress(report)
    check.finish()
    return report


def _open_source(source: str | Path) -> tuple[Store, str | None]:
    """Return the store of a folder or URL, and the path in it if it names one file."""
    if not isinstance(source, str | Path) or not str(source):
        raise BadInput(f"expected a folder or an s3:// URL, not {source!r}")
    if isinstance(source, str) and "://" in source:
        store = open_store(source)
        if not isinstance(store, LocalStore):
            return store, None
        path = store.root
    else:
        path = Path(source).expanduser().absolute()
    if not path.exists():
        raise BadInput(f"cannot check {source}: no such folder", hint="name a folder or a file")
    if path.is_file():
        return LocalStore(path.parent), path.name
    return LocalStore(path), None


@dataclass(slots=True)
class _Look:
    """The result of reading one file."""

    rows: int | None = None
    """None if they could not be counted."""
    columns: Mapping[str, str] = field(default_factory=dict)
    size: int = 0
    problem: tuple[str, str, str] | None = None
    """Severity, kind and message."""
    is_data: bool = True
    is_folder: bool = False


@dataclass(slots=True)
class _Folder:
    """A folder that the listing is in."""

    path: str
    files: int = 0
    rows: int = 0
    unreadable: int = 0
    has_folders: bool = False


@dataclass(slots=True)
class _Variant:
    """Files with the same columns, or with the same names of folders."""

    columns: Mapping[str, str]
    first: str
    files: int = 0


class _Check:
    """One check of a tree: files are read by threads, and counted in the order of the listing."""

    def __init__(self, store: Store, report: TreeReport, single: str | None) -> None:
        self._store = store
        self._report = report
        self._single = single
        self._folders: list[_Folder] = [_Folder("")]
        self._listed = 0
        self._schemas: dict[bytes, _Variant] = {}
        self._layouts: dict[bytes, _Variant] = {}
        self._numbers: dict[str, Counter[bool]] = {}
        """By folder name: how many values are numbers, and how many are not."""
        self._texts: dict[str, str] = {}
        """By folder name: the first folder whose value is not a number."""

    # -- one file, on a thread --------------------------------------------------------------------

    def look(self, item: Listed) -> _Look:
        """Read a file's footer, and its pages if they are checked."""
        parts = PurePosixPath(item.path).parts
        if item.empty_folder or not parts:
            return _Look(is_data=False, is_folder=True)
        if any(part.startswith(("_", ".")) for part in parts):
            return _Look(is_data=False)
        unfinished = find_unfinished(item.path)
        if unfinished is not None:
            return _Look(problem=(NOTE, "unfinished file", unfinished), is_data=False)
        try:
            return self._read(item.path)
        except UnknownObject:  # S3 has empty objects named like folders, which listings cut short
            return _Look(is_data=False, is_folder=True)
        except LakebedError as error:
            reason = str(error).splitlines()[0]
            return _Look(size=item.size, problem=(DAMAGE, "unreadable file", reason))

    def _read(self, path: str) -> _Look:
        size = self._store.size(path)
        if not size:
            return _Look(problem=(DAMAGE, "zero bytes", "the file has no bytes"))
        if self._store.read(path, 0, 4) not in _MAGICS:
            is_named = path == self._single or path.lower().endswith((".parquet", ".parq"))
            problem = (
                DAMAGE if is_named else NOTE,
                "not Parquet",
                "it does not begin like Parquet",
            )
            return _Look(size=size, problem=problem, is_data=is_named)
        try:
            footer = parquet.read_footer(self._store, path, size)
            parsed = footers.parse(footer, path=path)
            parquet.validate(parsed, path=path, num_rows=parsed.num_rows, expected_hash=None)
            columns = _describe_columns(parsed)
        except Damage as error:
            return _Look(size=size, problem=(DAMAGE, "unreadable footer", str(error)))
        if self._report.pages:
            reason = self._find_bad_page(path, parsed)
            if reason is not None:
                return _Look(None, columns, size, (DAMAGE, "unreadable page", reason))
        return _Look(parsed.num_rows, columns, size)

    def _find_bad_page(self, path: str, parsed: FileMetaData) -> str | None:
        """Read every page with its checksum, where there is one; return what is wrong."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        source = self._store.open(path)
        try:
            file = pq.ParquetFile(source, metadata=parsed, page_checksum_verification=True)
            rows = sum(batch.num_rows for batch in file.iter_batches())
        except (pa.ArrowException, OSError, ValueError) as error:
            return (str(error).splitlines() or [type(error).__name__])[0]
        finally:
            source.close()
        return None if rows == parsed.num_rows else f"it has {rows} rows, not {parsed.num_rows}"

    # -- the tree, in the order of the listing ----------------------------------------------------

    def take(self, item: Listed, look: _Look) -> None:
        """Count one listed item."""
        report = self._report
        self._listed += 1
        parent = str(PurePosixPath(item.path).parent)
        folder = self._enter(item.path if look.is_folder else "" if parent == "." else parent)
        if look.problem is not None:
            severity, kind, message = look.problem
            report.add(severity, kind, item.path, message)
        if not look.is_data:
            return
        report.files += 1
        report.bytes += look.size
        folder.files += 1
        if look.columns:
            _count(self._schemas, look.columns, item.path)
            _count(self._layouts, dict.fromkeys(read_folders(item.path), ""), item.path)
        if look.rows is None:
            folder.unreadable += 1
            return
        report.rows += look.rows
        folder.rows += look.rows
        if not look.rows:
            report.add(NOTE, "empty file", item.path, "the file has no rows")

    def _enter(self, path: str) -> _Folder:
        """Leave the folders that the path is not in, and enter those that lead to it."""
        parts = PurePosixPath(path).parts
        while len(self._folders) > 1 and not _is_in(path, self._folders[-1].path):
            self._leave(self._folders.pop())
        for depth in range(len(self._folders), len(parts) + 1):
            self._folders[-1].has_folders = True
            self._folders.append(_Folder("/".join(parts[:depth])))
            self._report.folders += 1
            self._check_value(self._folders[-1].path)
        return self._folders[-1]

    def _leave(self, folder: _Folder) -> None:
        if folder.has_folders or any(
            part.startswith(("_", ".")) for part in PurePosixPath(folder.path).parts
        ):
            return
        if not folder.files:
            message = "the folder has no Parquet files"
            self._report.add(NOTE, "empty folder", folder.path, message)
        elif not folder.rows and not folder.unreadable:
            files = "its file has" if folder.files == 1 else f"its {folder.files:,} files have"
            self._report.add(NOTE, "empty partition", folder.path, f"{files} no rows")

    def _check_value(self, path: str) -> None:
        """Check the value of one Hive-style folder."""
        name, equals, text = PurePosixPath(path).name.partition("=")
        if not equals or not name:
            return
        values = read_folders(f"{path}/file")
        if not text:
            self._report.add(WARNING, "folder value", path, f"folder {name}= has no value")
        for bad in list_bad_times(values, ()):
            if bad.split("/")[-1].startswith(f"{name}="):
                message = f"folder {show_path(bad)} does not name a time"
                self._report.add(WARNING, "folder value", path, message)
        if text and values.get(name) is not None:
            is_number = text.removeprefix("-").isdecimal()
            if not is_number:
                self._texts.setdefault(name, path)
            self._numbers.setdefault(name, Counter())[is_number] += 1

    def finish(self) -> None:
        """Report what only the whole tree shows."""
        while self._folders:
            self._leave(self._folders.pop())
        if not self._listed and not isinstance(self._store, LocalStore):
            raise BadInput(f"nothing is stored below {self._report.source}")
        for name, path in self._texts.items():
            numbers, texts = self._numbers[name][True], self._numbers[name][False]
            if numbers >= 10 * texts:
                message = f"the value is not a number, as {numbers:,} other values of {name} are"
                self._report.add(WARNING, "folder value", path, message)
        self._compare(self._schemas, "schema drift", _describe_drift)
        self._compare(self._layouts, "folder names", _describe_layout)

    def _compare(
        self,
        variants: Mapping[bytes, _Variant],
        kind: str,
        describe: Callable[[_Variant, _Variant], str],
    ) -> None:
        """Report the files that are not like most files, once for each variant."""
        if len(variants) < 2:
            return
        usual = max(variants.values(), key=lambda variant: variant.files)
        for variant in variants.values():
            if variant is not usual:
                files = "1 file" if variant.files == 1 else f"{variant.files:,} files, this first"
                message = f"{files}: {describe(variant, usual)}"
                self._report.add(WARNING, kind, variant.first, message)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _count(variants: dict[bytes, _Variant], columns: Mapping[str, str], path: str) -> None:
    key = hashlib.sha256(repr(sorted(columns.items())).encode(errors="surrogateescape")).digest()
    if key not in variants:
        if len(variants) >= _MOST_VARIANTS:
            return
        variants[key] = _Variant(columns, path)
    variants[key].files += 1


def _describe_columns(parsed: FileMetaData) -> dict[str, str]:
    """Return the type of each column, as Parquet names it."""
    columns = {}
    for index in range(parsed.num_columns):
        column = parsed.schema.column(index)
        logical = str(column.logical_type)
        columns[column.path] = column.physical_type if logical == "None" else logical
    return columns


def _describe_drift(variant: _Variant, usual: _Variant) -> str:
    lacks = [name for name in usual.columns if name not in variant.columns]
    also = [name for name in variant.columns if name not in usual.columns]
    other = [
        f"{name} is {kind}, not {usual.columns[name]}"
        for name, kind in variant.columns.items()
        if usual.columns.get(name, kind) != kind
    ]
    differences = [f"lacks {_join(lacks)}"] if lacks else []
    differences += [f"has also {_join(also)}"] if also else []
    differences += [_join(other)] if other else []
    return show_path("; ".join(differences))


def _describe_layout(variant: _Variant, usual: _Variant) -> str:
    return (
        f"in folders {_join(list(variant.columns)) or 'without names'}, "
        f"not {_join(list(usual.columns)) or 'without names'}"
    )


def _join(names: list[str]) -> str:
    more = [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return ", ".join([*names[:_SHOWN], *more])


def list_empty(report: TreeReport) -> Iterator[TreeFinding]:
    """Return the findings about folders and files without rows."""
    kinds = ("empty folder", "empty partition", "empty file", "zero bytes")
    return (finding for finding in report.findings if finding.kind in kinds)
