"""How far view sets are behind what has landed."""

from __future__ import annotations

from lakebed.catalog import clock
from lakebed.catalog.catalog import Connection
from lakebed.catalog.lookups import coverage
from lakebed.catalog.records import blocks, failures
from lakebed.model.time import TimeRange, find_gaps
from lakebed.views.active import list_view_sets
from lakebed.views.dependencies import find_sources


def find_unbuilt(connection: Connection) -> dict[str, int | None]:
    """For each view set that is built, or will be by the first build, when the oldest block landed
    that it lacks; None if it lacks none. What is held back, could not be decoded or was forgotten
    is not waited for."""
    active = {entry.view_set.name: entry for entry in list_view_sets(connection)}
    definitions = {name: each.view_set for name, each in active.items()}
    built = [name for name, each in definitions.items() if each.source is not None]
    first, now = blocks.first_insert_time(connection), clock.upcoming(connection)
    if first is None or first >= now:
        return dict.fromkeys(built)
    within = TimeRange(first, now)
    runs = coverage.list_runs(connection, built)
    failed = [
        TimeRange(each.insert_time, each.insert_time + 1)
        for each in failures.list_failures(connection)
    ]
    lacking: dict[str, int | None] = {}
    for name in built:
        covered = failed + [
            run.covered
            for run in runs
            if run.view_set == name and (run.held or run.schema_hash == active[name].schema_hash)
        ]
        if active[name].retained_from > first:
            covered.append(TimeRange(first, active[name].retained_from))
        sources = find_sources(definitions[name], definitions)
        wanted = None if sources.every else sources.encodings
        found = (blocks.find_first(connection, gap, wanted) for gap in find_gaps(within, covered))
        lacking[name] = next((each for each in found if each is not None), None)
    return lacking
