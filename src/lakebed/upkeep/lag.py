"""The lag of view sets behind the landed blocks."""

from __future__ import annotations

from lakebed.catalog import clock
from lakebed.catalog.catalog import Connection
from lakebed.catalog.lookups import coverage
from lakebed.catalog.records import blocks, failures
from lakebed.model.time import TimeRange, find_gaps
from lakebed.views.active import list_view_sets
from lakebed.views.dependencies import find_sources


def find_unbuilt(connection: Connection) -> dict[str, int | None]:
    """Return, for each view set that is built or that the first build will build, the insert time
    of the oldest block that it lacks; None if it lacks none. Held, failed and forgotten blocks do
    not count."""
    active = {entry.view_set.name: entry for entry in list_view_sets(connection)}
    definitions = {name: entry.view_set for name, entry in active.items()}
    built = [name for name, definition in definitions.items() if definition.source is not None]
    first, now = blocks.first_insert_time(connection), clock.upcoming(connection)
    if first is None or first >= now:
        return dict.fromkeys(built)
    within = TimeRange(first, now)
    runs = coverage.list_runs(connection, built)
    failed = [
        TimeRange(failure.insert_time, failure.insert_time + 1)
        for failure in failures.list_failures(connection)
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
        encodings = None if sources.every else sources.encodings
        first_times = (
            blocks.find_first(connection, gap, encodings) for gap in find_gaps(within, covered)
        )
        lacking[name] = next((time for time in first_times if time is not None), None)
    return lacking
