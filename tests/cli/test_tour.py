"""The tour tells a lake's whole life, on a real lake, and leaves nothing behind."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from lakebed.cli.main import run

CHAPTERS = [
    "1. A lake is made",
    "2. Partitions are published, an empty one too",
    "3. The schema evolves",
    "4. Incompatible partitions are retired",
    "5. One is restored",
    "6. What is left is swept",
    "7. The lake is checked",
]


def test_the_tour_ends_with_a_clean_lake_and_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert run(["tour"]) == 0
    told, talk = capsys.readouterr()
    assert talk == ""
    assert re.findall(r"^(\d\. .*?) ─*$", told, re.MULTILINE) == CHAPTERS
    made, published, _evolved, retired, restored, swept, checked = re.split(
        r"^\d\. .*$", told, flags=re.MULTILINE
    )[1:]
    assert "SQLite" in made
    assert "A snapshot reads 3,000 rows." in published
    assert published.count("none: empty") == 1
    assert retired.count("SUCCESS: Retired partition") == 3
    assert retired.count("SUCCESS: Retired empty partition") == 1
    assert "Restored as a new row" in restored
    assert "it swept 2 files and 1 empty partition" in swept
    assert "checked: clean, 2,000 rows." in checked
    assert "warning" not in checked
    assert "damage" not in checked
    assert "[bold]" not in told
    assert list(tmp_path.iterdir()) == []
