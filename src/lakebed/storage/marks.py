"""The mark in a store that names its lake, so that no file of another lake is ever deleted."""

from __future__ import annotations

import json

from lakebed.errors import AlreadyThere, Refused, UnknownObject
from lakebed.storage import layout
from lakebed.storage.objects import Store, put, read_all


def write_mark(store: Store, lake_id: str) -> None:
    """Mark a store as this lake's; a no-op if it is already, `Refused` if it is another's."""
    try:
        put(store, layout.MARK, json.dumps({"lake_id": lake_id}).encode())
    except AlreadyThere:
        require_mark(store, lake_id)


def find_mark(store: Store) -> str | None:
    """Return the id of the lake that this store belongs to, or None if it has no mark."""
    try:
        text = read_all(store, layout.MARK)
    except UnknownObject:
        return None
    try:
        return str(json.loads(text)["lake_id"])
    except (ValueError, KeyError, TypeError):
        raise Refused(f"the mark {layout.MARK} in {store.url} is not readable") from None


def require_mark(store: Store, lake_id: str) -> None:
    """Raise unless the store belongs to this lake."""
    marked_id = find_mark(store)
    if marked_id != lake_id:
        whose = (
            "is not marked as any lake's" if marked_id is None else f"belongs to lake {marked_id}"
        )
        raise Refused(
            f"the store {store.url} {whose}, the catalog is of lake {lake_id}",
            hint="was the store moved, emptied or restored from elsewhere?",
        )
