"""`lakebed views`: what the lake's partitions are partitions of."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.cli import output
from lakebed.cli.options import HERE, JsonOption, LakeOption, YesOption, opened
from lakebed.cli.retention import (
    FOREVER,
    UNCHANGED,
    KeepArgument,
    say_plan,
    say_what_upkeep_does,
    show_keep,
)
from lakebed.errors import BadDefinition, BadInput, LakebedError, Refused
from lakebed.model.source import SqlSource, describe_source
from lakebed.model.time import format_duration, is_duration
from lakebed.model.view_set import ViewSet
from lakebed.views.sql.declaration import SqlView, read_toml, write_toml

if TYPE_CHECKING:
    from lakebed.lake import Lake

app = typer.Typer(
    no_args_is_help=True, help="View sets: list, show, define, register, keep, remove."
)


@app.command("list")
def list_views(lake: LakeOption = HERE, as_json: JsonOption = False) -> None:
    """List the view sets, and what each is made of. Built-in ones that no build has registered yet
    have no activation time.

    Example: lakebed views list --json
    """
    with opened(lake, write=False) as open_lake:
        rows = [
            {
                "view_set_name": active.view_set.name,
                "version": active.view_set.version,
                "current_schema_hash": active.schema_hash.hex(),
                "columns": len(active.view_set.schema),
                "time_column": active.view_set.time_column,
                "activated_at": output.instant(active.activated_at or None),
                "source": describe_source(active.view_set.source),
                "keep": show_keep(active.view_set.retention_us),
            }
            for active in open_lake.views.list_view_sets()
        ]
    if not as_json:
        rows = [output.short(row) | {"version": str(row["version"])} for row in rows]
    output.show(rows, as_json=as_json, empty="")


@app.command("show")
def show_view(
    name: Annotated[str, typer.Argument()],
    as_toml: Annotated[
        bool, typer.Option("--toml", help="As the declaration that `define` reads; for SQL.")
    ] = False,
    lake: LakeOption = HERE,
) -> None:
    """Print one view set's definition: as JSON, which `register` reads back, or as TOML.

    Example: lakebed views show readings > readings.json

    Example: lakebed views show errors_per_minute --toml > errors_per_minute.toml
    """
    with opened(lake, write=False) as open_lake:
        view_set = open_lake.views.get(name).view_set
    if as_toml:
        sys.stdout.write(write_toml(SqlView.of(view_set)))
    else:
        output.show_json(json.loads(view_set.definition()))


@app.command("define")
def define_views(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="TOML files, one for each view set.")
    ],
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="A Spark master; default: this machine.")
    ] = None,
    remote: Annotated[
        str | None, typer.Option(metavar="URL", help="A Spark Connect server, sc://host:port.")
    ] = None,
    lake: LakeOption = HERE,
    yes: YesOption = False,
) -> None:
    """Define SQL view sets, or define them anew: all of the files or none.

    The files may refer to each other. What is wrong is said in a line each, and then nothing has
    changed. A changed definition is a new version: build it, then retire the old partitions. If a
    changed retention condemns partitions, they are shown, and nothing changes without --yes.

    Example: lakebed views define errors_per_minute.toml
    """
    from lakebed.views.registry import Change

    try:
        views = _read_declarations(files)
        with opened(lake) as open_lake:
            retentions = {
                view.name: view.retention_us
                for view in views
                if view.retention and is_duration(view.retention)
            }
            if _condemns(open_lake, retentions) and not yes:
                output.say(UNCHANGED)
                return
            definitions = open_lake.define_views(*views, master=master, remote=remote)
    except BadDefinition as error:
        for problem in error.problems:
            output.say(f"error: {' '.join(problem.split())}")
        raise typer.Exit(error.exit_code) from error
    for definition in definitions:
        reason = f", because it reads {definition.because_of}" if definition.because_of else ""
        view_set = definition.view_set
        output.tell(f"{view_set.name} version {view_set.version}: {definition.change}{reason}")
    if any(definition.change is Change.EVOLVED for definition in definitions):
        output.say(
            "partitions of older versions are incompatible now: build the new ones with "
            "`lakebed build`, then see `lakebed partitions retire --incompatible`"
        )


def _condemns(lake: Lake, retentions: Mapping[str, int | None]) -> bool:
    """Print the partitions that a shorter retention condemns; return True if there are any."""
    condemned = False
    for active in lake.views.list_view_sets():
        name, now = active.view_set.name, active.view_set.retention_us
        new_retention = retentions.get(name)
        if new_retention is None or new_retention == now:
            continue
        plan = lake.retirement.plan_by_retention(name, format_duration(new_retention))
        if plan.partitions:
            output.say(
                f"{name} would be kept {show_keep(new_retention)}, and is kept {show_keep(now)} now"
            )
            say_plan(plan)
            condemned = True
    return condemned


def _read_declarations(files: list[Path]) -> list[SqlView]:
    views, problems = [], list[str]()
    for file in files:
        try:
            views.append(read_toml(file.read_text(encoding="utf-8"), str(file)))
        except OSError as error:
            problems.append(f"cannot read {file}: {(error.strerror or '').lower()}")
        except UnicodeDecodeError:
            problems.append(f"{file} is not TOML: it is not UTF-8")
        except BadDefinition as error:
            problems += error.problems
    if problems:
        raise BadDefinition(problems)
    return views


def _explain(error: Exception) -> str:
    """Return the reason why a text is not a definition."""
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON ({str(error)[:1].lower()}{str(error)[1:]})"
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]}"
    return str(error) if isinstance(error, ValueError) else "it is not made like one"


@app.command("register")
def register_view(
    file: Annotated[Path, typer.Argument(help="A JSON file like the one that `show` prints.")],
    lake: LakeOption = HERE,
    yes: YesOption = False,
) -> None:
    """Register a view set whose rows programs publish, or evolve one: a changed schema needs a
    higher version. View sets that SQL makes are for `define`. If a changed retention condemns
    partitions, they are shown, and nothing changes without --yes.

    Example: lakebed views register readings.json
    """
    try:
        view_set = ViewSet.from_definition(file.read_text())
    except OSError as error:
        raise BadInput(f"cannot read {file}: {(error.strerror or '').lower()}") from error
    except LakebedError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        deep = isinstance(error, RecursionError)
        reason = "it is nested too deeply" if deep else _explain(error)
        raise BadInput(
            f"{file} is not a view set definition: {reason}",
            hint="start from the output of: lakebed views show NAME",
        ) from error
    with opened(lake) as open_lake:
        active = {entry.view_set.name: entry.view_set for entry in open_lake.views.list_view_sets()}
        if view_set != active.get(view_set.name):
            _refuse_registration(view_set)
        if _condemns(open_lake, {view_set.name: view_set.retention_us}) and not yes:
            output.say(UNCHANGED)
            return
        change = open_lake.views.register(view_set)
    output.tell(f"{view_set.name} version {view_set.version}: {change}")


def _refuse_registration(view_set: ViewSet) -> None:
    from lakebed.views.builtin import COLUMNS

    if view_set.name in COLUMNS:
        raise Refused(
            f"view set {view_set.name} is built in, and programs count on its columns",
            hint="choose another name; how long it keeps rows says: lakebed views keep",
        )
    if isinstance(view_set.source, SqlSource):
        raise BadInput(
            f"view set {view_set.name} is made by SQL, which is checked when it is defined",
            hint="declare it in TOML and use: lakebed views define FILE",
        )
    if view_set.source is not None:
        raise BadInput(
            f"view set {view_set.name} is made of blocks, which only built-in view sets are",
            hint="leave its source out",
        )


@app.command("keep")
def keep_view(
    name: Annotated[str, typer.Argument()],
    time: KeepArgument,
    lake: LakeOption = HERE,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say how long a view set keeps rows after they landed; built-in ones, too.

    If older partitions are there, it shows them and changes nothing without --yes. Upkeep retires
    what is too old, again and again; what was retired so can be restored in its grace period, but
    is not built again. Prints what the catalog says afterwards.

    Example: lakebed views keep log_entries 30d
    """
    from lakebed.lifecycle.planning import RetirementPlan

    keep = None if time == FOREVER else time
    plan = RetirementPlan((), "")
    with opened(lake) as open_lake:
        active = {entry.view_set.name: entry for entry in open_lake.views.list_view_sets()}
        if keep is not None and name in active:
            plan = open_lake.retirement.plan_by_retention(name, keep)
        acts = yes or not plan.partitions
        if plan.partitions and not as_json:
            say_plan(plan)
        stored = open_lake.views.keep(name, keep) if acts else active[name]
    retention = show_keep(stored.view_set.retention_us)
    if as_json:
        rows = [output.partition_row(partition) for partition in plan.partitions]
        output.show_json(
            {"view_set_name": name, "done": acts, "keep": retention, "condemned": rows}
        )
        return
    if not acts:
        output.say(UNCHANGED)
        return
    output.tell(f"{name}: kept {retention}")
    if plan.partitions:
        confirm = f" --confirm {name}" if plan.confirm else ""
        say_what_upkeep_does(plan, f"lakebed partitions retire {name} --expired{confirm}")
    elif keep is not None:
        output.say("nothing is older than that")


@app.command("remove")
def remove_view(
    name: Annotated[str, typer.Argument()], lake: LakeOption = HERE, yes: YesOption = False
) -> None:
    """Forget a view set. Its partitions stay, as incompatible ones, until they are retired.

    Example: lakebed views remove readings --yes
    """
    with opened(lake) as open_lake:
        open_lake.views.check_removal(name)
        count = len(open_lake.partitions.list_partitions(name))
        if not yes:
            output.say(
                f"would forget {name}; its {output.plural(count, 'live partition')} would become "
                "incompatible. Repeat with --yes to do it."
            )
            return
        open_lake.views.remove(name)
    output.tell(f"{name}: removed")
