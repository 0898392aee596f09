"""A small job on Spark whose Python runs in workers, in a process of its own: what it says, as JSON
on the last line of stdout.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator
from typing import Any

from lakebed.errors import LakebedError


def _tell_python(batches: Iterator[Any]) -> Iterator[Any]:
    """Runs in a worker: which Python that is."""
    import platform

    import pyarrow as pa

    for _ in batches:
        yield pa.record_batch({"python": [platform.python_version()]})


def run() -> dict[str, str | None]:
    """Start Spark, run the job, stop Spark."""
    from lakebed.pipeline.session import use_session

    try:
        with use_session(quick=True) as spark:
            row = spark.range(1).mapInArrow(_tell_python, "python string").collect()[0]
            return {
                "spark": str(spark.version),
                "worker_python": str(row["python"]),
                "driver_python": platform.python_version(),
            }
    except LakebedError as error:
        return {"error": " ".join(str(error).split()), "hint": error.hint}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run()) + "\n")
