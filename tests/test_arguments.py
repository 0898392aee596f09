"""Arguments of wrong types, through every method and function of the public Python API."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest

import lakebed
import lakebed.spark
from lakebed import admin
from lakebed.client.client import Client
from lakebed.errors import BadInput, LakebedError, UnknownViewSet
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.model.arguments import is_time, list_names, read_hints
from tests.parts.data import HOUR, T0, publish_hour, readings
from tests.tables.parts import LOOSE, make

PARTS = (
    *("pipeline", "tables", "checker", "sweeper", "retirement", "blocks", "keys", "views"),
    *("partitions", "telemetry"),
)
FREE = {"records", "samples", "schema", "rows", "file", "source_hash"}
"""Parameters that take anything readable; their content is checked where it is read."""


class Odd:
    """A value that no parameter takes."""


def list_targets(lake: Lake) -> Iterator[tuple[str, Callable[..., Any]]]:
    table = make(lake, LOOSE)
    owners = {"lake": lake, "table": table, "client": Client.__new__(Client)}
    owners |= {name: getattr(lake, name) for name in PARTS}
    for name, owner in owners.items():
        for attribute in dir(owner):
            method = getattr(type(owner), attribute, None)
            if inspect.isfunction(method) and not attribute.startswith("_"):
                yield f"{name}.{attribute}", getattr(owner, attribute)
    for name in lakebed.spark.__all__:
        if name not in ("SparkReader", "ship", "spark_schema"):
            yield f"lakebed.spark.{name}", getattr(lakebed.spark, name)
    for name in ("open", "init", "connect"):
        yield f"lakebed.{name}", getattr(lakebed, name)


def test_every_argument_of_a_wrong_type_is_named(lake: Lake) -> None:
    names = []
    for name, function in list_targets(lake):
        hints = read_hints(function)
        for parameter in inspect.signature(function).parameters.values():
            hint = hints[parameter.name]
            if hint is Any or is_time(hint) or parameter.name in FREE:
                continue
            wrong: list[Any] = [Odd(), *(["yes"] if hint is bool else [])]
            wrong += [[Odd()]] if hint is str or str in get_args(hint) else []
            for value in wrong:
                with pytest.raises(BadInput) as caught:
                    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                        function(value)
                    else:
                        function(**{parameter.name: value})
                expected = f"{function.__name__}: argument {parameter.name!r} must be "
                assert str(caught.value).startswith(expected), (name, str(caught.value))
            names.append(f"{name}.{parameter.name}")
    assert len(names) > 150
    assert {"pipeline.build.names", "lake.query.stale", "retirement.restore.partition_id"} <= {
        *names
    }


@pytest.mark.parametrize("wrong", [Odd(), [T0], "soon", None, True, 1.5, datetime(2026, 1, 1)])  # noqa: DTZ001
def test_every_time_of_a_wrong_type_is_refused(lake: Lake, wrong: Any) -> None:
    lake.views.register(readings())
    before = publish_hour(lake, 0, 3)
    calls: list[Callable[[], Any]] = [
        lambda: lake.retirement.retire_partitions("readings", wrong, T0 + HOUR),
        lambda: lake.retirement.retire_partition_by_metadata("readings", "global", T0, wrong),
        lambda: lake.partitions.publish_completed_empty("readings", wrong, T0 + 3 * HOUR),
        lambda: lake.partitions.list_partitions(inserted=(T0, wrong)),
        lambda: lake.blocks.plan_before(wrong),
        lambda: admin.explain_empty(lake, "readings", T0, wrong),
    ]
    if wrong is not None:
        calls += [
            lambda: lake.query("SELECT 1", wrong),
            lambda: lake.query("SELECT 1", as_of=wrong),
            lambda: lake.pipeline.plan(begin=wrong),
            lambda: lake.partitions.list_partitions(as_of=wrong),
            lambda: lake.partitions.snapshot("readings", as_of=wrong),
            lambda: admin.list_partitions(lake, as_of=wrong),
        ]
    for call in calls:
        with pytest.raises(BadInput):
            call()
    assert lake.partitions.list_partitions("readings") == [before]


def test_one_name_and_several_names_are_taken(lake: Lake) -> None:
    expected = "build: argument 'names' must be str or a list of str, not Odd"
    with pytest.raises(BadInput, match=expected):
        lake.pipeline.build(Odd())  # type: ignore[arg-type]
    with pytest.raises(UnknownViewSet):
        lake.pipeline.build(["nothing"])
    expected = lake.pipeline.plan("log_entries", "blocks")
    assert lake.pipeline.plan(["log_entries", "blocks"]).steps == expected.steps
    assert lake.pipeline.plan(("log_entries",), "blocks").steps == expected.steps
    assert lake.pipeline.retry_failures(["log_entries"]) == 0
    with lake.partitions.snapshot(["log_entries", "spans"]) as snapshot:
        assert snapshot.read_all("spans").num_rows == 0
    with lake.partitions.snapshot("log_entries", "spans") as snapshot:
        assert snapshot.read_all("spans").num_rows == 0
    assert list_names(["a", ["b", "c"]]) == ("a", "b", "c")
    with pytest.raises(BadInput, match="a list of names is empty"):
        lake.pipeline.plan([])


def test_one_text_stands_for_several(lake: Lake) -> None:
    table = make(lake, {"time": "datetime", "bpm": {"type": "int", "required": True}})
    altered = table.alter(widen="bpm", relax="bpm")
    assert (altered.column("bpm").type, altered.column("bpm").required) == ("float", False)
    assert lake.keys.create("me", "admin").key.roles
    lake.views.register(readings())
    for hour in range(12):
        publish_hour(lake, hour, 1)
    everything = ("readings", T0, T0 + 12 * HOUR)
    with pytest.raises(LakebedError):
        lake.retirement.retire_partitions(*everything)
    assert len(lake.retirement.retire_partitions(*everything, confirmed="readings")) == 12


def test_values_of_a_fitting_type_are_taken(lake: Lake, tmp_path: Path) -> None:
    assert lake.checker.run(Level.FILES).is_clean
    assert lake.checker.run(2).is_clean  # type: ignore[arg-type]
    assert lake.query("SELECT 1", datetime(2026, 1, 1, tzinfo=UTC), timeout=5).to_arrow()
    with lakebed.init(tmp_path / "other") as other:
        assert other.tables.list_databases() == []
