"""A build whose result is a list of log lines, for SQL functions."""

from __future__ import annotations

from lakebed.catalog import clock
from lakebed.catalog.catalog import Catalog
from lakebed.pipeline.pipeline import Pipeline


def build_and_tell(
    catalog: Catalog, pipeline: Pipeline, view_set: str, begin: int, end: int
) -> list[tuple[int, str]]:
    """Build one view set and what it reads in an insert-time range; return lines with their times.
    Steps that were published stay, also if a later one fails."""
    report = pipeline.build(view_set, begin=begin, end=end)
    with catalog.read() as connection:
        now = clock.upcoming(connection)
    lines = []
    for outcome in report.outcomes:
        name = f"{outcome.step.name} {outcome.step.insert_range}"
        if outcome.partition is not None:
            message = f"SUCCESS: {outcome.step.describe()}: {outcome.partition.describe()}"
            lines.append((outcome.partition.published_at, message))
        elif outcome.problem is not None:
            lines.append((now, f"ERROR: {name}: {outcome.problem}"))
        if outcome.failed_blocks:
            lines.append((now, f"ERROR: {name}: {outcome.failed_blocks} blocks cannot be decoded"))
    for skip in report.skipped:
        name = f"{skip.name} {skip.insert_range}"
        lines.append((now, f"SKIPPED: {name}: {skip.reason}"))
    lines.append((now, f"published {len(report.published)} partitions with {report.rows} rows"))
    return lines
