"""The list of pages: their paths, the roles that may see them, and the functions that make their
data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakebed.access.keys import Caller, Role
from lakebed.errors import BadInput, LakebedError, NotFound
from lakebed.lake import Lake
from lakebed.web.notes import FormResult
from lakebed.web.pages import lake as lake_page
from lakebed.web.pages import logs as logs_page
from lakebed.web.pages import measures as measures_page
from lakebed.web.pages import partition as partition_page
from lakebed.web.pages import sql as sql_page
from lakebed.web.pages import table as table_page
from lakebed.web.pages import tables as tables_page
from lakebed.web.pages import trace as trace_page
from lakebed.web.pages import traces as traces_page

Read = Callable[[Lake, "PageRequest"], Any]
"""Makes a page's data from the lake and a request."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A browser's request for a page."""

    parameters: Mapping[str, str]
    path: Mapping[str, str]
    now: int
    """Microseconds since 1970."""
    caller: Caller
    seconds: float | None
    """The time limit of a statement."""
    every: Mapping[str, Sequence[str]]
    """Every value of each parameter, also of those that are in the address several times."""


@dataclass(frozen=True, slots=True)
class Page:
    name: str
    """The name of its template, and its label in the meters."""
    path: str
    read: Read
    failed: Callable[[Lake, PageRequest, str, str | None], Any] | None = None
    """Makes the data of the same page with the error, if the user can correct it there."""
    typed: Sequence[str] = ()
    """The parameters that may be wrong: then the page is shown without them, with the error. Its
    form still has what was typed."""
    chosen: Sequence[str] = ()
    """The same of parameters that are chosen from a list, where a form cannot show what is
    wrong."""
    role: Role = Role.READ
    with_form: bool = False
    """True if it has a form that changes something."""


@dataclass(frozen=True, slots=True)
class SubmittedForm:
    """A form that a browser sends."""

    fields: Mapping[str, str]
    path: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FormAction:
    """A form by which administrators change something."""

    name: str
    """Its label in the meters."""
    path: str
    do: Callable[[Lake, SubmittedForm], FormResult]
    page: Page | None = None
    """The page that is shown again, with the error, if the form is refused."""


def read_again(page: Page, lake: Lake, request: PageRequest, error: LakebedError) -> Any:
    """Return a page whose address has a mistake: without the one wrong value, or else without any.
    Raise the error if that does not help."""
    if page.failed is not None:
        return page.failed(lake, request, str(error), error.hint)
    given_names = [name for name in (*page.typed, *page.chosen) if request.parameters.get(name)]
    if not isinstance(error, BadInput) or not given_names:
        raise error
    for dropped in (*([name] for name in given_names), given_names):
        try:
            data = page.read(lake, _drop(request, dropped))
        except (BadInput, NotFound):
            continue
        except LakebedError:
            break
        typed = {name: request.parameters[name] for name in dropped if name in page.typed}
        return replace(data, asked={**data.asked, **typed})
    raise error


def _drop(request: PageRequest, names: Sequence[str]) -> PageRequest:
    return replace(
        request,
        parameters={name: value for name, value in request.parameters.items() if name not in names},
        every={name: values for name, values in request.every.items() if name not in names},
    )


def _read_trace(lake: Lake, request: PageRequest) -> trace_page.TracePage:
    return trace_page.read_trace(
        lake, request.path["trace_id"], request.parameters, request.seconds
    )


PAGES = (
    Page(
        "lake",
        "/lake",
        lambda lake, request: lake_page.read_lake(lake, request.parameters, request.now),
        typed=("begin", "end"),
    ),
    Page(
        "partition",
        "/lake/partitions/{partition_id}",
        lambda lake, request: partition_page.read_partition(lake, request.path["partition_id"]),
        with_form=True,
    ),
    Page(
        "logs",
        "/logs",
        lambda lake, request: logs_page.read_logs(
            lake, request.parameters, request.now, request.seconds
        ),
        typed=("level", "begin", "end", "lines"),
    ),
    Page(
        "traces",
        "/traces",
        lambda lake, request: traces_page.read_traces(
            lake, request.parameters, request.now, request.seconds
        ),
        typed=("status", "longer", "begin", "end", "traces", "until"),
    ),
    Page("trace", "/traces/{trace_id}", _read_trace),
    Page(
        "measures",
        "/measures",
        lambda lake, request: measures_page.read_measures(
            lake,
            request.parameters,
            request.every.get("attribute", ()),
            request.now,
            request.seconds,
        ),
        typed=("way", "begin", "end"),
        chosen=("by", "attribute"),
    ),
    Page("tables", "/tables", lambda lake, _request: tables_page.read_tables(lake)),
    Page(
        "table",
        "/tables/{database}/{name}",
        lambda lake, request: table_page.read_table(
            lake,
            request.path["database"],
            request.path["name"],
            request.parameters,
            request.now,
            request.seconds,
        ),
        typed=table_page.PARAMETERS,
    ),
    Page(
        "sql",
        "/sql",
        lambda lake, request: sql_page.read_sql(lake, request.parameters, request.seconds),
        lambda lake, request, problem, hint: sql_page.read_failed(
            lake, request.parameters, problem, hint
        ),
    ),
)
PERFETTO = Page(
    "perfetto",
    "/traces/{trace_id}/perfetto",
    lambda lake, request: trace_page.export(_read_trace(lake, request)),
)
"""Only data: the trace for another program."""
MENU = (
    ("/lake", "Lake"),
    ("/logs", "Logs"),
    ("/traces", "Traces"),
    ("/measures", "Metrics"),
    ("/tables", "Tables"),
    ("/sql", "SQL"),
)
"""The pages in the menu of every page."""
ADMINISTRATOR_MENU = (*MENU, ("/admin", "Admin"))
