"""The pipeline runs on SQLite; in the campaign, and where a test says so, on PostgreSQL too: what
differs between catalogs is tested where they are.
"""

from __future__ import annotations

import pytest

from tests.conftest import CAMPAIGN

BOTH = ["sqlite", "postgresql"]


@pytest.fixture(params=BOTH if CAMPAIGN else BOTH[:1])
def dialect(request: pytest.FixtureRequest) -> str:
    """Which catalog a test runs on."""
    return str(request.param)
