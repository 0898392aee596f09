"""What every store promises, the same on local disk and behind S3."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from lakebed.errors import (
    AlreadyThere,
    BadInput,
    LakebedError,
    Refused,
    Unavailable,
    UnknownObject,
)
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.opening import copy_lake, open_lake
from lakebed.storage import layout
from lakebed.storage.local import LocalStore
from lakebed.storage.marks import find_mark, require_mark, write_mark
from lakebed.storage.objects import Store, open_store, probe_create_only, put, read_all
from lakebed.storage.s3 import S3Store
from tests.parts.data import HOUR, T0, numbers_in, publish_hour, readings, rows, stored_files
from tests.storage.parts import one_line

NewLake = Callable[..., Lake]
KINDS = ("local", "s3")
OUTSIDE = ("/etc/passwd", "..", "../x", "a/../../x")


def _open_kind(kind: str, name: str, request: pytest.FixtureRequest) -> Store:
    if kind == "s3":
        return S3Store(f"s3://{request.getfixturevalue('s3_bucket')}/{name}")
    folder: Path = request.getfixturevalue("tmp_path") / name
    folder.mkdir()
    return LocalStore(folder)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> Store:
    """An empty store; every test that uses it runs on both kinds."""
    return _open_kind(request.param, "lake", request)


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    """An empty store on local disk."""
    return LocalStore(tmp_path)


# ---- reading and writing ------------------------------------------------------------------------


def test_an_object_reads_back_whole_and_in_parts(store: Store) -> None:
    put(store, "a/b/object", b"0123456789")
    assert store.size("a/b/object") == 10
    assert read_all(store, "a/b/object") == b"0123456789"
    assert store.read("a/b/object", 2, 3) == b"234"
    assert store.read("a/b/object", 0, 0) == b""


def test_many_writes_make_one_object(store: Store) -> None:
    chunk = bytes(range(256)) * 1024
    with store.create("large") as sink:
        for _ in range(10):
            sink.write(chunk)
    assert store.size("large") == 10 * len(chunk)
    assert store.read("large", 9 * len(chunk) - 3, 6) == chunk[-3:] + chunk[:3]


def test_a_range_that_reaches_beyond_the_end_is_shorter(store: Store) -> None:
    put(store, "object", b"0123456789")
    assert store.read("object", 8, 10) == b"89"


@pytest.mark.parametrize(("data", "start"), [(b"0123456789", 10), (b"0123456789", 25), (b"", 0)])
def test_a_range_behind_the_end_is_empty(store: Store, data: bytes, start: int) -> None:
    put(store, "object", data)
    assert store.read("object", start, 5) == b""


def test_an_opened_object_can_be_read_at_any_place(store: Store) -> None:
    put(store, "object", b"0123456789")
    source = store.open("object")
    try:
        assert source.size() == 10
        source.seek(7)
        assert source.read(100) == b"789"
        source.seek(1)
        assert source.read(2) == b"12"
        assert source.tell() == 3
        assert source.read_at(4, 3) == b"3456"
    finally:
        source.close()
    assert source.closed


@pytest.mark.parametrize("action", ["size", "read", "open"])
def test_what_is_missing_is_an_unknown_object(store: Store, action: str) -> None:
    put(store, "object", b"x")
    put(store, "folder/object", b"x")
    with pytest.raises(UnknownObject):
        store.size("folder")
    arguments = ("object2", 0, 1) if action == "read" else ("object2",)
    with pytest.raises(UnknownObject, match="object2") as raised:
        getattr(store, action)(*arguments)
    one_line(raised.value)


def test_names_are_taken_literally(store: Store) -> None:
    names = ["sp ace/ü/x=1", "100%41", "a+b&c", "a?b#c", "~home"]
    for name in names:
        put(store, name, name.encode())
    assert {found.path for found in store.list()} == set(names)
    assert [read_all(store, name).decode() for name in names] == names


# ---- creating exactly once ----------------------------------------------------------------------


def test_a_second_create_fails_and_leaves_the_first_bytes(store: Store) -> None:
    put(store, "a/object", b"first")
    with pytest.raises(AlreadyThere, match="a/object") as raised:
        put(store, "a/object", b"second, and longer")
    one_line(raised.value)
    assert read_all(store, "a/object") == b"first"


def test_of_two_writers_at_once_exactly_one_wins(store: Store) -> None:
    won = []
    try:
        with store.create("object") as sink:
            sink.write(b"outer")
            try:
                put(store, "object", b"inner")
                won.append(b"inner")
            except AlreadyThere:
                pass
        won.append(b"outer")
    except AlreadyThere:
        pass
    assert len(won) == 1
    assert read_all(store, "object") == won[0]


def test_a_name_can_be_used_again_after_it_was_deleted(store: Store) -> None:
    put(store, "object", b"first")
    store.delete(["object"])
    put(store, "object", b"second")
    assert read_all(store, "object") == b"second"


def test_an_error_of_the_writer_comes_through(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.create("object") as sink:
        sink.write(b"half")
        raise ZeroDivisionError
    put(store, "another", b"x")
    assert read_all(store, "another") == b"x"


def test_an_object_in_a_bucket_appears_whole_at_the_end_of_the_block(s3_bucket: str) -> None:
    store = S3Store(f"s3://{s3_bucket}")
    with store.create("object") as sink:
        sink.write(b"0123456789")
        with pytest.raises(UnknownObject):
            store.size("object")
    assert read_all(store, "object") == b"0123456789"
    with pytest.raises(ZeroDivisionError), store.create("never") as sink:
        sink.write(b"half")
        raise ZeroDivisionError
    assert [found.path for found in store.list()] == ["object"]


class Overwriting:
    """A server that takes the condition of a create and ignores it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        self._store.delete([path])
        return self._store.create(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_probe_passes_and_leaves_nothing(store: Store) -> None:
    probe_create_only(store, "1")
    assert list(store.list()) == []


def test_a_probe_refuses_a_store_that_overwrites(store: Store) -> None:
    with pytest.raises(Unavailable, match="overwrites objects") as raised:
        probe_create_only(Overwriting(store), "1")
    assert "If-None-Match" in one_line(raised.value)
    assert list(store.list()) == []


# ---- deleting and listing -----------------------------------------------------------------------


def test_deleting_is_idempotent_and_what_is_missing_counts_as_deleted(store: Store) -> None:
    for name in ("a/1", "a/2", "b"):
        put(store, name, b"x")
    for _ in range(2):
        store.delete(["a/1", "never/was", "b"])
        assert {each.path for each in store.list() if not each.empty_folder} == {"a/2"}
    store.delete([])


def test_more_can_be_deleted_than_one_request_takes(store: Store) -> None:
    names = [f"many/{number}" for number in range(2001)]
    there = [names[number] for number in (0, 999, 1000, 1999, 2000)]
    for name in (*there, "kept"):
        put(store, name, b"x")
    store.delete(iter(names))
    assert [each.path for each in store.list() if not each.empty_folder] == ["kept"]


def test_a_list_tells_names_sizes_and_times(store: Store) -> None:
    assert list(store.list()) == []
    before = time.time()
    put(store, "a/b/c", b"123")
    put(store, "lake.json", b"")
    after = time.time()
    found = {each.path: each for each in store.list()}
    assert {path: each.size for path, each in found.items()} == {"a/b/c": 3, "lake.json": 0}
    for each in found.values():
        assert not each.empty_folder
        assert (before - 2) * 1_000_000 < each.modified < (after + 2) * 1_000_000


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_sees_nothing_of_its_neighbour(kind: str, request: pytest.FixtureRequest) -> None:
    one = _open_kind(kind, "lake", request)
    other = _open_kind(kind, "lake2", request)
    put(other, "object", b"other")
    assert list(one.list()) == []
    put(one, "object", b"one")
    one.delete(["object"])
    assert read_all(other, "object") == b"other"


def test_a_folder_without_files_is_listed_as_such(local: LocalStore) -> None:
    put(local, "a/b/object", b"x")
    local.delete(["a/b/object"])
    assert [(each.path, each.empty_folder) for each in local.list()] == [("a/b", True)]


# ---- names and URLs -----------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["create", "size", "read", "open", "delete"])
def test_a_path_that_could_leave_the_store_is_refused(store: Store, action: str) -> None:
    for path in (*OUTSIDE, "a\\b", "a\0b", "", ".", "./a", "a//b", "a/"):
        with pytest.raises(BadInput, match="is not a path inside the lake") as raised:
            if action == "create":
                put(store, path, b"x")
            elif action == "read":
                store.read(path, 0, 1)
            elif action == "delete":
                store.delete([path])
            else:
                getattr(store, action)(path)
        assert repr(path) in one_line(raised.value)
    assert list(store.list()) == []


def test_a_delete_with_one_bad_path_deletes_nothing(store: Store) -> None:
    put(store, "object", b"x")
    with pytest.raises(BadInput):
        store.delete(["object", "../object"])
    assert read_all(store, "object") == b"x"


def test_a_store_is_opened_by_its_own_url(store: Store) -> None:
    put(store, "object", b"x")
    again = open_store(store.url)
    assert type(again) is type(store)
    assert again.url == store.url
    assert read_all(again, "object") == b"x"


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "a b%20#c?d é"
    folder.mkdir()
    put(LocalStore(folder), "object", b"x")
    assert read_all(open_store(LocalStore(folder).url), "object") == b"x"


@pytest.mark.parametrize(
    "url", ["", "/folder", "ftp://host/x", "file://relative/x", "file://", "s3://", "s3:///prefix"]
)
def test_a_url_that_is_no_store_is_refused(url: str) -> None:
    with pytest.raises(BadInput) as raised:
        open_store(url)
    assert "use " in one_line(raised.value)


def test_a_bucket_that_does_not_exist_is_named(s3_bucket: str) -> None:
    store = S3Store(f"s3://{s3_bucket}-not/lake")
    for action in (lambda: put(store, "object", b"x"), lambda: list(store.list())):
        with pytest.raises(LakebedError) as raised:
            action()
        assert store.url in one_line(raised.value)


# ---- marks --------------------------------------------------------------------------------------


def test_a_mark_says_whose_a_store_is(store: Store) -> None:
    assert find_mark(store) is None
    write_mark(store, "lake-1")
    assert find_mark(store) == "lake-1"
    require_mark(store, "lake-1")
    write_mark(store, "lake-1")
    for another in (write_mark, require_mark):
        with pytest.raises(Refused, match="belongs to lake lake-1, the catalog is of lake lake-2"):
            another(store, "lake-2")
    assert find_mark(store) == "lake-1"


def test_a_store_without_a_mark_is_nobodys(store: Store) -> None:
    with pytest.raises(Refused, match="is not marked as any lake's"):
        require_mark(store, "lake-1")


@pytest.mark.parametrize("text", [b"", b"garbage", b"[]", b"{}", b"\xff\xfe"])
def test_a_mark_that_cannot_be_read_is_refused(store: Store, text: bytes) -> None:
    put(store, layout.MARK, text)
    with pytest.raises(Refused, match=r"lake\.json .* is not readable"):
        require_mark(store, "lake-1")


# ---- a whole lake in a bucket -------------------------------------------------------------------


def test_a_lake_lives_in_a_bucket(
    new_lake: NewLake, new_catalog: Callable[..., str], s3_bucket: str, tmp_path: Path
) -> None:
    lake = new_lake(store=f"s3://{s3_bucket}/lakes/weather", grace="0s")
    lake.views.register(readings())
    first = publish_hour(lake, 0)
    publish_hour(lake, 1, count=0)
    second = publish_hour(lake, 2, count=5)
    assert sum(numbers_in(lake).values()) == 8

    third = lake.partitions.publish(
        "readings", T0 + 2 * HOUR, T0 + 3 * HOUR, rows(4, 2), replaces=[second]
    )
    lake.retirement.retire_partition_by_metadata(
        "readings", "global", T0, T0 + HOUR, confirmed=["readings"]
    )
    assert sum(numbers_in(lake).values()) == 4
    restored = lake.retirement.restore(first.partition_id)
    held = numbers_in(lake)
    assert sum(held.values()) == 7

    lake.leases.beat()  # lets go of what the closed snapshots read
    assert [file.file_path for file in lake.sweeper.plan().files] == [second.file_path]
    assert lake.sweeper.run().files == 1
    assert stored_files(lake) == {restored.file_path, third.file_path}

    report = lake.checker.run(Level.PAGES)
    assert report.findings == []
    assert (report.files, report.rows) == (2, 7)

    backup = tmp_path / "backup"
    assert copy_lake(lake, backup).files == 2
    catalog = new_catalog()
    with open_lake(backup) as copy:
        assert numbers_in(copy) == held
        assert copy_lake(copy, catalog=catalog, store=f"s3://{s3_bucket}/lakes/back").files == 2
    with open_lake(catalog) as back:
        assert numbers_in(back) == held
        assert back.checker.run(Level.PAGES).findings == []


def test_a_bucket_prefix_that_is_somebodys_lake_is_refused(
    new_lake: NewLake, s3_bucket: str
) -> None:
    lake = new_lake(store=f"s3://{s3_bucket}/lake")
    lake.views.register(readings())
    publish_hour(lake, 0)
    with pytest.raises(Refused, match=f"belongs to lake {lake.lake_id}"):
        new_lake(store=f"s3://{s3_bucket}/lake")
