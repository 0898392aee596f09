"""The engine's errors as Lakebed's: one line, with the position that the engine reports or that the
statement shows.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from lakebed import errors
from lakebed.errors import BadSql, Damage, LakebedError, OutOfMemory, Unavailable

_POSITION = re.compile(r" at Line: (\d+), Column: (\d+)")
_NAMED = re.compile(
    r"(?:No field named |table '|Invalid function '|[Ff]unction '|column ')\"?([\w.\"]+)", re.ASCII
)
_NO_TABLE = re.compile(r"[Tt]able '(?:lake\.)?(?:public\.)?([^']+)' not found")
_NO_FIELD = re.compile(r"No field named ([^\s]+?)\. (?:Did you mean '([^']+)'\?)?")
_FIELDS = re.compile(r"Valid fields are (.+?)\.?$")
_SHOWN_FIELDS = 12
_UNGROUPED = re.compile(r'column "([^"]+)" must appear in the GROUP BY')
_MISSING = re.compile(r"(?:No files found at|Object at location) (\S+?)(?: not found|\. )")
_RAISED = re.compile(
    r"PyErr \{ type: <class 'lakebed\.errors\.(\w+)'>, value: \1\((.*?)\), traceback: "
)
_TOLD = re.compile(r"Execution error: (\w+): (.+)$")
_CANNOT_SPILL = re.compile("Left side produced no data to spill|initiate_fallback called in")
"""Internal errors of DataFusion 55 in a nested loop join whose input did not fit into memory."""
_ENGINE_SPILL_BYTES = 100 << 30
"""DataFusion 55's own limit, which its Python package cannot set for a folder."""
_UNREADABLE = re.compile(
    "parquet error|ParquetError|parquet argument error|panicked|must have the same schema",
    re.IGNORECASE,
)
_PREFIXES = re.compile(
    r"^(?:DataFusion error: |Error during planning: |Schema error: |SQL error: |Arrow error: "
    r"|External error: |Execution error: |This feature is not implemented: |Optimizer rule '\w+' "
    r"failed caused by |ParserError\(\"|TokenizerError\(\"|type_coercion caused by "
    r"|Context: |Diagnostic.*?: )+"
)


@contextmanager
def translate(sql: str, tables: Collection[str] = ()) -> Iterator[None]:
    """Run the engine; its errors come out as ours, with a hint from the tables that there are."""
    try:
        yield
    except LakebedError:
        raise
    except Exception as error:
        raise explain(error, sql, tables) from error
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # the engine exports this class under no name
            raise explain(error, sql, tables) from error
        raise


def explain(error: BaseException, sql: str, tables: Collection[str] = ()) -> LakebedError:
    """Return the engine's error as one of ours."""
    text = " ".join(str(error).split()) or type(error).__name__
    own_error = _find_own(error) or _find_quoted(text)
    if own_error is not None:
        return own_error
    if "Resources exhausted" in text:
        return out_of_memory(_shorten(text))
    if _CANNOT_SPILL.search(text):
        return out_of_memory("a join did not fit, and could not spill")
    if "the spilling process has exceeded the allowable limit" in text:
        return out_of_disk(_ENGINE_SPILL_BYTES)
    if "No space left on device" in text:
        return OutOfMemory(
            "the disk of the temporary folder is full, so the statement cannot spill",
            hint="ask for less, or set TMPDIR to a folder with more space",
        )
    missing = _MISSING.search(text)
    if missing is not None:
        return Damage("a file of the lake is missing", hint="see which with: lakebed check")
    if "Object Store error" in text or "ObjectStore" in text:
        return Unavailable(f"cannot read the store: {_shorten(text)}")
    if _UNREADABLE.search(text) or type(error).__name__ == "PanicException":
        return Damage(
            f"a file of the lake cannot be read: {_shorten(text)}",
            hint="see the damage with: lakebed check --level pages",
        )
    line, column = _find_position(text, sql)
    unknown = _NO_TABLE.search(text)
    if unknown is not None:
        hint = _suggest(unknown[1], tables)
        return BadSql(f"there is no table {unknown[1]}", line=line, column=column, hint=hint)
    field = _NO_FIELD.search(text)
    if field is not None:
        suggestion = f"did you mean {field[2]}?" if field[2] else _list_fields(text)
        return BadSql(f"there is no column {field[1]}", line=line, column=column, hint=suggestion)
    ungrouped = _UNGROUPED.search(text)
    if ungrouped is not None:
        return BadSql(
            f"{ungrouped[1]} is neither in GROUP BY nor in an aggregate function",
            line=line,
            column=column,
        )
    if "to Nanosecond" in text and "Overflow" in text:
        return BadSql(
            "a written time is before 1677 or after 2262, which the engine cannot compare",
            line=line,
            column=column,
            hint="count it: to_timestamp_micros(32503680000000000); or compare partition_date",
        )
    if "only supports a single SQL statement" in text:
        return BadSql("there is more than one statement", hint="send each by itself")
    return BadSql(_shorten(_POSITION.sub("", text)), line=line, column=column)


