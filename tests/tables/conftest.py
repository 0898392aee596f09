"""Fixtures for several tests of tables."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parts import servers


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """A folder in memory if there is one: a killed process leaves the same files there."""
    folder = Path(tempfile.mkdtemp(dir=servers.quick_folder()))
    yield folder
    shutil.rmtree(folder)
