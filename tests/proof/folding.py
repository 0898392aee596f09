"""A process that folds the tables of a lake, in itself or on a Spark of its own, and kills itself
before the first statement of a kind.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace

from lakebed.opening import open_lake
from tests.proof.seams import hook_engine


def main(lake_url: str, where: str, event: str) -> None:
    def kill(said: str) -> None:
        if said == event and published:
            os.kill(os.getpid(), signal.SIGKILL)
        if said == "sql UPDATE lakehouse_partitions":  # what is replaced is retired
            published.append(said)

    published: list[str] = []
    with open_lake(lake_url) as lake:
        if where == "spark":
            lake.pipeline.limits = replace(lake.pipeline.limits, fold_here_bytes=-1)
        hook_engine(lake.catalog.engine, kill)
        lake.pipeline.build(quick=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
