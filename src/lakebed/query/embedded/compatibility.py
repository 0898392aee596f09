"""Functions under the names that micromegas gave them, with its arguments and columns.

``list_partitions()``, ``list_view_sets()``
    What the catalog has, as of the statement's snapshot.
``view_instance(view_set, id)``
    The rows of one process or one stream; ``global`` is all of them.
``retire_partitions(view_set, instance, begin, end[, confirm])``
    Retires every partition inside a range of insert time; returns its log, as (time, msg).
``materialize_partitions(view_set, begin, end, delta_seconds)``
    Builds a view set and what it reads in a range of insert time; the log, as (time, msg). A build
    is many transactions, each of which stays even if the statement fails afterwards. How large
    partitions become is decided by the plan: ``delta_seconds`` must be positive and is not used.
``retire_partition_by_metadata(view_set, instance, begin, end[, schema_hash[, confirm]])``
    Retires one partition: ``SUCCESS: …`` or ``ERROR: …``. Without the hash, twins are refused.
    In one statement all calls must have the same number of arguments; NULL is no hash.
``retire_partition_by_file(file_path[, confirm])``
    Deprecated: it cannot name an empty partition.

``confirm`` is ours: the view set's name, for partitions that cannot be rebuilt or that are most of
it; several names are separated by commas. If one call of a statement fails, none of its calls
changes anything, and every row says ``ERROR: …``.

The last four are for administrators.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
from datafusion import col, lit

from lakebed.errors import BadInput, BadSql, TooPrecise
from lakebed.model.time import TimeRange
from lakebed.model.view_set import GLOBAL, check_instance
from lakebed.query import listings
from lakebed.query.changing import Acting, Changes, Line
from lakebed.query.embedded.calls import (
    Arguments,
    LakeChange,
    LakeTable,
    Planning,
    read_instant,
)
from lakebed.query.embedded.functions import get_view_set_name
from lakebed.query.statement import TEXT


def _list_partitions(planning: Planning, _arguments: Arguments) -> Any:
    return planning.find_listing(listings.PARTITIONS)


def _list_view_sets(planning: Planning, _arguments: Arguments) -> Any:
    return planning.find_listing(listings.VIEW_SETS)


def _view_instance(planning: Planning, arguments: Arguments) -> Any:
    name = get_view_set_name(planning, arguments)
    wanted = arguments.text(1)
    columns = listings.find_instance_columns(planning.view_sets[name])
    if not columns:
        raise BadSql(
            f"view set {name} has no instances: it has no column process_id or stream_id",
            hint=f"read all of it: SELECT * FROM {name}",
        )
    frame = planning.frames.get(name)
    if frame is None:
        raise BadSql("the view set of view_instance is computed", hint=f"write its name: '{name}'")
    if wanted != GLOBAL:
        frame = frame.filter(reduce(or_, (col(f'"{each}"') == lit(wanted) for each in columns)))
    return frame.into_view()


def _retire_partitions(planning: Planning, arguments: Arguments) -> Any:
    view_set, instance = arguments.text(0), check_instance(arguments.text(1))
    within = TimeRange(arguments.instant(2, "up"), arguments.instant(3, "down"))
    names = _split_names(arguments.text(4)) if len(arguments.values) > 4 else []

    def retire(acting: Acting) -> list[Line]:
        acting.changes.confirm(names)
        return acting.changes.retire_partitions(view_set, instance, within.begin, within.end)

    return planning.act("retire_partitions", retire)


def _retire_by_metadata(changes: Changes, rows: Sequence[Sequence[Any]]) -> list[str]:
    answers: list[str | None] = []
    identities = []
    for view_set, instance, begin, end, schema_hash, confirm in rows:
        changes.confirm(_split_names(confirm))
        problem = None
        try:
            insert_range = (read_instant(begin), read_instant(end))
            identities.append((view_set, instance, *insert_range, schema_hash))
        except TooPrecise:
            problem = (
                f"no live partition of {view_set}/{instance} covers exactly [{begin}, {end}): "
                "partitions begin and end at whole microseconds"
            )
        except BadInput as error:
            problem = str(error)
        answers.append(None if problem is None else changes.reject(problem))
    rest = iter(changes.retire_partitions_by_metadata(identities))
    return [next(rest) if answer is None else answer for answer in answers]


def _retire_by_file(changes: Changes, rows: Sequence[Sequence[Any]]) -> list[str]:
    for _path, confirm in rows:
        changes.confirm(_split_names(confirm))
    return changes.retire_partitions_by_file([path for path, _confirm in rows])


def _split_names(confirm: str | None) -> list[str]:
    return [name.strip() for name in (confirm or "").split(",") if name.strip()]


def _materialize_partitions(planning: Planning, arguments: Arguments) -> Any:
    view_set = get_view_set_name(planning, arguments)
    within = TimeRange(arguments.instant(1), arguments.instant(2))
    if arguments.whole(3) <= 0:
        raise BadSql(f"delta_seconds of {arguments.usage} must be positive")
    return planning.act(
        "materialize_partitions",
        lambda acting: acting.administration.build(view_set, within.begin, within.end),
    )


_OF_PROCESSES = re.compile(
    TEXT + r'|"(?:[^"]|"")*"'  # in which nothing is changed
    r"|\b(?P<name>property_get|properties_length)"
    r"(?P<rest>\s*\(\s*(?:\w+\s*\.\s*)?\"?process_properties\"?\s*[,)])",
    re.IGNORECASE | re.DOTALL,
)
_OF_TEXT = {"property_get": "json_get", "properties_length": "json_length"}


def spell(sql: str) -> str:
    """The statement as this engine takes it: a function has one list of types, and the properties
    of processes are a text, not a map. Nothing changes its place, so that errors name the right
    one."""

    def replace(found: re.Match[str]) -> str:
        if found["name"] is None:
            return found[0]
        name = found["name"].lower()
        return _OF_TEXT[name].ljust(len(name)) + found["rest"]

    return _OF_PROCESSES.sub(replace, sql)


TABLES = [
    LakeTable("list_partitions()", _list_partitions),
    LakeTable("list_view_sets()", _list_view_sets),
    LakeTable("view_instance(view_set, id)", _view_instance),
    LakeTable(
        "retire_partitions(view_set, instance, begin, end[, confirm])",
        _retire_partitions,
        changes=True,
    ),
    LakeTable(
        "materialize_partitions(view_set, begin, end, delta_seconds)",
        _materialize_partitions,
        changes=True,
    ),
]
CHANGES = [
    LakeChange(
        "retire_partition_by_metadata(view_set, instance, begin, end[, schema_hash[, confirm]])",
        [pa.string(), pa.string(), pa.string(), pa.string(), pa.binary(), pa.string()],
        _retire_by_metadata,
        times=(2, 3),
    ),
    LakeChange(
        "retire_partition_by_file(file_path[, confirm])",
        [pa.string(), pa.string()],
        _retire_by_file,
    ),
]
