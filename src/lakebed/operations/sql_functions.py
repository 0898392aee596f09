"""Operations as SQL functions, with the names, arguments and columns that micromegas gave them.

``retire_partition_by_metadata(view_set, instance, begin, end[, schema_hash[, confirm]])``
    Retires one partition: ``SUCCESS: …`` or ``ERROR: …``. Without the hash, twins are refused.
    In one statement all calls must have the same number of arguments; NULL is no hash.
``retire_partition_by_file(file_path[, confirm])``
    Deprecated: it cannot name an empty partition.
``restore_partition(partition_id)``
    Bring a retired partition back. This one is ours.
``retire_partitions(view_set, instance, begin, end[, confirm])``
    Retires every partition inside a range of insert time; returns its log, as (time, msg).
``materialize_partitions(view_set, begin, end, delta_seconds)``
    Builds a view set and what it reads in a range of insert time; the log, as (time, msg). A build
    is many transactions, each of which stays even if the statement fails afterwards. The plan
    decides the size of partitions: ``delta_seconds`` must be positive and is not used.

``confirm`` is ours: the view set's name, for partitions that cannot be rebuilt or that are most of
it; several names are separated by commas. If one call of a statement fails, none of its calls
changes anything, and every row says ``ERROR: …``. All of them need the role admin.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from lakebed.errors import BadInput, BadSql, TooPrecise
from lakebed.lifecycle.changes import Changes, Line
from lakebed.model.arguments import is_time
from lakebed.model.time import TimeRange
from lakebed.model.view_set import check_instance
from lakebed.operations import retirement  # noqa: F401  (it declares the operations)
from lakebed.operations.operation import OPERATIONS, Operation
from lakebed.query.embedded.functions.calls import (
    Arguments,
    LakeChange,
    LakeFunction,
    LakeTable,
    Planning,
    read_instant,
)
from lakebed.query.embedded.functions.lake_functions import get_view_set_name

Build = Callable[[str, int, int], list[Line]]

_SQL_NAMES = {
    "view_set_name": "view_set",
    "view_instance_id": "instance",
    "begin_insert_time": "begin",
    "end_insert_time": "end",
    "file_schema_hash": "schema_hash",
    "confirmed": "confirm",
}
_TYPES = {str: pa.string(), bytes | None: pa.binary(), Collection[str]: pa.string()}
"""The SQL types of arguments; times are texts, see `LakeChange.times`."""


def make_functions(build: Build) -> list[LakeFunction]:
    """Return the functions that change the lake."""
    return [
        *(_make_scalar(operation) for operation in OPERATIONS.values() if operation.in_sql),
        LakeTable(_spell(OPERATIONS["retire_partitions"]), _retire_partitions, changes=True),
        LakeTable(
            "materialize_partitions(view_set, begin, end, delta_seconds)",
            partial(_materialize_partitions, build),
            changes=True,
        ),
    ]


def _make_scalar(operation: Operation) -> LakeChange:
    """Return the function that runs an operation for each row, from its declaration."""
    hints = list(operation.arguments.values())
    return LakeChange(
        _spell(operation),
        [pa.string() if is_time(hint) else _TYPES[hint] for hint in hints],
        partial(_answer, operation),
        times=[position for position, hint in enumerate(hints) if is_time(hint)],
    )


def _spell(operation: Operation) -> str:
    """Return the name of an operation and its arguments, with optional ones in brackets."""
    parameters = inspect.signature(operation.function).parameters.values()
    names = [_SQL_NAMES.get(name, name) for name in operation.arguments]
    count = len(names) - sum(parameter.default is not parameter.empty for parameter in parameters)
    optional = "".join(f"[, {name}" for name in names[count:]) + "]" * len(names[count:])
    return f"{operation.name}({', '.join(names[:count])}{optional})"


def _answer(operation: Operation, changes: Changes, row: Sequence[Any]) -> str:
    """Return ``SUCCESS: …`` or ``ERROR: …`` for one row of arguments."""
    if operation.deprecated is not None:
        changes.warn(operation.deprecated)
    arguments: dict[str, Any] = {}
    try:
        for (name, hint), value in zip(operation.arguments.items(), row, strict=True):
            if name == "confirmed":
                arguments[name] = tuple(_split_names(value))
            elif value is not None:
                arguments[name] = read_instant(value) if is_time(hint) else value
    except TooPrecise:
        view_set, instance, begin, end, *_ = row
        return changes.reject(
            f"no live partition of {view_set}/{instance} covers exactly [{begin}, {end}): "
            "partitions begin and end at whole microseconds"
        )
    except BadInput as error:
        return changes.reject(str(error))
    lake = SimpleNamespace(retirement=changes)
    call = (operation.name, *arguments.values())
    return changes.answer(call, lambda: operation.function(lake, **arguments))


def _retire_partitions(planning: Planning, arguments: Arguments) -> Any:
    view_set, instance = arguments.text(0), check_instance(arguments.text(1))
    within = TimeRange(arguments.instant(2, "up"), arguments.instant(3, "down"))
    names = _split_names(arguments.text(4)) if len(arguments.values) > 4 else []

    def retire(changes: Changes) -> list[str]:
        plan = changes.plan_by_range(view_set, within.begin, within.end, instance=instance)
        lines = [outcome.message for outcome in changes.retire(lambda: plan, names)]
        lines += [
            f"SKIPPED: reaches over the range: {partition.describe()}"
            for partition in plan.straddling
        ]
        return [
            *lines,
            f"retired {len(plan.partitions)} partitions of {plan.bytes} bytes in {within}",
        ]

    return planning.act("retire_partitions", lambda changes: changes.log(partial(retire, changes)))


def _materialize_partitions(build: Build, planning: Planning, arguments: Arguments) -> Any:
    view_set = get_view_set_name(planning, arguments)
    within = TimeRange(arguments.instant(1), arguments.instant(2))
    if arguments.whole(3) <= 0:
        raise BadSql(f"delta_seconds of {arguments.usage} must be positive")
    work = partial(build, view_set, within.begin, within.end)
    return planning.act(
        "materialize_partitions",
        lambda changes: changes.do_once(("build", view_set, within), work),
    )


def _split_names(confirm: str | None) -> list[str]:
    return [name.strip() for name in (confirm or "").split(",") if name.strip()]
