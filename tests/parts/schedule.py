"""Which worker runs which test: all that share the Spark session go to one, first, because they
take longest; every other test goes to whoever is free.

Not ``--dist loadgroup``: pytest-xdist 3.8 marks groups in a way that pytest 9.2 ignores, and runs
such tests anywhere.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

_ON_SPARK = (
    "tests/cli/test_build.py",
    "tests/cli/test_query.py::test_spark",
    "tests/doctor/test_spark_job.py",
    "tests/pipeline/",
    "tests/proof/test_build_kills.py",
    "tests/proof/test_flipped_bits.py::test_spark",
    "tests/query/test_differential.py",
    "tests/query/test_spark_engine.py",
    "tests/query/test_spark_user_tables.py",
    "tests/query/test_materialize.py",
    "tests/spark/test_executors.py",
    "tests/spark/test_frames.py",
    "tests/spark/test_session.py",
    "tests/spark/test_source.py",
    "tests/spark/test_tables.py",
    "tests/spark/test_writing.py",
)


class OneSpark(LoadScopeScheduling):
    """One unit of work with everything that uses the `spark` fixture, and one for each test."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith(_ON_SPARK) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneSpark:
    """Used by xdist instead of what ``--dist`` names."""
    return OneSpark(config, log)