def out_of_memory(reason: str) -> OutOfMemory:
    """Return the error of a statement that does not fit into memory."""
    return OutOfMemory(
        f"the statement needs more memory than it may have: {reason}",
        hint="ask for less, or raise LAKEBED_QUERY_MEMORY_MIB",
    )


def out_of_disk(limit_bytes: int) -> OutOfMemory:
    """Return the error of a statement whose spill files are too large."""
    return OutOfMemory(
        f"the statement spilled too much: spill files may have {limit_bytes >> 20} MiB together",
        hint="ask for less, or raise LAKEBED_QUERY_SPILL_MIB",
    )


def _suggest(name: str, tables: Collection[str]) -> str:
    """Return a hint for the name of a table that does not exist: similar names, or how to list
    all."""
    other_names = [table for table in tables if table != name]
    similar = [table for table in other_names if table.rpartition(".")[2] == name]
    similar += difflib.get_close_matches(name, other_names, 1)
    if similar:
        return f"did you mean {similar[0]}?"
    prefix = "" if "." in name else "those of a database are called DATABASE.TABLE; "
    return f"{prefix}see what there is with SHOW TABLES"


def _list_fields(text: str) -> str | None:
    """Return some of the existing columns, as the engine names them, or None."""
    match = _FIELDS.search(text)
    if match is None:
        return None
    names = match[1].split(", ")
    more = f" and {len(names) - _SHOWN_FIELDS} more" if len(names) > _SHOWN_FIELDS else ""
    return f"there are {', '.join(names[:_SHOWN_FIELDS])}{more}"


def _find_own(error: BaseException | None) -> LakebedError | None:
    while error is not None:
        if isinstance(error, LakebedError):
            return error
        error = error.__cause__ or error.__context__
    return None


def _find_quoted(text: str) -> LakebedError | None:
    """Return an error of ours that a function raised, or None: the engine reports only its text."""
    match = _RAISED.search(text) or _TOLD.search(text)
    kind = getattr(errors, match[1], None) if match is not None else None
    if match is None or not (isinstance(kind, type) and issubclass(kind, LakebedError)):
        return None
    message = match[2]
    if match.re is _RAISED:
        try:
            message = ast.literal_eval(message)
        except (SyntaxError, ValueError):
            return None
    return kind(message) if isinstance(message, str) else None


def _shorten(text: str) -> str:
    short = _PREFIXES.sub("", text).rstrip('")').rstrip(".")
    short = short[:1].lower() + short[1:] if short[1:2].islower() else short
    return short if len(short) <= 400 else short[:400] + " …"


def _find_position(text: str, sql: str) -> tuple[int | None, int | None]:
    """Return the line and column that the engine reports, else those of the name that it does not
    know."""
    match = _POSITION.search(text)
    if match is not None:
        return int(match[1]), int(match[2])
    name_match = _NAMED.search(text)
    if name_match is None:
        return None, None
    name = name_match[1].replace('"', "").rstrip(".").split(".")[-1]
    position = re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", sql, re.IGNORECASE)
    if position is None:
        return None, None
    text_before = sql[: position.start()]
    return text_before.count("\n") + 1, position.start() - text_before.rfind("\n")
