"""Functions of the lake that SQL can call, and the needs of a statement that calls them. The engine
calls table functions while it plans, twice for every statement: so they only look up the
statement's snapshot. A function that changes the lake is a volatile scalar function, which the
engine calls only when it runs a plan; table functions of that kind are views over one.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
from datafusion import DataFrame, ScalarUDF, SessionContext, SQLOptions, col, udf, udtf

from lakebed.errors import BadSql, Denied, LakebedError
from lakebed.lifecycle.changes import Changes, Line
from lakebed.model.time import Rounding, TimeRange, to_instant
from lakebed.model.view_set import ViewSet
from lakebed.query.request.statement_limits import words_of

ONLY_READ = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)

_LOG = pa.list_(pa.struct([("time", pa.timestamp("us", "UTC")), ("msg", pa.string())]))
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_WRONG_ARGUMENTS = re.compile(r"given name and argument types '(\w+)\((.*?)\)'\.")
_UNKNOWN = re.compile(r"(?:Invalid|table) function '(\w+)'")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The constants that a table function was called with."""

    usage: str
    values: Sequence[Any]

    def text(self, index: int) -> str:
        """Return an argument that must be text."""
        value = self._read(index)
        if not isinstance(value.as_py(), str):
            raise self._refuse(index, "text", value)
        return str(value.as_py())

    def instant(self, position: int, rounding: Rounding = "up") -> int:
        """Return an argument that is a time, or a text that spells one, by default in UTC."""
        value = self._read(position)
        if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
            return read_instant(str(value.as_py()), rounding)
        if pa.types.is_string_view(value.type):
            return read_instant(str(value.as_py()), rounding)
        if pa.types.is_date(value.type):
            value = value.cast(pa.timestamp("s"))
        if not pa.types.is_timestamp(value.type):
            raise self._refuse(position, "a time", value)
        count, unit = int(value.value), value.type.unit
        if unit == "ns":
            return count // 1000 if rounding == "down" else -(-count // 1000)
        return count * _MICROSECONDS[unit]

    def whole(self, index: int) -> int:
        """Return an argument that must be a whole number."""
        value = self._read(index)
        if not pa.types.is_integer(value.type):
            raise self._refuse(index, "a whole number", value)
        return int(value.as_py())

    def _read(self, index: int) -> pa.Scalar:
        expression = self.values[index]
        try:
            value = expression.python_value()
        except Exception:  # noqa: BLE001  (any error means that it is not a constant)
            raise BadSql(
                f"{_parameters(self.usage)[index]} of {self.usage} must be a constant"
            ) from None
        value = value if isinstance(value, pa.Scalar) else pa.scalar(value)
        if not value.is_valid:
            raise BadSql(f"{_parameters(self.usage)[index]} of {self.usage} is NULL")
        return value

    def _refuse(self, index: int, kind: str, value: pa.Scalar) -> BadSql:
        name = _parameters(self.usage)[index]
        return BadSql(f"{name} of {self.usage} must be {kind}, not {value.type}")


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table function. ``usage`` spells its name and arguments; ``make`` returns its table."""

    usage: str
    make: Callable[[Planning, Arguments], Any]
    changes: bool = False

    @property
    def name(self) -> str:
        return _name(self.usage)


@dataclass(frozen=True, slots=True)
class LakeChange:
    """A scalar function that changes the lake: for each row of arguments it returns a message. An
    argument in brackets can be left out."""

    usage: str
    types: Sequence[pa.DataType]
    answer: Callable[[Changes, Sequence[Any]], str]
    """Takes one row of arguments, in which None stands for one that was left out."""
    times: Sequence[int] = ()
    """Positions of the arguments that are times. The engine hands them over as text: it would cut
    nanoseconds off to reach a type with microseconds."""

    @property
    def name(self) -> str:
        return _name(self.usage)

    @property
    def required(self) -> int:
        return len(_parameters(self.usage.split("[")[0]))


LakeFunction = LakeTable | LakeChange


@dataclass(slots=True)
class Planning:
    """One statement while it is planned: the content that its functions may use, and the functions
    that it called."""

    view_sets: Mapping[str, ViewSet]
    one: DataFrame
    """One row, from which logs are made."""
    admin: bool = True
    changes: Changes | None = None
    """The changes of the statement; None while it is analysed or explained."""
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    tables: Mapping[str, Any] = field(default_factory=dict)
    empty_tables: Sequence[Any] = ()
    no_empty: Any = None
    """The placeholder for answers of `explain_empty` while a statement is analysed."""
    listings: set[str] = field(default_factory=set)
    empty: list[tuple[str, TimeRange]] = field(default_factory=list)
    error: LakebedError | None = None

    def forget(self) -> None:
        """Forget the calls so far: planning starts again."""
        self.listings.clear()
        self.empty.clear()
        self.error = None

    def find_listing(self, name: str) -> Any:
        """Return the table of a listing."""
        self.listings.add(name)
        return self.tables[name]

    def explain_empty(self, view_set: str, within: TimeRange) -> Any:
        """Return the answer to a call; the same calls come in the same order each time."""
        index = len(self.empty)
        self.empty.append((view_set, within))
        return self.empty_tables[index] if self.empty_tables else self.no_empty

    def act(self, name: str, action: Callable[[Changes], list[Line]]) -> Any:
        """Return the log of an action as a table. The action is done once, when the plan is run."""
        lock = threading.Lock()
        logs: list[list[Line]] = []

        def run(marks: pa.Array) -> pa.Array:
            if not len(marks):
                return pa.array([], _LOG)
            with lock:
                if not logs:
                    logs.append(self.guard(lambda: action(self.require_changes(name))))
            lines = [{"time": time, "msg": message} for time, message in logs[0]]
            return pa.array([lines] * len(marks), _LOG)

        log = udf(run, [pa.int64()], _LOG, "volatile", name)
        rows = self.one.select(log(col("one")).alias("log")).unnest_columns("log")
        return rows.select(
            col("log")["time"].alias("time"), col("log")["msg"].alias("msg")
        ).into_view()

    def require_changes(self, name: str) -> Changes:
        """Return the statement's changes. Raise unless the statement names a changing function
        plainly."""
        if self.changes is None:
            raise BadSql(f"{name} cannot be called here", hint="write its name plainly")
        return self.changes

    def guard(self, work: Callable[[], Any]) -> Any:
        """Run what the engine called; it keeps no more than the text of an error."""
        try:
            return work()
        except LakebedError as error:
            if self.changes is not None:
                self.changes.error = error
            self.error = error
            raise


class LakeFunctions:
    """The functions of one engine. The caller that plans must hold the engine's lock."""

    def __init__(self, context: SessionContext, functions: Sequence[LakeFunction]) -> None:
        self._context = context
        tables = [function for function in functions if isinstance(function, LakeTable)]
        self._changes = {
            function.name: function for function in functions if isinstance(function, LakeChange)
        }
        self._tables = {
            function.name: udtf(self._table(function), function.name) for function in tables
        }
        self._usages = {function.name: function.usage for function in tables}
        self._acts = {function.name for function in tables if function.changes}
        self._planning: Planning | None = None
        self._offered: Planning | None = None
        self._is_offering = False
        for name in self._tables.keys() - self._acts:
            context.register_udtf(self._tables[name])

    def close(self) -> None:
        """Release the context, which has these functions."""
        del self._context

    def may_change(self, sql: str) -> bool:
        """Return True if a statement names a function that changes the lake. A statement that hides
        the name from this check is refused when it runs."""
        return not words_of(sql).isdisjoint({*self._changes, *self._acts})

    def plan(self, sql: str, planning: Planning) -> DataFrame:
        """Return the engine's plan of a statement. `Denied` if it calls what only administrators
        may."""
        self._planning = planning
        counts = {name: len(change.types) for name, change in self._changes.items()}
        try:
            while True:
                self._offer(planning, sql, counts)
                try:
                    return self._context.sql_with_options(sql, ONLY_READ)
                except Exception as error:
                    # A function has one list of types here: the next has one argument less.
                    wrong = _WRONG_ARGUMENTS.search(str(error))
                    name = "" if wrong is None else wrong[1]
                    if planning.error is not None or name not in counts:
                        raise
                    if counts[name] == self._changes[name].required:
                        raise
                    counts[name] -= 1
                planning.forget()
        except Exception as error:
            cause = planning.error or self._clarify(error, planning)
            if cause is None:
                raise
            raise cause from error
        finally:
            self._planning = None

    def _table(self, function: LakeTable) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            planning = self._planning
            assert planning is not None  # noqa: S101  (table functions are called by planning)

            def make() -> Any:
                longest = len(_parameters(function.usage))
                shortest = len(_parameters(function.usage.split("[")[0]))
                if not shortest <= len(values) <= longest:
                    counts = f"{shortest} to {longest}" if shortest < longest else longest or "no"
                    raise BadSql(f"{function.usage} takes {counts} arguments, not {len(values)}")
                return function.make(planning, Arguments(function.usage, values))

            return planning.guard(make)

        return call

    def _offer(self, planning: Planning, sql: str, counts: Mapping[str, int]) -> None:
        """Register the functions that change the lake, with so many arguments, for administrators;
        deregister them for others."""
        if not planning.admin:
            if self._is_offering:
                for name in self._changes:
                    self._context.deregister_udf(name)
                for name in self._acts:
                    self._context.deregister_udtf(name)
            self._is_offering = False
            return
        if not self._is_offering:
            for name in self._acts:
                self._context.register_udtf(self._tables[name])
        if self.may_change(sql):
            self._offered = planning
        elif self._is_offering and self._offered is None:
            return
        else:
            self._offered = None
        for name, change in self._changes.items():
            self._context.register_udf(_bind(change, counts[name], self._offered))
        self._is_offering = True

    def _clarify(self, error: Exception, planning: Planning) -> LakebedError | None:
        text = str(error)
        unknown = _UNKNOWN.search(text)
        if unknown is not None:
            name = unknown[1]
            if not planning.admin and name in {*self._changes, *self._acts}:
                return Denied(f"function {name} needs the admin role")
            if name in self._usages:
                call = f"SELECT * FROM {self._usages[name]}"
                return BadSql(f"{name} gives rows, not a value", hint=f"write: {call}")
            if name in self._changes:
                call = f"SELECT {self._changes[name].usage}"
                return BadSql(f"{name} gives a value, not rows", hint=f"write: {call}")
        wrong = _WRONG_ARGUMENTS.search(text)
        if wrong is not None and wrong[1] in self._changes:
            usage = self._changes[wrong[1]].usage
            return BadSql(f"{usage} cannot be called with ({wrong[2]})")
        return None


