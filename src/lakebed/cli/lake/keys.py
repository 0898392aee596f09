"""`lakebed keys`: who may use a server, and for what."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli import output
from lakebed.cli.options import HERE, JsonOption, LakeOption, opened
from lakebed.model.time import format_instant

if TYPE_CHECKING:
    from lakebed.catalog.records.keys import Key

app = typer.Typer(no_args_is_help=True, help="Keys for those who use a server of this lake.")


_NO_KEYS = "No API keys exist: anyone who can reach a server of this lake has full access."


class RoleName(enum.StrEnum):
    """The purpose of a key. It is here because help is shown without loading the catalog."""

    INGEST = "ingest"
    READ = "read"
    ADMIN = "admin"


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Whose key it is; the journal names it.")],
    role: Annotated[
        list[RoleName],
        typer.Option(
            help="ingest sends and cannot read; read queries; admin may do everything. Repeat it "
            "for several."
        ),
    ],
    lake: LakeOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Make a key. It is shown now and never again: the lake keeps only its digest.

    From the first key on, every server of the lake requires one within seconds, also a server that
    is running; except those started with --without-keys.

    Example: lakebed keys create "ring gateway" --role ingest
    """
    with opened(lake) as open_lake:
        new_key = open_lake.keys.create(name, role)
        is_first = len(open_lake.keys.list_keys()) == 1
    if is_first:
        output.say(
            "this is the first key: servers of this lake, running ones too, require a key from "
            "every caller within 5 seconds, except those started with --without-keys"
        )
    if as_json:
        output.show_json(_describe(new_key.key) | {"key": new_key.secret})
        return
    output.say(
        f"key {new_key.key.key_id} of {name}, for {' and '.join(new_key.key.roles)}; keep it safe:"
    )
    output.tell(new_key.secret)


@app.command("list")
def list_keys(lake: LakeOption = HERE, as_json: JsonOption = False) -> None:
    """List keys, revoked ones too, with when they were last used.

    Example: lakebed keys list --json
    """
    with opened(lake, write=False) as open_lake:
        rows = [_describe(key) for key in open_lake.keys.list_keys()]
    output.show(rows, as_json=as_json, empty=_NO_KEYS)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id, as `lakebed keys list` shows it.")],
    lake: LakeOption = HERE,
) -> None:
    """End a key; servers refuse it within seconds.

    Example: lakebed keys revoke 3f9a0c12be77
    """
    with opened(lake) as open_lake:
        ended = open_lake.keys.revoke(key_id)
        is_last = all(key.revoked_at is not None for key in open_lake.keys.list_keys())
    output.tell(f"revoked key {key_id} of {ended.name}")
    if is_last:
        output.say("it was the last one: until you create another, servers let nobody in")


def _describe(key: Key) -> dict[str, Any]:
    def spell(instant: int | None) -> str | None:
        return None if instant is None else format_instant(instant)

    return {
        "key_id": key.key_id,
        "name": key.name,
        "roles": list(key.roles),
        "created": spell(key.created_at),
        "last_used": spell(key.last_used_at),
        "revoked": spell(key.revoked_at),
    }
