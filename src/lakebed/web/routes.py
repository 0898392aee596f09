"""Which pages there are: where, who may see them, and what makes their data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakebed.access.keys import Caller, Role
from lakebed.errors import BadInput, LakebedError, NotFound
from lakebed.lake import Lake
from lakebed.web.notes import Done
from lakebed.web.pages import lake as lake_page
from lakebed.web.pages import logs as logs_page
from lakebed.web.pages import measures as measures_page
from lakebed.web.pages import partition as partition_page
from lakebed.web.pages import sql as sql_page
from lakebed.web.pages import table as table_page
from lakebed.web.pages import tables as tables_page
from lakebed.web.pages import trace as trace_page
from lakebed.web.pages import traces as traces_page

Read = Callable[[Lake, "Asked"], Any]
"""Makes a page's data from the lake and what was asked."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a browser wants to see."""

    parameters: Mapping[str, str]
    path: Mapping[str, str]
    now: int
    """Microseconds since 1970."""
    caller: Caller
    seconds: float | None
    """How long a statement may take."""
    every: Mapping[str, Sequence[str]]
    """Every value of each parameter, also of those that are given several times."""


@dataclass(frozen=True, slots=True)
class Page:
    name: str
    """Which template shows it, and how it is counted."""
    path: str
    read: Read
    failed: Callable[[Lake, Asked, str, str | None], Any] | None = None
    """Makes the data of the same page with what is wrong, if it can be mended there."""
    typed: Sequence[str] = ()
    """The parameters that may be wrong: then the page is shown without them, and says so. Its form
    still has what was typed."""
    chosen: Sequence[str] = ()
    """The same of those that are chosen from a list, where a form cannot show what is wrong."""
    role: Role = Role.READ
    with_form: bool = False
    """Whether it has a form that changes something."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A form that a browser sends."""

    fields: Mapping[str, str]
    path: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Deed:
    """What administrators do by form."""

    name: str
    """How it is counted."""
    path: str
    do: Callable[[Lake, Sent], Done]
    page: Page | None = None
    """Shown again, with what is wrong, if it is refused."""


def read_again(page: Page, lake: Lake, asked: Asked, error: LakebedError) -> Any:
    """A page whose address is wrong somewhere: without the one value that is, or else without any.
    Raises the error if that does not help."""
    if page.failed is not None:
        return page.failed(lake, asked, str(error), error.hint)
    given = [name for name in (*page.typed, *page.chosen) if asked.parameters.get(name)]
    if not isinstance(error, BadInput) or not given:
        raise error
    for dropped in (*([name] for name in given), given):
        try:
            data = page.read(lake, _drop(asked, dropped))
        except (BadInput, NotFound):
            continue
        except LakebedError:
            break
        typed = {name: asked.parameters[name] for name in dropped if name in page.typed}
        return replace(data, asked={**data.asked, **typed})
    raise error


def _drop(asked: Asked, names: Sequence[str]) -> Asked:
    return replace(
        asked,
        parameters={name: each for name, each in asked.parameters.items() if name not in names},
        every={name: each for name, each in asked.every.items() if name not in names},
    )


def _read_trace(lake: Lake, asked: Asked) -> trace_page.TracePage:
    return trace_page.read_trace(lake, asked.path["trace_id"], asked.parameters, asked.seconds)


PAGES = (
    Page(
        "lake",
        "/lake",
        lambda lake, asked: lake_page.read_lake(lake, asked.parameters, asked.now),
        typed=("begin", "end"),
    ),
    Page(
        "partition",
        "/lake/partitions/{partition_id}",
        lambda lake, asked: partition_page.read_partition(lake, asked.path["partition_id"]),
        with_form=True,
    ),
    Page(
        "logs",
        "/logs",
        lambda lake, asked: logs_page.read_logs(lake, asked.parameters, asked.now, asked.seconds),
        typed=("level", "begin", "end", "lines"),
    ),
    Page(
        "traces",
        "/traces",
        lambda lake, asked: traces_page.read_traces(
            lake, asked.parameters, asked.now, asked.seconds
        ),
        typed=("status", "longer", "begin", "end", "traces", "until"),
    ),
    Page("trace", "/traces/{trace_id}", _read_trace),
    Page(
        "measures",
        "/measures",
        lambda lake, asked: measures_page.read_measures(
            lake, asked.parameters, asked.every.get("attribute", ()), asked.now, asked.seconds
        ),
        typed=("way", "begin", "end"),
        chosen=("by", "attribute"),
    ),
    Page("tables", "/tables", lambda lake, _asked: tables_page.read_tables(lake)),
    Page(
        "table",
        "/tables/{database}/{name}",
        lambda lake, asked: table_page.read_table(
            lake,
            asked.path["database"],
            asked.path["name"],
            asked.parameters,
            asked.now,
            asked.seconds,
        ),
        typed=table_page.ASKED,
    ),
    Page(
        "sql",
        "/sql",
        lambda lake, asked: sql_page.read_sql(lake, asked.parameters, asked.seconds),
        lambda lake, asked, problem, hint: sql_page.read_failed(
            lake, asked.parameters, problem, hint
        ),
    ),
)
PERFETTO = Page(
    "perfetto",
    "/traces/{trace_id}/perfetto",
    lambda lake, asked: trace_page.export(_read_trace(lake, asked)),
)
"""Only data: the trace for another program."""
SHOWN = (
    ("/lake", "Lake"),
    ("/logs", "Logs"),
    ("/traces", "Traces"),
    ("/measures", "Metrics"),
    ("/tables", "Tables"),
    ("/sql", "SQL"),
)
"""The pages that every page leads to."""
SHOWN_TO_ADMINISTRATORS = (*SHOWN, ("/admin", "Admin"))
