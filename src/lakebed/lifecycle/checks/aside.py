"""Files that an operator sets aside (quarantine), and candidates for it."""

from __future__ import annotations

from lakebed.catalog.catalog import Connection
from lakebed.catalog.records import blocks, files, partitions
from lakebed.catalog.records.files import TemporaryFile
from lakebed.errors import BadInput, Conflict
from lakebed.model.partition import FileState, Partition
from lakebed.storage import layout
from lakebed.storage.objects import Store


def get_candidate(
    connection: Connection, store: Store, path: str
) -> tuple[TemporaryFile, list[Partition]]:
    """Return a file that can be set aside, as it would be recorded, and the live partitions with
    it. Raises if there is no such file, or if it must not be set aside."""
    if layout.check_path(path) == layout.MARK:
        raise BadInput(f"{path} is the store's mark and not a file to set aside")
    size = store.size(path)
    file = files.find_file(connection, path)
    if file is not None and file.state in (FileState.STAGED, FileState.DELETING):
        raise Conflict(f"{path} is {file.state} and cannot be quarantined")
    if blocks.has_segment(connection, path):
        raise Conflict(
            f"{path} holds landed blocks and cannot be quarantined",
            hint="if it is damaged, put the file back from a backup",
        )
    live = [
        partition for partition in partitions.list_by_path(connection, path) if partition.is_live
    ]
    return TemporaryFile(path, size, FileState.QUARANTINED), live


def get_aside(connection: Connection, path: str) -> TemporaryFile:
    """Return a file that was set aside. `Conflict` if it was not, or is condemned already."""
    file = files.find_file(connection, layout.check_path(path))
    if file is None or file.state is not FileState.QUARANTINED:
        raise Conflict(f"{path} is not set aside", hint="what is: lakebed check --json")
    return file
