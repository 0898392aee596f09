"""A build that says what it did, line by line, for SQL functions and others that keep a log."""

from __future__ import annotations

from lakebed.catalog import clock
from lakebed.catalog.catalog import Catalog
from lakebed.pipeline.pipeline import Pipeline


def build_and_tell(
    catalog: Catalog, pipeline: Pipeline, view_set: str, begin: int, end: int
) -> list[tuple[int, str]]:
    """Build one view set and what it reads in an insert-time range; when what was done. Each step
    is published by itself: what is there stays, also if a later one fails."""
    report = pipeline.build(view_set, begin=begin, end=end)
    with catalog.read() as connection:
        now = clock.upcoming(connection)
    lines = []
    for each in report.outcomes:
        name = f"{each.step.name} {each.step.insert_range}"
        if each.partition is not None:
            message = f"SUCCESS: {each.step.describe()}: {each.partition.describe()}"
            lines.append((each.partition.published_at, message))
        elif each.problem is not None:
            lines.append((now, f"ERROR: {name}: {each.problem}"))
        if each.failed_blocks:
            lines.append((now, f"ERROR: {name}: {each.failed_blocks} blocks cannot be decoded"))
    for skip in report.skipped:
        name = f"{skip.name} {skip.insert_range}"
        lines.append((now, f"SKIPPED: {name}: {skip.reason}"))
    lines.append((now, f"published {len(report.published)} partitions with {report.rows} rows"))
    return lines
