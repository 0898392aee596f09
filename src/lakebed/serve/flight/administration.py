"""`lakebed.admin` as actions: those that only look are for everybody who may read, those that
change the lake for administrators, who alone are told of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lakebed import admin  # noqa: F401  (its functions declare themselves)
from lakebed.access.keys import Caller, Role
from lakebed.catalog.acting import on_behalf_of
from lakebed.client.remote import FUNCTIONS, PREFIX
from lakebed.errors import Denied, Unsupported

if TYPE_CHECKING:
    from lakebed.lake import Lake


def list_actions(caller: Caller) -> dict[str, str]:
    """The actions that a caller may ask for, and what they do."""
    return {
        PREFIX + name: (each.function.__doc__ or "").split(".")[0].split(":")[0]
        for name, each in FUNCTIONS.items()
        if caller.may(Role.ADMIN) or not each.changes
    }


def act(lake: Lake, caller: Caller, action: str, body: bytes) -> Iterator[bytes]:
    """Do what an action says, on behalf of the caller; its result in pieces."""
    name = action.removeprefix(PREFIX)
    known = FUNCTIONS.get(name)
    if known is None or name == action:
        raise Unsupported(f"there is no action {action}")
    if known.changes and not caller.may(Role.ADMIN):
        raise Denied(f"function {name} needs the admin role")
    with on_behalf_of(caller.asker):
        pieces = list(known.answer(lake, body))
    yield from pieces
