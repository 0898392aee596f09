"""Spark's classes, parsed once: an AppCDS archive in the cache folder, with which the JVM starts in
about half of the time.

The first session on a machine records which classes it loads; when its process ends, a detached
``java -Xshare:dump`` with the lowest priority makes the archive from that list and moves it into
the cache. Later sessions map it. The JVM checks that an archive fits (same Java, same jars) and
ignores one that does not, so the archive cannot break a start.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from lakebed.pipeline.sessions.java import Java

_QUIET = "-Xlog:disable"  # or the JVM talks on stdout about archives that do not fit
_FEWEST_CLASSES = 8_000  # a session that ran a query loads about 15,000
_STALE_SECONDS = 3600
_UNUSED_SECONDS = 60 * 24 * 3600
_MOST_ARCHIVES = 4  # each has some 200 MB


@dataclass(frozen=True, slots=True)
class Archive:
    """The archive for one Java and one installation of Spark."""

    java: Java
    jars: Path
    cache: Path

    @property
    def key(self) -> str:
        """A key that changes with the Java and with the jars, whose times the JVM compares as
        well."""
        core = sorted(self.jars.glob("spark-core_*.jar"))
        stamps = [f"{jar.name} {jar.stat().st_mtime_ns}" for jar in core]
        text = "\n".join([str(self.java.program), self.java.version, str(self.jars), *stamps])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def file(self) -> Path:
        return self.cache / f"spark-{self.key}.jsa"

    @property
    def _making(self) -> Path:
        """The folder that exists while a process records or makes this archive."""
        return self.cache / f"spark-{self.key}.making"

    def use(self) -> str:
        """Return the JVM's options for using the archive, if there is one."""
        if not self.file.is_file():
            return _QUIET
        with contextlib.suppress(OSError):
            os.utime(self.file)
        return f'{_QUIET} -Xshare:auto "-XX:SharedArchiveFile={self.file}"'

    def record(self) -> str | None:
        """Return the JVM's options for recording what an archive needs, if there is none and no
        other process records. The caller must then call `finish` once."""
        if self.file.is_file():
            return None
        with contextlib.suppress(OSError):  # a claim that was left behind lapses
            if time.time() - self._making.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(self._making, ignore_errors=True)
        try:
            self._making.mkdir()
        except OSError:
            return None
        return f'{_QUIET} "-XX:DumpLoadedClassList={self._making / "classes"}"'

    def finish(self) -> subprocess.Popen[bytes] | None:
        """Make the archive from the recording of this process, in the background; nothing if it
        recorded too little to be of use."""
        try:
            lines = (self._making / "classes").read_text().rpartition("\n")[0].splitlines()
        except OSError:
            lines = []
        if len(lines) < _FEWEST_CLASSES:
            shutil.rmtree(self._making, ignore_errors=True)
            return None
        (self._making / "list").write_text("\n".join(lines) + "\n")
        self._remove_unused()
        return subprocess.Popen(  # noqa: S603  (the user's own Java)
            ["/bin/sh", "-c", self._script()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.cache,
            start_new_session=True,
        )

    def _script(self) -> str:
        dump = [
            "nice",
            "-n",
            "19",
            str(self.java.program),
            "-Xshare:dump",
            "-XX:TieredStopAtLevel=1",
            f"-XX:SharedClassListFile={self._making / 'list'}",
            f"-XX:SharedArchiveFile={self._making / 'archive'}",
            "-cp",
            self._class_path(),
        ]
        making, file = shlex.quote(str(self._making)), shlex.quote(str(self.file))
        return f"{shlex.join(dump)} && mv {making}/archive {file}; rm -rf {making}"

    def _class_path(self) -> str:
        """Return the class path as Spark's launcher composes it: an archive fits only the same
        class path."""
        first = sorted(str(jar) for jar in self.jars.glob("slf4j-api-*.jar"))
        return ":".join([str(self.jars.parent / "conf"), *first, f"{self.jars}/*"])

    def _remove_unused(self) -> None:
        """Remove archives of Javas and Sparks that are gone: all that were not used for long,
        and of the others all but the newest few; each use renews a file's time. Abandoned claims
        are removed too."""
        before = time.time() - _UNUSED_SECONDS
        newest_first = sorted(_list_used(self.cache, "spark-*.jsa"), reverse=True)
        for index, (used, path) in enumerate(newest_first):
            if index >= _MOST_ARCHIVES - 1 or used < before:
                with contextlib.suppress(OSError):  # another process, or it is not ours
                    path.unlink()
        for used, path in _list_used(self.cache, "spark-*.making"):
            if used < before:
                shutil.rmtree(path, ignore_errors=True)


def _list_used(folder: Path, pattern: str) -> list[tuple[float, Path]]:
    """Return the files that match, each with the time of its last use."""
    used_files = []
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):  # another process was faster
            used_files.append((path.stat().st_mtime, path))
    return used_files
