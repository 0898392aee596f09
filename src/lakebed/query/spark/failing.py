"""Spark's errors as Lakebed's: one sentence, with the position that Spark reports, and without a
Java stack trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lakebed.errors import (
    BadSql,
    Damage,
    DamagedFile,
    LakebedError,
    OutOfMemory,
    Unavailable,
)
from lakebed.query.spark.text import Spelling

BEFORE, AFTER = "SELECT * FROM (\n", "\n)"
"""Text around a statement, so that Spark's grammar accepts only a query."""

_NO_FUNCTION = re.compile(r"routine `([^`]+)`")

_CONDITION = re.compile(r"^\[([A-Z0-9_.]+)\]\s*")
_POSITION = re.compile(r"\(?;?\s*line (\d+),? pos (\d+)\)?;?")
_STATE = re.compile(r"\s*SQLSTATE: (\w{5})")
_ADVICE = re.compile(
    r"\s*(?:If necessary set|To return NULL instead, use|Verify the spelling|"
    r"Use `?try_\w+`? to tolerate)[^\n]*"
)
_CLASS = re.compile(r"^(?:(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): )+")
_DAMAGED = re.compile(r"lakebed\.errors\.DamagedFile: ([^\n]+)")
_OWN_NAMES = re.compile(r"`?__auto_generated_subquery_name`?\.")


@contextmanager
def translate(statement: Spelling) -> Iterator[None]:
    """Translate Spark's errors inside to ours, and keep Spark from logging them."""
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    except LakebedError:
        raise
    except Exception as error:  # noqa: BLE001
        raise explain(error, statement) from None
    finally:
        logger.disabled = was_disabled


def explain(error: Exception, statement: Spelling) -> LakebedError:
    """Return Spark's error about a statement as one of ours."""
    error = _unwrap(error)
    damaged = _DAMAGED.search(str(error))
    if damaged is not None:  # raised by a task of ours, of which Spark keeps the text
        return DamagedFile(damaged[1])
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    if first.startswith("An error occurred while calling") and len(lines) > 1:
        first = lines[1].lstrip(": ")
    condition = _find_condition(error, first)
    message = _shorten(first)
    if "OutOfMemory" in first or "maxResultSize" in first:
        return OutOfMemory(
            f"the statement needs more memory than spark may have: {message}",
            hint="ask for less, or give spark more with spark.driver.memory",
        )
    if condition.startswith(("FAILED_READ_FILE", "PATH_NOT_FOUND")):
        if condition != "FAILED_READ_FILE.NO_HINT" and "not exist" in first:
            return DamagedFile(
                f"a file of the lake is missing: {message}",
                hint="see the damage with: lakebed check",
            )
        return Damage(
            f"a file of the lake cannot be read: {message}",
            hint="see the damage with: lakebed check --level pages",
        )
    state = _find_state(error, first)
    if not condition or state[:2] in ("XX", "58", "08", "53"):
        return Unavailable(f"spark cannot run the statement: {message}")
    line, column = _find_position(error, statement) or (None, None)
    hint = None
    function = _NO_FUNCTION.search(message) if condition.startswith("UNRESOLVED_ROUTINE") else None
    if function is not None:
        message = f"spark has no function {function[1]}"
        hint = "see docs/dialects.md for what only the embedded engine has"
    return BadSql(message, line=line, column=column, hint=hint)


def _unwrap(error: Exception) -> Exception:
    """Return the error inside Java's wrappers; Spark's iterators over the wire leave them on."""
    if type(error).__module__ != "py4j.protocol" or not hasattr(error, "java_exception"):
        return error
    from pyspark.errors.exceptions.captured import convert_exception

    inner: Any = error.java_exception
    while inner.getCause() is not None and not _has_condition(inner):
        inner = inner.getCause()
    try:
        converted = convert_exception(inner)
    except Exception:  # noqa: BLE001  (then the wrapper says it)
        return error
    return converted if isinstance(converted, Exception) else error


def _has_condition(throwable: Any) -> bool:
    return str(throwable.getMessage() or "").startswith("[")


def _find_condition(error: Any, first: str) -> str:
    condition = _ask(error, "getCondition")
    if condition:
        return str(condition)
    match = _CONDITION.search(_CLASS.sub("", first))
    return match[1] if match else ""


def _find_state(error: Any, first: str) -> str:
    state = _ask(error, "getSqlState")
    match = _STATE.search(first)
    return str(state or (match[1] if match else ""))


def _find_position(error: Any, statement: Spelling) -> tuple[int, int] | None:
    """Return the position of the error in the statement as it was written, or None."""
    for context in _ask(error, "getQueryContext") or ():
        try:
            position = statement.locate(context.startIndex() - len(BEFORE))
        except Exception:  # noqa: BLE001, S112  (a context without a place)
            continue
        if position is not None:
            return position
    match = _POSITION.search(str(error))
    return None if match is None else statement.locate_in_line(int(match[1]) - 1, int(match[2]) + 1)


def _ask(error: Any, name: str) -> Any:
    """Return an attribute that an error of Spark's reports by a method, or None if it has none."""
    try:
        return getattr(error, name)()
    except Exception:  # noqa: BLE001
        return None


def _shorten(first: str) -> str:
    short = _CONDITION.sub("", _CLASS.sub("", first))
    for noise in (_STATE, _POSITION, _ADVICE, _OWN_NAMES):
        short = noise.sub("", short)
    short = short.strip().rstrip(".;:").strip()
    short = short[:1].lower() + short[1:] if short[1:2].islower() or short[1:2] == " " else short
    return short if len(short) <= 400 else short[:400] + " …"
