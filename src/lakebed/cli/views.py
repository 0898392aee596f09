"""`lakebed views`: what the lake's partitions are partitions of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from lakebed.cli import output
from lakebed.cli.options import HERE, JsonOption, LakeOption, YesOption, opened
from lakebed.errors import BadInput, LakebedError
from lakebed.model.view_set import ViewSet

app = typer.Typer(no_args_is_help=True, help="View sets: list, show, register, remove.")


@app.command("list")
def list_views(lake: LakeOption = HERE, as_json: JsonOption = False) -> None:
    """List the registered view sets.

    Example: lakebed views list --json
    """
    with opened(lake, write=False) as open_lake:
        rows = [
            {
                "view_set_name": each.view_set.name,
                "version": each.view_set.version,
                "current_schema_hash": each.schema_hash.hex(),
                "columns": len(each.view_set.schema),
                "time_column": each.view_set.time_column,
                "activated_at": output.instant(each.activated_at),
            }
            for each in open_lake.views.list_view_sets()
        ]
    if not as_json:
        rows = [output.short(row) for row in rows]
    output.show(rows, as_json=as_json, empty="no view set is registered yet")


@app.command("show")
def show_view(name: Annotated[str, typer.Argument()], lake: LakeOption = HERE) -> None:
    """Print one view set's definition as JSON, which `register` reads back.

    Example: lakebed views show readings > readings.json
    """
    with opened(lake, write=False) as open_lake:
        active = open_lake.views.get(name)
    output.show_json(json.loads(active.view_set.definition()))


@app.command("register")
def register_view(
    file: Annotated[Path, typer.Argument(help="A JSON file like the one that `show` prints.")],
    lake: LakeOption = HERE,
) -> None:
    """Register a view set, or evolve one: a changed schema needs a higher version.

    Example: lakebed views register readings.json
    """
    try:
        view_set = ViewSet.from_definition(file.read_text())
    except OSError as error:
        raise BadInput(f"cannot read {file}: {(error.strerror or '').lower()}") from error
    except LakebedError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise BadInput(
            f"{file} is not a view set definition: {type(error).__name__} {error}",
            hint="start from the output of: lakebed views show NAME",
        ) from error
    with opened(lake) as open_lake:
        change = open_lake.views.register(view_set)
    output.tell(f"{view_set.name} version {view_set.version}: {change}")


@app.command("remove")
def remove_view(
    name: Annotated[str, typer.Argument()], lake: LakeOption = HERE, yes: YesOption = False
) -> None:
    """Forget a view set. Its partitions stay, as incompatible ones, until they are retired.

    Example: lakebed views remove readings --yes
    """
    with opened(lake) as open_lake:
        open_lake.views.get(name)
        count = len(open_lake.partitions.list_partitions(name))
        if not yes:
            output.say(
                f"would forget {name}; its {output.plural(count, 'live partition')} would become "
                "incompatible. Repeat with --yes to do it."
            )
            return
        open_lake.views.remove(name)
    output.tell(f"{name}: removed")
