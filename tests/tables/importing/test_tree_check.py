"""Checks of foreign trees of Parquet files, on disk and on S3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakebed.errors import BadInput
from lakebed.tables.importing import tree_check
from lakebed.tables.importing.tree_check import TreeReport, check_tree, list_empty
from tests.tables.importing.trees import as_bytes, break_page, put, rows

TREE: dict[str, bytes] = {
    "partition_date=2024-05-01/a.parquet": as_bytes(rows(1)),
    "partition_date=2024-05-01/b.parquet": as_bytes(rows(1, 5, seed=1)),
    "partition_date=2024-05-02/empty.parquet": as_bytes(rows(2).slice(0, 0)),
    "partition_date=2024-05-02/also empty.parquet": as_bytes(rows(2, seed=1).slice(0, 0)),
    "partition_date=2024-05-03/_SUCCESS": b"",
    "partition_date=2024-05-04/half.parquet": as_bytes(rows(4))[:300],
    "partition_date=2024-05-05/zero.parquet": b"",
    "partition_date=2024-05-06/text.parquet": b"not a Parquet file at all",
    "partition_date=2024-05-06/notes.txt": b"remember",
    "partition_date=2024-05-06/x.parquet.tmp": b"PAR1",
    "partition_date=2024-05-07/odd.parquet": as_bytes(rows(7, mood=["good"] * 10).drop(["bpm"])),
    "partition_date=2024-05-08/typed.parquet": as_bytes(rows(8, bpm=["60"] * 10)),
    "partition_date=garbage/a.parquet": as_bytes(rows(9)),
    "partition_date=/a.parquet": as_bytes(rows(10)),
    "year=2024/a.parquet": as_bytes(rows(11)),
    "_delta_log/0.json": b"{}",
}


def build(root: Path) -> Path:
    for path, content in TREE.items():
        put(root, path, content)
    (root / "partition_date=2024-05-09" / "hour=7").mkdir(parents=True)
    return root


def findings_of(report: TreeReport) -> set[tuple[str, str, str]]:
    return {(finding.severity, finding.kind, finding.subject) for finding in report.findings}


EXPECTED = {
    ("note", "empty file", "partition_date=2024-05-02/empty.parquet"),
    ("note", "empty file", "partition_date=2024-05-02/also empty.parquet"),
    ("note", "empty partition", "partition_date=2024-05-02"),
    ("note", "empty folder", "partition_date=2024-05-03"),
    ("damage", "unreadable footer", "partition_date=2024-05-04/half.parquet"),
    ("damage", "zero bytes", "partition_date=2024-05-05/zero.parquet"),
    ("damage", "not Parquet", "partition_date=2024-05-06/text.parquet"),
    ("note", "not Parquet", "partition_date=2024-05-06/notes.txt"),
    ("note", "unfinished file", "partition_date=2024-05-06/x.parquet.tmp"),
    ("warning", "schema drift", "partition_date=2024-05-07/odd.parquet"),
    ("warning", "schema drift", "partition_date=2024-05-08/typed.parquet"),
    ("warning", "folder value", "partition_date=garbage"),
    ("warning", "folder value", "partition_date="),
    ("warning", "folder names", "year=2024/a.parquet"),
}
EMPTY_FOLDER = ("note", "empty folder", "partition_date=2024-05-09/hour=7")


def test_tree_on_disk_has_every_finding(tmp_path: Path) -> None:
    root = build(tmp_path / "tree")
    progress_files: list[int] = []
    report = check_tree(root, progress=lambda report: progress_files.append(report.files))
    assert findings_of(report) == EXPECTED | {EMPTY_FOLDER}
    assert not report.is_clean
    assert (report.files, report.rows, report.folders) == (12, 65, 14)
    assert progress_files[-1] == 12
    messages = {finding.subject: finding.message for finding in report.findings}
    assert messages["partition_date=2024-05-07/odd.parquet"] == "1 file: lacks bpm; has also mood"
    assert messages["partition_date=2024-05-08/typed.parquet"].startswith("1 file: bpm is String,")
    assert messages["partition_date=2024-05-02"] == "its 2 files have no rows"
    assert messages["partition_date=garbage"] == (
        "folder partition_date=garbage does not name a time"
    )
    empty = {finding.subject for finding in list_empty(report)}
    assert empty >= {"partition_date=2024-05-02", "partition_date=2024-05-03"}
    assert {path: (root / path).read_bytes() for path in TREE} == TREE


def test_tree_on_s3_has_the_same_findings(s3_endpoint: str, s3_bucket: str) -> None:
    import boto3

    client = boto3.client("s3", endpoint_url=s3_endpoint)
    for path, content in TREE.items():
        client.put_object(Bucket=s3_bucket, Key=f"old/tree/{path}", Body=content)
    client.put_object(Bucket=s3_bucket, Key="old/tree/", Body=b"")
    client.put_object(Bucket=s3_bucket, Key="old/tree/partition_date=2024-05-01/", Body=b"")
    client.put_object(Bucket=s3_bucket, Key="old/tree/partition_date=2024-05-09/hour=7/", Body=b"")
    report = check_tree(f"s3://{s3_bucket}/old/tree")
    assert findings_of(report) == EXPECTED | {EMPTY_FOLDER}
    with pytest.raises(BadInput, match="nothing is stored below"):
        check_tree(f"s3://{s3_bucket}/old/nothing")


def test_pages_are_read_on_request(tmp_path: Path) -> None:
    put(tmp_path, "good.parquet", as_bytes(rows(1), write_page_checksum=True))
    put(tmp_path, "bad.parquet", break_page(as_bytes(rows(2), write_page_checksum=True)))
    assert check_tree(tmp_path).is_clean
    report = check_tree(tmp_path, pages=True)
    assert findings_of(report) == {("damage", "unreadable page", "bad.parquet")}
    assert check_tree(tmp_path / "good.parquet", pages=True).is_clean
    assert check_tree((tmp_path / "good.parquet").as_uri(), pages=True).files == 1


def test_folder_value_that_is_not_a_number_as_the_others_is_found(tmp_path: Path) -> None:
    for value in [*range(20), "ring"]:
        put(tmp_path, f"device={value}/a.parquet", as_bytes(rows(1)))
    (finding,) = check_tree(tmp_path).findings
    assert (finding.kind, finding.subject) == ("folder value", "device=ring")


def test_findings_are_counted_beyond_those_that_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_check, "MOST_FINDINGS", 3)
    for number in range(5):
        put(tmp_path, f"{number}.parquet", b"")
    report = check_tree(tmp_path)
    assert report.counts["zero bytes"] == report.damaged == 5
    assert len(report.findings) == 3


def test_reordered_columns_and_types_of_arrow_are_no_drift(tmp_path: Path) -> None:
    table = rows(1)
    put(tmp_path, "a.parquet", table)
    put(tmp_path, "b.parquet", table.select(["bpm", "device", "time"]))
    coded = table.set_column(1, "device", table["device"].dictionary_encode())
    put(tmp_path, "c.parquet", coded)
    large = table.set_column(1, "device", table["device"].cast(pa.large_string()))
    put(tmp_path, "d.parquet", large)
    assert check_tree(tmp_path).findings == []


@pytest.mark.parametrize("source", ["", None, 5, "nowhere/at/all", "gs://bucket/tree"])
def test_source_that_cannot_be_checked_is_refused(source: Any) -> None:
    with pytest.raises(BadInput):
        check_tree(source)


def test_named_file_that_is_not_parquet_is_damage_whatever_its_name(tmp_path: Path) -> None:
    put(tmp_path, "notes.txt", b"remember")
    report = check_tree(tmp_path / "notes.txt")
    assert findings_of(report) == {("damage", "not Parquet", "notes.txt")}


def test_empty_tree_is_one_empty_folder(tmp_path: Path) -> None:
    (finding,) = check_tree(tmp_path).findings
    assert (finding.kind, finding.subject) == ("empty folder", str(tmp_path))
