"""Lakes with a few hours of readings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakebed.lake import Lake
from lakebed.opening import init_lake
from tests.query.functions import fill


@pytest.fixture
def hours(lake: Lake) -> Lake:
    """Three hours of readings, the second of which is empty."""
    return fill(lake)


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """The same, for tests that must change nothing."""
    with init_lake(tmp_path_factory.mktemp("still")) as lake:
        yield fill(lake)
