"""The examples of the pages about Spark are run, and say nothing on stderr."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "spark.md"


def test_the_examples_of_the_pages_run(tmp_path: Path) -> None:
    """One page after the other, in one Spark, which starts only once."""
    blocks = []
    for page in ("spark.md", "pipeline.md"):
        found = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
        assert found
        blocks += found
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_public_name_is_on_the_page() -> None:
    import lakebed.spark

    page = PAGE.read_text()
    assert {*lakebed.spark._HOMES} == {*lakebed.spark.__all__}
    for name in lakebed.spark.__all__:
        assert getattr(lakebed.spark, name) is not None
        assert name in page, name
