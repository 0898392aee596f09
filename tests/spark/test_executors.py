"""Executors that lack a module, credentials or the store end a build before it begins.

Real Python workers of the shared session run another Python than this one.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lakebed
import lakebed.spark
from lakebed.errors import BadInput, Unavailable
from lakebed.lake import Lake
from lakebed.pipeline.frames.reading import explain_s3a
from lakebed.pipeline.sessions.executors import StoreAddress, require_executors
from lakebed.samples.generator import Generator
from lakebed.storage import layout
from tests.parts.data import HOUR, T0, readings
from tests.parts.environments import link_distributions, list_requirements, make_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UsePython = Callable[[Path], None]


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def use_python(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> UsePython:
    """Sets the Python of the workers of the shared session."""

    def use(python: Path) -> None:
        monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))

    return use


def make_wrapper(folder: Path, *lines: str) -> Path:
    """Write a program that changes its environment and then runs this Python."""
    program = folder / "python"
    body = "\n".join((*lines, f'exec {shlex.quote(sys.executable)} "$@"'))
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return program


def land(lake: Lake) -> None:
    lake.telemetry.land("logs", Generator(1).serialized("logs", 10))


@pytest.mark.parametrize(("linked", "missing"), [([], "pyarrow"), (["pyarrow"], "msgspec")])
def test_build_names_the_module_that_executors_lack(
    lake: Lake,
    spark: SparkSession,
    use_python: UsePython,
    tmp_path: Path,
    linked: list[str],
    missing: str,
) -> None:
    python = make_environment(tmp_path / "venv")
    link_distributions(python, linked)
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    (site / "lakebed.pth").write_text(str(Path(lakebed.__file__).parents[1]))  # else it is sent
    use_python(python)
    land(lake)
    with pytest.raises(BadInput, match=f"spark's executors lack the module {missing}") as refused:
        lake.pipeline.build("log_entries", spark=spark)
    assert "on every node" in (refused.value.hint or "")
    assert lake.partitions.list_partitions("log_entries") == []


def test_write_and_insert_name_lakebed_when_workers_lack_it(
    lake: Lake, spark: SparkSession, use_python: UsePython, tmp_path: Path
) -> None:
    """As in a session of the user's own, where Spark takes the python3 of the PATH."""
    lake.views.register(readings())
    lake.tables.create_database("home")
    columns = {"time": {"type": "datetime", "unique": True}, "number": "int"}
    lake.tables.create_table("home", "numbers", columns)
    frame = spark.range(3).selectExpr(f"timestamp_micros({T0} + id) AS time", "id AS number")
    python = make_environment(tmp_path / "venv")
    link_distributions(python, list_requirements(metadata.distribution("lakebed"), frozenset()))
    use_python(python)
    with pytest.raises(BadInput, match="lack the module lakebed") as refused:
        lakebed.spark.write(frame, lake, "readings", T0, T0 + HOUR)
    assert "PYSPARK_PYTHON" in (refused.value.hint or "")
    with pytest.raises(BadInput, match="lack the module lakebed"):
        lakebed.spark.insert(frame, lake, "home.numbers")


def test_build_names_the_credentials_that_executors_lack(
    new_lake: Callable[..., Lake],
    s3_bucket: str,
    spark: SparkSession,
    use_python: UsePython,
    tmp_path: Path,
) -> None:
    lake = new_lake(store=f"s3://{s3_bucket}/lake")
    land(lake)
    names = [name for name in os.environ if name.startswith("AWS_") and "KEY" in name]
    elsewhere = "export AWS_METADATA_ENDPOINT=http://127.0.0.1:1"
    use_python(make_wrapper(tmp_path, f"unset {' '.join(names)}", elsewhere))
    with pytest.raises(Unavailable, match="no AWS credentials found") as refused:
        lake.pipeline.build("log_entries", spark=spark)
    assert "spark's executors cannot use the store" in str(refused.value)
    assert "--pass-credentials" in (refused.value.hint or "")
    report = lake.pipeline.build("log_entries", spark=spark, pass_credentials=True)
    assert report.problems == []
    assert report.rows == 10


def test_build_names_a_folder_that_executors_do_not_have(
    lake: Lake, spark: SparkSession, use_python: UsePython, tmp_path: Path
) -> None:
    use_python(make_wrapper(tmp_path))
    (tmp_path / "copy").mkdir()
    address = StoreAddress(f"file://{tmp_path / 'copy'}")
    with pytest.raises(Unavailable, match="cannot use the store") as refused:
        require_executors(spark, address)
    assert "same folder on every machine" in (refused.value.hint or "")
    shutil.copy(Path(lake.store.url.removeprefix("file://")) / layout.MARK, tmp_path / "copy")
    require_executors(spark, address)


def test_executors_of_this_python_are_not_asked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any) -> Any:
        raise AssertionError("a job was started")

    monkeypatch.setattr(type(spark), "range", run)
    require_executors(spark, StoreAddress(f"file://{tmp_path}"))


_S3A = "java.nio.file.AccessDeniedException: s3a://logs/x: org.apache.hadoop.fs.s3a.auth."
_STACK = "\n\tat org.apache.hadoop.fs.s3a.S3AFileSystem.s3GetFileStatus(S3AFileSystem.java:3799)"


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        (
            'UnsupportedFileSystemException: No FileSystem for scheme "s3a"',
            *(BadInput, "no S3 file system of its own"),
        ),
        (
            "ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
            *(BadInput, "no S3 file system of its own"),
        ),
        (
            "An error occurred while calling o1.parquet.\n: org.apache.hadoop.fs.s3a."
            "AWSBadRequestException: getFileStatus on s3a://logs/x: Bad Request "
            f"(Service: S3, Status Code: 400){_STACK}",
            *(Unavailable, "Status Code: 400"),
        ),
        (
            f"{_S3A}NoAuthWithAWSException: No AWS Credentials provided{_STACK}",
            *(Unavailable, "NoAuthWithAWSException"),
        ),
    ],
)
def test_failures_of_s3a_are_named_by_their_reason(
    text: str, kind: type[Exception], says: str
) -> None:
    error = explain_s3a("s3://logs", text)
    assert isinstance(error, kind)
    assert says in str(error)
    needs_credentials = "AWS_ACCESS_KEY_ID" in (error.hint or "")
    assert needs_credentials is ("NoAuth" in text)


def test_failures_that_are_not_of_s3a_keep_their_own_error() -> None:
    assert explain_s3a("s3://logs", "[PATH_NOT_FOUND] Path does not exist") is None
