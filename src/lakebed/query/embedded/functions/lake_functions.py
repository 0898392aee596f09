"""Table functions that read the catalog, as of the statement's snapshot. All but ``explain_empty``
and ``list_columns`` have the names, arguments and columns of micromegas.

``list_partitions()``, ``list_view_sets()``
    What is live, and what is materialized.
``list_columns()``
    Every column of every view set, with its comment.
``view_instance(view_set, id)``
    The rows of one process or one stream; ``global`` is all of them.
``explain_empty(view_set, begin, end)``
    The ranges of insert time between two instants of which a query sees no rows, each with the
    reason, a detail and what to do about it. For a user's table, ``'database.table'``, the ranges
    are of the rows' own time.

Functions that change the lake are in `lakebed.operations`.
"""

from __future__ import annotations

import re
from functools import reduce
from operator import or_
from typing import Any

from datafusion import col, lit

from lakebed.errors import BadSql, UnknownViewSet
from lakebed.model.time import TimeRange
from lakebed.model.view_set import GLOBAL
from lakebed.query.embedded.functions.calls import Arguments, LakeTable, Planning
from lakebed.query.request.statement_limits import TEXT
from lakebed.query.snapshot import listings


def _view_instance(planning: Planning, arguments: Arguments) -> Any:
    name = get_view_set_name(planning, arguments)
    instance = arguments.text(1)
    columns = listings.find_instance_columns(planning.view_sets[name])
    if not columns:
        raise BadSql(
            f"view set {name} has no instances: it has no column process_id or stream_id",
            hint=f"read all of it: SELECT * FROM {name}",
        )
    frame = planning.frames.get(name)
    if frame is None:
        raise BadSql("the view set of view_instance is computed", hint=f"write its name: '{name}'")
    if instance != GLOBAL:
        frame = frame.filter(
            reduce(or_, (col(f'"{column}"') == lit(instance) for column in columns))
        )
    return frame.into_view()


def _explain_empty(planning: Planning, arguments: Arguments) -> Any:
    name = get_view_set_name(planning, arguments)
    return planning.explain_empty(name, TimeRange(arguments.instant(1), arguments.instant(2)))


def get_view_set_name(planning: Planning, arguments: Arguments) -> str:
    """Return the first argument, which must name a view set or table of the snapshot."""
    name = arguments.text(0)
    if name not in planning.view_sets:
        raise UnknownViewSet(
            f"no view set is called {name!r}", hint="see what there is in list_view_sets()"
        )
    return name


def _list(name: str) -> LakeTable:
    return LakeTable(f"{name}()", lambda planning, _arguments: planning.find_listing(name))


TABLES = [
    _list(listings.PARTITIONS),
    _list(listings.VIEW_SETS),
    _list(listings.VIEW_COLUMNS),
    LakeTable("view_instance(view_set, id)", _view_instance),
    LakeTable("explain_empty(view_set, begin, end)", _explain_empty),
]

_OF_PROCESSES = re.compile(
    TEXT + r'|"(?:[^"]|"")*"'  # texts and quoted names stay as they are
    r"|\b(?P<name>property_get|properties_length)"
    r"(?P<rest>\s*\(\s*(?:\w+\s*\.\s*)?\"?process_properties\"?\s*[,)])",
    re.IGNORECASE | re.DOTALL,
)
_OF_TEXT = {"property_get": "json_get", "properties_length": "json_length"}


def spell(sql: str) -> str:
    """Return the statement as this engine reads it: a function has one list of types, and the
    properties of processes are a text, not a map. Nothing changes its position, so that errors
    report the right one."""

    def replace(match: re.Match[str]) -> str:
        if match["name"] is None:
            return match[0]
        name = match["name"].lower()
        return _OF_TEXT[name].ljust(len(name)) + match["rest"]

    return _OF_PROCESSES.sub(replace, sql)
