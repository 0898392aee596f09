"""The explanation of a snapshot: the origin of its rows, and the rows that it lacks."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.model.time import find_gaps, format_instant
from lakebed.query.output.explanation import Explanation, TableExplanation
from lakebed.query.snapshot.snapshot import StatementSnapshot
from lakebed.query.snapshot.tail import TailRows
from lakebed.query.snapshot.user_tables import UserView
from lakebed.query.snapshot.view_tables import TableView


def explain(engine: str, snapshot: StatementSnapshot, tails: Mapping[str, TailRows]) -> Explanation:
    """Return the explanation of a statement."""
    explained = [_explain_table(name, view, tails[name]) for name, view in snapshot.tables.items()]
    explained += [_explain_user(name, user) for name, user in snapshot.user_tables.items()]
    return Explanation(
        engine,
        snapshot.tick,
        explained,
        tuple(_find_warnings(snapshot.tables, tails)),
    )


def _explain_table(name: str, table: TableView, tail: TailRows) -> TableExplanation:
    return TableExplanation(
        name,
        table.considered,
        table.pruned,
        len(table.files),
        sum(file.num_rows for file in table.files),
        sum(file.file_size for file in table.files),
        len(table.tail.blocks) if table.tail else 0,
        tail.num_rows,
        table.failed_blocks + tail.failed_blocks,
        None if table.built_until is None else format_instant(table.built_until),
    )


def _explain_user(name: str, user: UserView) -> TableExplanation:
    return TableExplanation(
        name,
        user.considered,
        user.pruned,
        len(user.read),
        sum(file.num_rows for file in user.read),
        sum(file.file_size for file in user.read),
        keys_read=len(user.opened) - len(user.read),
    )


def _advise(name: str, table: TableView) -> str:
    """Return what can be done about rows that exist only in another schema."""
    if table.view_set.source is None:
        return "publish them again"
    frozen = "because their blocks are gone or never were"
    if not any(find_gaps(hidden, table.frozen) for hidden in table.hidden):
        return f"they cannot be rebuilt, {frozen}"
    if not table.frozen:
        return f"rebuild them with: lakebed build {name}"
    more = f" and {len(table.frozen) - 1} more ranges" if len(table.frozen) > 1 else ""
    return (
        f"rebuild them with: lakebed build {name}; what landed in {table.frozen[0]}{more} cannot "
        f"be rebuilt, {frozen}"
    )


def _find_warnings(tables: Mapping[str, TableView], tails: Mapping[str, TailRows]) -> list[str]:
    """Return a warning for each kind of missing rows, with the command that helps."""
    warnings = []
    for name, table in tables.items():
        failed = table.failed_blocks + tails[name].failed_blocks
        if failed:
            warnings.append(
                f"{name}: {failed} blocks cannot be decoded and their records are not seen; "
                f"build, then see why with: lakebed build {name} --plan"
            )
        if table.unbuilt is not None:
            warnings.append(
                f"{name}: what landed in {table.unbuilt} is not built, and {name} shows only what "
                f"is; build it with: lakebed build {name}"
            )
        if table.hidden:
            more = f" and {len(table.hidden) - 1} more ranges" if len(table.hidden) > 1 else ""
            warnings.append(
                f"{name}: what landed in {table.hidden[0]}{more} exists only in another schema "
                f"and is not seen; {_advise(name, table)}"
            )
    return warnings