def _bind(function: LakeChange, count: int, planning: Planning | None) -> ScalarUDF:
    """Return the function as the plan of one statement calls it."""
    names = _parameters(function.usage)[: function.required]

    def run(*columns: pa.Array) -> pa.Array:
        if planning is None:
            raise BadSql(f"{function.name} cannot be called here", hint="write its name plainly")
        return planning.guard(lambda: answer(columns, planning))

    def answer(columns: Sequence[pa.Array], planning: Planning) -> pa.Array:
        changes = planning.require_changes(function.name)
        answers = []
        with changes.reading():
            for row in zip(*(column.to_pylist() for column in columns), strict=True):
                missing = [name for name, value in zip(names, row, strict=False) if value is None]
                if missing:
                    answers.append(changes.reject(f"{missing[0]} is NULL"))
                    continue
                _require_times(function, row)
                nulls = [None] * (len(function.types) - len(row))
                answers.append(function.answer(changes, (*row, *nulls)))
        return pa.array(answers, pa.string())

    return udf(run, list(function.types[:count]), pa.string(), "volatile", function.name)


def _require_times(function: LakeChange, row: Sequence[Any]) -> None:
    """Raise for a number where a time belongs, which the engine hands over as text, too."""
    if any(row[position].lstrip("-").isdigit() for position in function.times):
        values = ", ".join(map(str, row))
        raise BadSql(f"{function.usage} cannot be called with ({values}): a number is not a time")


def read_instant(text: str, rounding: Rounding = "exact") -> int:
    """Return the time that a text spells; without a zone it is in UTC, as for the engine."""
    try:
        has_zone = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return to_instant(text)  # raises with a hint
    if not has_zone:
        text += "Z" if len(text) > len("2026-01-01") else "T00:00Z"
    return to_instant(text, rounding)


def _name(usage: str) -> str:
    return usage.split("(")[0]


def _parameters(usage: str) -> list[str]:
    inside = usage.split("(")[1].rstrip(")]").replace("[", "")
    return [name.strip() for name in inside.split(",")] if inside else []
