"""Keys of the lake's servers: the list, creating one, and revoking one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakebed.access.keys import Role
from lakebed.catalog.records.keys import Key
from lakebed.errors import BadInput, NotFound
from lakebed.lake import Lake
from lakebed.model.time import format_instant
from lakebed.web.notes import FormResult

_PATH = "/admin/keys"
_ROLES = {
    Role.INGEST.value: "sends telemetry and records; reads nothing",
    Role.READ.value: "queries, and sees the pages; changes nothing",
    Role.ADMIN.value: "may do everything",
}


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key, without its secret."""

    key_id: str
    name: str
    roles: Sequence[str]
    created: str
    last_used: str | None
    revoked: str | None


@dataclass(frozen=True, slots=True)
class KeysPage:
    """The data of the page."""

    keys: Sequence[KeyRow]
    has_any: bool
    """True if a key was ever made; without any, the server needs none."""
    roles: Mapping[str, str]
    """The roles of keys."""


@dataclass(frozen=True, slots=True)
class RevokingPage:
    """A key that may be revoked."""

    key: KeyRow
    warnings: Sequence[str]


def list_keys(lake: Lake) -> list[KeyRow]:
    """Return every key there ever was, the oldest first."""
    return [_show(key) for key in lake.keys.list_keys()]


def read_keys(lake: Lake) -> KeysPage:
    """Return the keys, and what one can be for."""
    rows = list_keys(lake)
    return KeysPage(rows, bool(rows), _ROLES)


def read_revoking(lake: Lake, key_id: str, asker: str) -> RevokingPage:
    """Return one key in force, and the consequences of ending it; ``asker`` is the name of the
    caller."""
    in_force = [key for key in lake.keys.list_keys() if key.revoked_at is None]
    ending = [key for key in in_force if key.key_id == key_id]
    if not ending:
        raise NotFound(
            f"no key in force has the id {key_id!r}", hint="it may have been revoked already"
        )
    return RevokingPage(_show(ending[0]), plan_warnings(ending[0], in_force, asker))


def plan_warnings(ending: Key, in_force: Sequence[Key], asker: str) -> list[str]:
    """Return warnings about ending a key. Pure."""
    other_keys = [key for key in in_force if key.key_id != ending.key_id]
    warnings = []
    if ending.name == asker:
        warnings.append("It has your name: if it is the one that you came with, you are locked out")
    if not other_keys:
        warnings.append(
            "It is the last key: nobody can come in until another is made, on the command line: "
            "lakebed keys create NAME --role admin"
        )
    elif not any(Role.ADMIN in key.roles for key in other_keys) and Role.ADMIN in ending.roles:
        warnings.append(
            "It is the last one of the role admin. To make another, the command line is left: "
            "lakebed keys create NAME --role admin"
        )
    return warnings


def create(lake: Lake, fields: Mapping[str, str]) -> FormResult:
    """Make a key, which is shown once."""
    roles = [role for role in _ROLES if fields.get(role) == "yes"]
    if not roles:
        raise BadInput("a key without a role is good for nothing", hint="tick one at least")
    if Role.ADMIN not in roles and not lake.keys.has_any():
        raise BadInput(
            "the first key needs the role admin: from then on this page asks for a key",
            hint="tick admin, and make the other keys afterwards",
        )
    created = lake.keys.create(fields.get("name", "").strip(), roles)
    key = created.key
    message = f"Made key {key.key_id} of {key.name}, for {' and '.join(key.roles)}."
    return FormResult(_PATH, message, created.secret)


def revoke(lake: Lake, key_id: str) -> FormResult:
    """End a key."""
    ended = lake.keys.revoke(key_id)
    return FormResult(
        _PATH, f"Revoked key {key_id} of {ended.name}. Servers refuse it within seconds."
    )


def _show(key: Key) -> KeyRow:
    def spell(tick: int | None) -> str | None:
        return None if tick is None else format_instant(tick)

    return KeyRow(
        key.key_id,
        key.name,
        key.roles,
        format_instant(key.created_at),
        spell(key.last_used_at),
        spell(key.revoked_at),
    )
