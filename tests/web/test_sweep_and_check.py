"""The plan of a sweep is the lake's own, and what is found is what a check finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakebed.access.keys import Role
from lakebed.errors import Refused
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.opening import init_lake
from lakebed.upkeep.upkeep import Upkeep
from lakebed.web.pages.checking import check_now
from lakebed.web.pages.sweeping import sweep
from tests.parts.data import HOUR, T0, publish_hour, readings, stored_files
from tests.web.forms import Browser
from tests.web.parts import showing

MARKUP = "<b>stray</b>"


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("web") / "lake"


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with init_lake(folder, grace="0s") as lake:
        lake.views.register(readings())
        yield lake


@pytest.fixture
def browsers(lake: Lake) -> Iterator[tuple[Browser, Browser]]:
    """An administrator's and a reader's."""
    made = [lake.keys.create("boss", [Role.ADMIN]), lake.keys.create("reader", [Role.READ])]
    with showing(lake) as served:
        admin, reader = (
            Browser(served, {"Authorization": f"Bearer {each.secret}"}) for each in made
        )
        yield admin, reader


def test_a_sweep_is_shown_and_then_done(browsers: tuple[Browser, Browser], lake: Lake) -> None:
    admin, reader = browsers
    kept, gone = publish_hour(lake, 0), publish_hour(lake, 1)
    publish_hour(lake, 2, 0)
    lake.retirement.retire_partitions("readings", T0 + HOUR, T0 + 3 * HOUR, confirmed=["readings"])
    plan = lake.sweeper.plan()
    data = admin.data("/admin/sweep")
    assert not data["is_empty"]
    assert (data["file_count"], data["bytes"]) == (len(plan.files), plan.bytes)
    assert data["bytes"] == gone.file_size
    assert [each["file_path"] for each in data["files"]] == [gone.file_path]
    assert (data["empty_partitions"], data["waiting"], data["protected"]) == (1, 0, 0)
    page = admin.load("/admin/sweep")
    assert str(gone.file_path) in page.text
    assert gone.file_path in stored_files(lake), "looking deletes nothing"

    reader.load("/admin/sweep", 403)
    reader.word, reader.token = admin.word, admin.token
    assert reader.send("/admin/sweep").status == 403
    assert Browser(admin.served, admin.headers, admin.word, "0").send("/admin/sweep").status == 403
    assert gone.file_path in stored_files(lake)

    assert "More is left: sweep again." in sweep(lake, most_batches=0).said
    told = admin.send_and_see("/admin/sweep").text
    assert "More is left" not in told
    assert f"Swept 1 file of {gone.file_size:,} bytes, 1 empty partition" in told
    assert "nothing to delete" in told
    assert stored_files(lake) == {kept.file_path}
    entry = admin.ask("/admin.json?operation=sweep").json()["journal"][0]
    assert entry["actor"].startswith("key:boss via ")


def test_what_is_read_is_kept_and_the_page_says_by_whom(
    browsers: tuple[Browser, Browser], lake: Lake
) -> None:
    admin, _ = browsers
    read = publish_hour(lake, 5)
    with lake.partitions.snapshot("readings") as snapshot:
        lake.retirement.retire_partitions(
            "readings", T0 + 5 * HOUR, T0 + 6 * HOUR, confirmed=["readings"]
        )
        data = admin.data("/admin/sweep")
        assert (data["file_count"], data["protected"]) == (0, 1)
        assert [each["holder"] for each in data["readers"]] == [lake.catalog.actor]
        assert lake.catalog.actor in admin.load("/admin/sweep").text
        assert "Swept 0 files" in admin.send_and_see("/admin/sweep").text
        assert read.file_path in stored_files(lake)
        assert snapshot.read(read).num_rows == read.num_rows


def test_a_check_shows_what_it_finds(
    browsers: tuple[Browser, Browser], lake: Lake, folder: Path
) -> None:
    admin, reader = browsers
    before = admin.data("/admin/check")
    assert (before["last"], before["duty"]["runs"]) == (None, 0)
    Upkeep(lake).run_due("check")
    duty = admin.data("/admin/check")["duty"]
    assert (duty["runs"], duty["error"]) == (1, None)
    assert duty["said"] in admin.load("/admin/check").text

    told = admin.send_and_see("/admin/check", level="footers").text
    assert "Checked: nothing is damaged" in told
    damaged = publish_hour(lake, 7)
    file = folder / "store" / str(damaged.file_path)
    content = file.read_bytes()
    stray = folder / "store" / MARKUP.replace("/", "")
    try:
        file.write_bytes(content[:-1])
        stray.write_bytes(b"what is this")
        page = admin.send_and_see("/admin/check", level="footers")
        found = lake.checker.run(Level.FOOTERS)
        last = admin.data("/admin/check")["last"]
        assert not last["is_clean"]
        assert last["level"] == "footers"
        assert last["finding_count"] == len(found.findings)
        assert last["findings"][0]["subject"] == damaged.file_path, "the worst comes first"
        assert {(e["kind"], e["subject"]) for e in last["findings"]} == {
            (each.kind, each.subject) for each in found.findings
        }
        counts = {name: last[name] for name in ("partitions", "files", "rows", "bytes")}
        assert counts == {name: getattr(found, name) for name in counts}
        assert last["actor"].startswith("key:boss via ")
        assert "Something is damaged" in page.text
        assert stray.name in page.text
        assert "<b>" not in page.html
    finally:
        file.write_bytes(content)
        stray.unlink()
    told = admin.send_and_see("/admin/check", level="catalog").text
    assert "down to catalog" in told

    with pytest.raises(Refused, match="takes too long") as refused:
        check_now(lake, {"level": "files"}, most_files=0)
    assert "lakebed check --level files" in str(refused.value.hint)
    assert "down to catalog" in check_now(lake, {"level": "catalog"}, most_files=0).said
    for level in ("pages", "<b>", ""):
        page = admin.send_in_vain("/admin/check", 400, level=level)
        assert "one of catalog, files, footers" in page.text
        assert "<b>" not in page.html
    with lake.leases.building("duty check"):
        page = admin.send_in_vain("/admin/check", 409, level="catalog")
        assert "is being checked at this moment" in page.text
    reader.load("/admin/check", 403)
    reader.word, reader.token = admin.word, admin.token
    assert reader.send("/admin/check", level="catalog").status == 403
    assert admin.data("/admin/check")["last"]["level"] == "catalog"
