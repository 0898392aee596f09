"""A plan shows what a command would do and writes nothing: no row of the catalog, no entry of the
journal, no tick of the clock, no file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakebed.catalog.catalog import Catalog
from lakebed.lake import Lake
from lakebed.model.time import format_instant
from lakebed.pipeline.steps import Build, Query
from lakebed.samples.generator import Generator
from lakebed.storage.local import LocalStore
from lakebed.views.builtin import COLUMNS
from tests.cli.parts import Cli
from tests.conftest import NewLake
from tests.parts.data import HOUR, T0, publish_hour, readings
from tests.parts.dumps import dump_database
from tests.tables.importing import trees

_RANGE = ["--begin", format_instant(T0), "--end", format_instant(T0 + 2 * HOUR)]


@dataclass(frozen=True)
class Target:
    """A lake that no process has open."""

    url: str
    store: Path
    folder: Path

    def dump(self) -> Any:
        catalog = Catalog(self.url, actor="test")
        try:
            files = {
                str(file.relative_to(self.store)): file.read_bytes()
                for file in self.store.rglob("*")
                if file.is_file()
            }
            return dump_database(catalog.engine), files
        finally:
            catalog.close()


def _target(lake: Lake, folder: Path) -> Target:
    assert isinstance(lake.store, LocalStore)
    return Target(lake.catalog.url, lake.store.root, folder)


@pytest.fixture
def new(new_lake: NewLake, tmp_path: Path) -> Target:
    """A lake in which telemetry landed and nothing was built; a block is on the last tick."""
    lake = new_lake()
    lake.telemetry.land("logs", Generator(1).logs(5).SerializeToString())
    lake.close()
    return _target(lake, tmp_path)


@pytest.fixture
def used(new_lake: NewLake, tmp_path: Path) -> Target:
    """A lake in which every plan finds something to do."""
    lake = new_lake(grace="0s")
    lake.views.register(readings())
    publish_hour(lake, 0)
    plan = lake.retirement.plan_by_range("readings", T0, T0 + HOUR)
    lake.retirement.carry_out(plan, confirmed=["readings"])
    for hour in range(3):
        publish_hour(lake, hour)
    lake.views.register(replace(readings(2), retention_us=HOUR))
    publish_hour(lake, 4, version=2)
    lake.telemetry.land("logs", Generator(1).logs(5).SerializeToString())
    lake.blocks.keep(HOUR)
    lake.tables.create_database("home")
    table = lake.tables.create_table("home", "rings", {"time": "datetime", "device": "string"})
    for device in ("ring-1", "ring-2"):
        table.insert([{"time": "2020-01-01T00:00:00Z", "device": device}])
    lake.tables.definitions.set_retention("home", "rings", "1d")
    (tmp_path / "tree").mkdir()
    pq.write_table(trees.rows(1), tmp_path / "tree" / "a.parquet")
    (tmp_path / "later.json").write_text(replace(readings(3), retention_us=HOUR // 2).definition())
    lake.close()
    return _target(lake, tmp_path)


PLANS: dict[str, list[str]] = {
    "build": ["build", "--plan"],
    "build of one": ["build", "log_stats", "--plan"],
    "build again": ["build", "--plan", "--retry-failed"],
    "build of a table": ["build", "home.rings", "--plan"],
    "sweep": ["sweep"],
    "sweep as JSON": ["sweep", "--json"],
    "retire a range": ["partitions", "retire", "readings", *_RANGE],
    "retire incompatible": ["partitions", "retire", "readings", "--incompatible"],
    "retire expired": ["partitions", "retire", "readings", "--expired"],
    "retire blocks": ["blocks", "retire", "--expired", "--allow-loss"],
    "keep blocks": ["blocks", "keep", "1us"],
    "keep a view set": ["views", "keep", "readings", "1m"],
    "remove a view set": ["views", "remove", "readings"],
    "register a view set": ["views", "register", "FOLDER/later.json"],
    "import": ["tables", "import", "FOLDER/tree", "home.old"],
    "import into a new database": ["tables", "import", "FOLDER/tree", "new.old"],
    "delete rows": ["tables", "delete", "home.rings", "--where", "device = 'ring-1'"],
    "delete a table": ["tables", "delete", "home.rings"],
    "delete a database": ["tables", "delete", "home"],
    "forget": ["tables", "forget", "home.rings", "device=ring-1"],
    "expire": ["tables", "expire", "home.rings"],
    "alter": ["tables", "alter", "home.rings", "--keep", "1h"],
}
"""Each does nothing on the lake `used` without --yes."""
LISTS: dict[str, list[str]] = {
    "upkeep": ["upkeep"],
    "view sets": ["views", "list"],
    "a built-in view set": ["views", "show", "log_entries"],
    "partitions": ["partitions", "list"],
    "partitions of a built-in view set": ["partitions", "list", "log_entries"],
    "journal": ["journal"],
    "leases": ["leases"],
    "keys": ["keys", "list"],
}
"""What reads rows, as `tables list` does, takes a lease and is not among them."""


def _run(cli: Cli, target: Target, arguments: list[str]) -> Any:
    lake = target.url
    if lake.startswith("sqlite"):
        lake = str(Path(lake.removeprefix("sqlite:///")).parent)
    words = [word.replace("FOLDER", str(target.folder)) for word in arguments]
    return cli(*words, "--lake", lake)


def _find_writers(cli: Cli, target: Target, commands: dict[str, list[str]]) -> dict[str, str]:
    """Return the commands that changed the lake or failed, with their errors."""
    before, writers = target.dump(), {}
    for name, arguments in commands.items():
        ran = _run(cli, target, arguments)
        if ran.code != 0 or target.dump() != before:
            writers[name] = f"exit code {ran.code}: {ran.err}"
            before = target.dump()
    return writers


def test_no_plan_or_list_writes_on_a_used_lake(cli: Cli, used: Target) -> None:
    assert _find_writers(cli, used, PLANS | LISTS) == {}


def test_no_plan_or_list_writes_on_a_new_lake(cli: Cli, new: Target) -> None:
    plans = {name: PLANS[name] for name in ("build", "build of one", "build again", "sweep")}
    assert _find_writers(cli, new, plans | LISTS) == {}


def test_migrate_of_a_current_catalog_writes_nothing(cli: Cli, used: Target) -> None:
    before = used.dump()
    assert _run(cli, used, ["migrate"]).code == 0
    assert used.dump() == before


def test_plan_on_a_new_lake_is_that_of_a_build(lake: Lake) -> None:
    lake.telemetry.land("logs", Generator(1).logs(5).SerializeToString())
    first = lake.pipeline.plan()
    assert lake.views.list_registered() == []
    built = {step.name for step in first.steps if isinstance(step, Build)}
    assert {"blocks", "log_entries"} <= built
    assert all(isinstance(step, Build | Query) for step in first.steps)
    carried_out = lake.pipeline._plan_build((), None, None)
    assert {active.view_set.name for active in lake.views.list_registered()} == set(COLUMNS)

    def describe(plan: Any) -> list[tuple[str, str, int]]:
        return [(step.name, step.describe(), step.insert_range.begin) for step in plan.steps]

    assert describe(carried_out) == describe(first)


def test_view_sets_of_a_new_lake_are_listed_before_a_build(cli: Cli, new: Target) -> None:
    listed = _run(cli, new, ["views", "list", "--json"]).json
    assert [row["view_set_name"] for row in listed] == sorted(COLUMNS)
    assert {row["activated_at"] for row in listed} == {None}
    assert _run(cli, new, ["views", "show", "log_stats"]).json["name"] == "log_stats"
    assert _run(cli, new, ["partitions", "list", "log_entries", "--json"]).json == []
