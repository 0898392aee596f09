"""Registering and evolving view sets. A schema changes only together with its version, and a
program that knows an older version than the active one may not change the view set.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lakebed.catalog import journal
from lakebed.catalog.catalog import Catalog, Transaction
from lakebed.catalog.records import view_sets
from lakebed.catalog.records.view_sets import ActiveViewSet
from lakebed.errors import BadInput, Outdated, Refused, StalePlan
from lakebed.model.arguments import checked_methods
from lakebed.model.tables.table import is_table
from lakebed.model.time import parse_duration
from lakebed.model.view_set import ViewSet
from lakebed.views.active import find_due, get_view_set, list_view_sets
from lakebed.views.dependencies import list_readers, plan_dependents


class Change(enum.StrEnum):
    """The effect of registering a definition."""

    CREATED = "created"
    EVOLVED = "evolved"
    AMENDED = "amended"  # same schema; only sort order or retention differ
    UNCHANGED = "unchanged"


def plan_registration(active: ActiveViewSet | None, declared: ViewSet) -> Change:
    """Return the effect of registering a definition; raise if it may not be registered."""
    if is_table(declared.name):
        raise BadInput(f"{declared.name} would be taken for a user's table", hint="choose another")
    if active is None:
        return Change.CREATED
    now = active.view_set
    if declared.version < now.version:
        raise Outdated(
            f"view set {declared.name} is active in version {now.version}, "
            f"this program declares version {declared.version}",
            hint="update this program",
        )
    if declared.version > now.version:
        return Change.EVOLVED
    if declared.schema_hash != active.schema_hash:
        raise BadInput(
            f"the schema of view set {declared.name} differs from its active version {now.version}",
            hint=f"declare it as version {now.version + 1}",
        )
    if declared.time_column != now.time_column:
        raise BadInput(
            f"view set {declared.name} finds its partitions by the column {now.time_column}, "
            f"not {declared.time_column}",
            hint=f"declare it as version {now.version + 1}",
        )
    return Change.UNCHANGED if declared == now else Change.AMENDED


def _activate(transaction: Transaction, view_set: ViewSet, change: Change) -> None:
    view_sets.activate(transaction.connection, view_set, transaction.tick)
    detail = {
        "version": view_set.version,
        "schema_hash": view_set.schema_hash.hex(),
        "retention_us": view_set.retention_us,
    }
    entry = journal.Entry(f"view set {change}", view_set=view_set.name, detail=detail)
    journal.append(transaction, [entry])


def _refuse_removal(name: str, active: Sequence[ActiveViewSet]) -> None:
    from lakebed.views.builtin import COLUMNS

    if name in COLUMNS:
        raise Refused(
            f"view set {name} is built in: the next build would register it again",
            hint=f"to drop what was built of it: lakebed partitions retire {name} "
            "--begin 1970-01-01T00Z --end 2100-01-01T00Z",
        )
    readers = list_readers(name, [entry.view_set for entry in active])
    if readers:
        raise Refused(
            f"view set {name} is read by {', '.join(readers)}",
            hint=f"remove or redefine {readers[0]} first",
        )


@checked_methods
class Registry:
    """The view sets of one lake."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def register(self, view_set: ViewSet) -> Change:
        """Make this definition the active one; a no-op if it is already."""
        with self._catalog.read() as connection:
            if plan_registration(view_sets.find(connection, view_set.name), view_set) is (
                Change.UNCHANGED
            ):
                return Change.UNCHANGED
        with self._catalog.write() as transaction:
            active = view_sets.find(transaction.connection, view_set.name)
            change = plan_registration(active, view_set)
            if change is not Change.UNCHANGED:
                _activate(transaction, view_set, change)
            if change is Change.EVOLVED:
                entries = view_sets.list_active(transaction.connection)
                for dependent in plan_dependents(view_set, [entry.view_set for entry in entries]):
                    _activate(transaction, dependent, Change.EVOLVED)
            return change

    def apply(
        self, changes: Sequence[tuple[ViewSet, Change]], planned_on: Mapping[str, bytes]
    ) -> None:
        """Make all of these definitions active in one transaction, if every view set still has the
        schema hash that they were planned on; `StalePlan` otherwise. The plan may have counted
        built-in view sets that are not registered yet."""
        due = [(view_set, change) for view_set, change in changes if change != Change.UNCHANGED]
        if not due:
            return
        with self._catalog.write() as transaction:
            active = list_view_sets(transaction.connection)
            counted = {
                entry.view_set.name: entry.schema_hash
                for entry in active
                if entry.activated_at or entry.view_set.name in planned_on
            }
            if counted != planned_on:
                raise StalePlan("view sets were changed meanwhile", hint="define them again")
            for view_set, change in due:
                _activate(transaction, view_set, change)

    def ensure(self, wanted: Sequence[ViewSet]) -> None:
        """Register view sets that are missing or older than declared; a newer one belongs to a
        newer program. Retention is always the operator's, for every version."""
        registered = self._read_registered()
        for view_set in wanted:
            due = find_due(view_set, registered)
            if due is not None:
                self.register(due)
                registered = self._read_registered()

    def _read_registered(self) -> dict[str, ActiveViewSet]:
        return {active.view_set.name: active for active in self.list_registered()}

    def keep(self, name: str, retention: str | None) -> ActiveViewSet:
        """Set a view set's retention, counted from landing, such as ``30d``; None for ever.
        Return the view set as stored. Nothing is retired by this alone: upkeep does, and
        `plan_by_retention` of ``lake.retirement`` shows the effect."""
        retention_us = None if retention is None else parse_duration(retention)
        self.ensure_built_in(name)
        with self._catalog.write() as transaction:
            now = view_sets.get(transaction.connection, name).view_set
            if retention_us != now.retention_us:
                _activate(transaction, replace(now, retention_us=retention_us), Change.AMENDED)
        return self.get(name)

    def ensure_built_in(self, name: str) -> None:
        """Register the built-in view sets if ``name`` is one of them and is not registered, as in a
        lake without a build. A registered one keeps its version."""
        from lakebed.views.builtin import COLUMNS, built_in

        if name not in COLUMNS:
            return
        with self._catalog.read() as connection:
            is_missing = view_sets.find(connection, name) is None
        if is_missing:
            self.ensure(built_in())

    def remove(self, name: str) -> None:
        """Remove a definition. Its partitions stay until retired, and are incompatible from now
        on. `Refused` for built-in view sets, and while another view set reads it."""
        with self._catalog.write() as transaction:
            _refuse_removal(name, view_sets.list_active(transaction.connection))
            view_sets.get(transaction.connection, name)
            view_sets.remove(transaction.connection, name)
            journal.append(transaction, [journal.Entry("view set removed", view_set=name)])

    def check_removal(self, name: str) -> None:
        """Raise what `remove` would raise, without any change."""
        with self._catalog.read() as connection:
            _refuse_removal(name, view_sets.list_active(connection))
            view_sets.get(connection, name)

    def list_view_sets(self) -> list[ActiveViewSet]:
        """Return the lake's view sets by name: the registered ones, and the built-in ones that no
        build has registered yet, with 0 as ``activated_at``."""
        with self._catalog.read() as connection:
            return list_view_sets(connection)

    def list_registered(self) -> list[ActiveViewSet]:
        """Return the registered view sets by name."""
        with self._catalog.read() as connection:
            return view_sets.list_active(connection)

    def get(self, name: str) -> ActiveViewSet:
        """Return the active definition of one view set."""
        with self._catalog.read() as connection:
            return get_view_set(connection, name)
