"""The input of a plan, read from the catalog in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakebed.catalog import clock
from lakebed.catalog.catalog import Catalog, Connection
from lakebed.catalog.lookups import partition_search
from lakebed.catalog.lookups.partition_search import PartitionFilter
from lakebed.catalog.records import blocks, failures, partitions, tables, view_sets
from lakebed.catalog.records.view_sets import ActiveViewSet
from lakebed.errors import UnknownViewSet
from lakebed.model.block import Block
from lakebed.model.source import BlockSource, SqlSource
from lakebed.model.time import TimeRange
from lakebed.model.view_set import GLOBAL, ViewSet
from lakebed.pipeline import plan
from lakebed.pipeline.plan import Failed, Limits, State, TableState
from lakebed.pipeline.steps import Plan, Skip, Step
from lakebed.views.active import plan_ensure
from lakebed.views.builtin import built_in
from lakebed.views.dependencies import in_dependency_order, list_encodings

_FEW_GAPS = 8
_EVER = 1 << 61


def make_plan(
    catalog: Catalog,
    names: Sequence[str],
    begin: int | None,
    end: int | None,
    limits: Limits,
    *,
    is_preview: bool = False,
) -> Plan:
    """Return the steps that are due for these view sets and what they read, and for these users'
    tables; for all, without a name. A preview assumes that the lake's clock has moved past the last
    block, as it will have when a build begins."""
    named_tables = [name for name in names if "." in name]
    named_view_sets = [name for name in names if "." not in name]
    with catalog.read() as connection:
        tick = clock.now(connection)
        if is_preview:
            last = blocks.last_insert_time(connection)
            tick = tick if last is None else max(tick, last + 1)
        registered = view_sets.list_active(connection)
        active = {entry.view_set.name: entry for entry in plan_ensure(registered, built_in())}
        chosen_view_sets = choose(named_view_sets, active) if named_view_sets or not names else []
        within = _range(connection, tick, begin, end) if chosen_view_sets else None
        folds: list[Step] = []
        if named_tables or not names:
            folds = _plan_folds(connection, named_tables, begin, end, limits)
        if within is None:
            return Plan(tick, tuple(folds), (), limits.fold_here_bytes)
        read_range = within
        while True:
            steps, skipped = _plan(connection, chosen_view_sets, active, within, read_range, limits)
            reached = [step.insert_range for step in (*steps, *skipped)]
            needed = TimeRange(
                min([read_range.begin, *(step_range.begin for step_range in reached)]),
                max([read_range.end, *(step_range.end for step_range in reached)]),
            )
            if needed == read_range:
                every = (*steps, *folds)
                return Plan(tick, every, tuple(skipped), limits.fold_here_bytes)
            read_range = (
                needed  # a step grew over the end of what was read: there may be more of it
            )


def _plan(
    connection: Connection,
    chosen_view_sets: Sequence[ViewSet],
    active: Mapping[str, ActiveViewSet],
    within: TimeRange,
    read_range: TimeRange,
    limits: Limits,
) -> tuple[list[Step], list[Skip]]:
    """Return the steps and skips of a range. `read_range` contains it; the states hold the
    partitions of `read_range`."""
    states = {
        view_set.name: _read_state(connection, active[view_set.name], read_range)
        for view_set in chosen_view_sets
    }
    steps: list[Step] = []
    skipped: list[Skip] = []
    for view_set in chosen_view_sets:
        state = states[view_set.name]
        skipped += plan.plan_skips(state, within)
        if isinstance(view_set.source, BlockSource):
            landed = _list_blocks(connection, state, within)
            steps += plan.plan_builds(state, within, landed, limits)
        elif isinstance(view_set.source, SqlSource):
            sources = {
                name: states.get(name) or _read_state(connection, active[name], read_range)
                for name in view_set.source.names
            }
            steps += plan.plan_queries(state, within, sources, limits)
            skipped += plan.plan_waiting(state, within, sources, limits)
        steps += _merges_beside(steps, plan.plan_merges(state, within, limits), view_set)
    return steps, skipped


def _plan_folds(
    connection: Connection,
    names: Sequence[str],
    begin: int | None,
    end: int | None,
    limits: Limits,
) -> list[Step]:
    """Return the folds that are due for these tables, or for all. Tables whose buckets have one
    partition each are not read."""
    low, high = -_EVER if begin is None else begin, _EVER if end is None else end
    if names:
        user_tables = [tables.get(connection, *name.split(".", 1)) for name in names]
    else:
        user_tables = tables.list_tables(connection)
    crowded = tables.list_crowded(connection) if user_tables and low < high else set()
    steps: list[Step] = []
    for table in user_tables:
        if table.stored_as in crowded:
            live = tables.list_partitions(connection, table.stored_as)
            restorable = tables.list_restorable(connection, table.stored_as)
            state = TableState(table, live, restorable)
            steps += plan.plan_folds(state, TimeRange(low, high), limits, is_requested=bool(names))
    return steps


def _merges_beside(steps: Sequence[Step], merges: Sequence[Step], view_set: ViewSet) -> list[Step]:
    """Return the merges that do not touch a partition that another step of the same plan
    replaces."""
    replaced_ids = {
        partition.partition_id
        for step in steps
        if step.view_set.name == view_set.name
        for partition in step.replaces
    }
    return [
        step for step in merges if not any(p.partition_id in replaced_ids for p in step.replaces)
    ]


def choose(names: Sequence[str], active: Mapping[str, ActiveViewSet]) -> list[ViewSet]:
    """Return the view sets that have a source, restricted to these and what they read."""
    unknown = [name for name in names if name not in active]
    if unknown:
        raise UnknownViewSet(
            f"no view set is called {unknown[0]!r}",
            hint="see what there is with: lakebed views list",
        )
    needed_names = set(names or active)
    ordered = in_dependency_order(entry.view_set for entry in active.values())
    for view_set in reversed(ordered):
        if view_set.name in needed_names and isinstance(view_set.source, SqlSource):
            needed_names.update(view_set.source.names)
    return [
        view_set
        for view_set in ordered
        if view_set.name in needed_names and view_set.source is not None
    ]


def _range(
    connection: Connection, tick: int, begin: int | None, end: int | None
) -> TimeRange | None:
    """Return the range that can be built: from the first block to the tick; None if no block landed
    in it."""
    first = blocks.first_insert_time(connection)
    if first is None:
        return None
    low = first if begin is None else max(first, begin)
    high = tick if end is None else min(tick, end)
    return TimeRange(low, high) if low < high else None


def _read_state(connection: Connection, active: ActiveViewSet, within: TimeRange) -> State:
    view_set = active.view_set
    live = partition_search.search(
        connection,
        PartitionFilter(
            view_sets=[(view_set.name, [view_set.schema_hash])], instance=GLOBAL, inserted=within
        ),
    )
    held = partitions.list_held(connection, view_set.name, GLOBAL, within)
    failed = failures.list_failures(connection, view_set.name, view_set.schema_hash)
    return State(
        view_set,
        live,
        [partition.insert_range for partition in held],
        [Failed(failure.block_id, failure.insert_time, failure.reason) for failure in failed],
        active.retained_from,
    )


def _list_blocks(connection: Connection, state: State, within: TimeRange) -> list[Block]:
    """Return the blocks in the view set's gaps; many gaps are read as one range."""
    gaps = state.find_gaps(within)
    if len(gaps) > _FEW_GAPS:
        gaps = [TimeRange(gaps[0].begin, gaps[-1].end)]
    encodings = list_encodings(state.view_set)
    return [block for gap in gaps for block in blocks.list_blocks(connection, gap, encodings)]
