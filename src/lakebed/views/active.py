"""The view sets of a lake: the registered ones, and the built-in ones that no build has registered
yet. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lakebed.catalog.catalog import Connection
from lakebed.catalog.records import view_sets
from lakebed.catalog.records.view_sets import ActiveViewSet
from lakebed.model.source import SqlSource
from lakebed.model.view_set import ViewSet
from lakebed.views.builtin import COLUMNS, built_in
from lakebed.views.dependencies import plan_dependents


def list_view_sets(connection: Connection) -> list[ActiveViewSet]:
    """Return the lake's view sets by name. Those without a registration have 0 as
    ``activated_at``."""
    registered = view_sets.list_active(connection)
    names = {active.view_set.name for active in registered}
    missing = [view_set for view_set in built_in() if view_set.name not in names]
    return plan_ensure(registered, missing)


def get_view_set(connection: Connection, name: str) -> ActiveViewSet:
    """Return one of the lake's view sets; raise `UnknownViewSet` for another name."""
    if name in COLUMNS:
        return next(active for active in list_view_sets(connection) if active.view_set.name == name)
    return view_sets.get(connection, name)


def plan_ensure(
    registered: Sequence[ActiveViewSet], brought: Sequence[ViewSet]
) -> list[ActiveViewSet]:
    """Return the view sets, by name, as `Registry.ensure` leaves them."""
    planned = {active.view_set.name: active for active in registered}
    for view_set in brought:
        due = find_due(view_set, planned)
        if due is None:
            continue
        changed = [due]
        if due.name in planned:
            changed += plan_dependents(due, [active.view_set for active in planned.values()])
        for new in changed:
            old = planned.get(new.name)
            planned[new.name] = (
                ActiveViewSet(new, new.schema_hash, 0, 0)
                if old is None
                else replace(old, view_set=new, schema_hash=new.schema_hash)
            )
    return [planned[name] for name in sorted(planned)]


def find_due(view_set: ViewSet, active: Mapping[str, ActiveViewSet]) -> ViewSet | None:
    """Return the definition to register for a view set that a program brings, or None if its
    version or a newer one is active. It reads the schemas that are active now and keeps the
    retention that an operator chose."""
    old = active.get(view_set.name)
    if old is not None:
        if old.view_set.version >= view_set.version:
            return None
        view_set = replace(view_set, retention_us=old.view_set.retention_us)
    if not isinstance(view_set.source, SqlSource):
        return view_set
    reads = tuple((name, active[name].schema_hash) for name in view_set.source.names)
    return replace(view_set, source=replace(view_set.source, reads=reads))
