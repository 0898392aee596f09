"""Log records about the steps of a build, as the driver sees them."""

from __future__ import annotations

import logging

from lakebed.logs import Operation
from lakebed.pipeline.publishing import Outcome
from lakebed.pipeline.steps import Build, Fold, Merge, Query, Step

_NAMES = {Build: "build step", Query: "build step", Merge: "merge", Fold: "fold"}
_log = logging.getLogger(__name__)


def start_step(step: Step) -> Operation:
    """Log that a step started."""
    return Operation(
        _log,
        _NAMES[type(step)],
        view_set=step.name,
        range=str(step.insert_range),
        reads_rows=step.reads_rows,
        reads_bytes=step.reads_bytes,
        replaces=len(step.replaces),
    ).start()


def end_step(operation: Operation, outcome: Outcome) -> None:
    """Log how a step ended. A step that is planned again is not worth a warning."""
    if outcome.overtaken is not None:
        operation.fail(f"overtaken: {outcome.overtaken}", level=logging.INFO)
    elif outcome.problem is not None:
        operation.add(failed_blocks=outcome.failed_blocks)
        operation.fail(outcome.problem)
    elif outcome.partition is not None:
        partition = outcome.partition
        operation.end(rows=partition.num_rows, bytes=partition.file_size, path=partition.file_path)
    else:
        operation.end()
