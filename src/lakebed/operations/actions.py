"""Operations as Flight actions: those that only read need the role read, those that change the lake
the role admin, and only administrators see them in the list.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakebed.access.keys import Caller, Role
from lakebed.catalog.acting import on_behalf_of
from lakebed.errors import Denied, Unsupported
from lakebed.operations import lookups, retirement  # noqa: F401  (they declare the operations)
from lakebed.operations.operation import OPERATIONS, PREFIX, OperableLake, Operation


def find_remote() -> dict[str, Operation]:
    """Return the operations that work over a connection, by name."""
    return {name: operation for name, operation in OPERATIONS.items() if operation.instead is None}


def list_actions(caller: Caller) -> dict[str, str]:
    """Return the actions that a caller may use, with their summaries."""
    return {
        operation.action: operation.summary
        for operation in find_remote().values()
        if caller.may(Role.ADMIN) or not operation.changes
    }


def act(lake: OperableLake, caller: Caller, action: str, body: bytes) -> Iterator[bytes]:
    """Run an action on behalf of the caller; return its result in pieces."""
    operation = find_remote().get(action.removeprefix(PREFIX))
    if operation is None or operation.action != action:
        raise Unsupported(f"there is no action {action}")
    if operation.changes and not caller.may(Role.ADMIN):
        raise Denied(f"function {operation.name} needs the admin role")
    with on_behalf_of(caller.asker):
        pieces = list(operation.answer(lake, body))
    yield from pieces
