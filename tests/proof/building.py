"""A process that builds a lake on a Spark of its own, to be killed. It says when it begins, and at
the end what it published; whoever started it may kill any part of it meanwhile.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

from lakebed.opening import open_lake
from lakebed.pipeline.sessions.session import open_session


def main(lake_url: str, master: str, records: int) -> None:
    settings = {"spark.executor.memory": "512m"} if master.startswith("local-cluster") else {}
    spark = open_session(master=master, quick=True, settings=settings)
    # The workers are up and have imported what they need: from here on, time is spent building.
    spark.range(0, 4, 1, 4).mapInArrow(_touch, "id long").collect()
    with open_lake(lake_url) as lake:
        lake.pipeline.limits = replace(lake.pipeline.limits, build_records=records)
        sys.stdout.write("building\n")
        sys.stdout.flush()
        report = lake.pipeline.build("log_stats", spark=spark)
    problems = [each.problem for each in report.problems]
    sys.stdout.write(json.dumps({"published": len(report.published), "problems": problems}) + "\n")
    spark.stop()


def _touch(batches):  # type: ignore[no-untyped-def]
    import lakebed.decode.logs
    import lakebed.storage.parquet  # noqa: F401

    yield from batches


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
