"""Values as people read them, and addresses; what templates call."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
import msgspec
from markupsafe import Markup, escape

from lakebed.model.time import SECOND, format_instant, to_instant
from lakebed.web import statements, times
from lakebed.web.charting import lines, series
from lakebed.web.pages import sql
from lakebed.web.routes import ADMINISTRATOR_MENU

_FOLDER = Path(__file__).parent
_PAGES = re.compile(
    rf"(?<![\w/.:])({'|'.join(re.escape(path) for path, _ in ADMINISTRATOR_MENU)})(?![\w/?])"
)
_NULL = Markup('<span class="null">NULL</span>')
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def number(value: int | float | None) -> str:
    """Return a number with commas between thousands; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def size(count: int) -> str:
    """Return bytes in a unit that fits."""
    value = float(count)
    for unit in _BYTE_UNITS:
        if value < 1024 or unit == _BYTE_UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def seconds(value: float | None) -> str:
    """Return a time span in its two largest units."""
    if value is None:
        return "–"
    if value < 1:
        return "under 1 s"
    whole = int(value)
    parts = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, whole = divmod(whole, length)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def nanoseconds(value: int | None) -> str:
    """Return a duration as text, with a unit that fits."""
    if value is None:
        return "–"
    for unit, length in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if abs(value) >= length:
            return f"{value / length:,.4g} {unit}"
    return f"{value} ns"


def moment(text: str | None, digits: int = 3) -> str:
    """Return an instant in UTC without the letters: ``2026-11-15 12:00:00.123``."""
    if text is None:
        return "–"
    date, _, clock = text.rstrip("Z").partition("T")
    whole, _, fraction = clock.partition(".")
    return f"{date} {whole}" + (f".{fraction[:digits]}" if digits and fraction else "")


def address(path: str, query: Mapping[str, Any] | None = None, **changes: Any) -> str:
    """Return a path with a query, a parameter for each item of a list; None removes a parameter."""
    merged = {**(query or {}), **changes}
    present = {name: value for name, value in merged.items() if value not in (None, "", False)}
    encoded = urlencode(present, doseq=True, quote_via=quote)
    return f"{path}?{encoded}" if encoded else path


def value(item: Any) -> Markup:
    """Return a value of a result: None as such; booleans, lists and objects as JSON."""
    if item is None:
        return _NULL
    return escape(compact(item) if isinstance(item, dict | list | bool) else item)


def compact(item: Any) -> str:
    """Return a value as JSON."""
    return msgspec.json.encode(item).decode()


def cells(row: Sequence[Any]) -> Markup:
    """Return a row of a result; a function, because there are thousands of these."""
    rendered = (
        f'<td class="{"num" if type(item) in (int, float) else "cell"}">{value(item)}</td>'
        for item in row
    )
    return Markup("".join(rendered))  # noqa: S704  (values are escaped above)


def link_pages(text: str) -> Markup:
    """Return text in which the addresses of pages are links; everything else in it is escaped."""
    parts = enumerate(_PAGES.split(text))  # every second one is an address
    return Markup("").join(
        Markup('<a href="{0}">{0}</a>').format(part) if index % 2 else escape(part)
        for index, part in parts
    )


def _shift(text: str, micros: int) -> str:
    return format_instant(to_instant(text) + micros)


@cache
def read_assets() -> dict[str, tuple[str, bytes]]:
    """Return the files that browsers load, by name, with their types. They are few and small."""
    types = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
    types[".svg"] = "image/svg+xml"
    return {
        path.name: (types[path.suffix], path.read_bytes())
        for path in sorted((_FOLDER / "static").iterdir())
        if path.suffix in types
    }


def asset(name: str) -> str:
    """Return the address of a file, which changes with its content."""
    digest = hashlib.sha256(read_assets()[name][1]).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


@cache
def make_environment() -> jinja2.Environment:
    """Return the environment of the templates. Everything that they show is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "number": number,
        "size": size,
        "seconds": seconds,
        "nanoseconds": nanoseconds,
        "moment": moment,
        "link_pages": link_pages,
        "compact": compact,
        "value": value,
        "cells": cells,
    }
    environment.globals |= {
        "address": address,
        "asset": asset,
        "stack": lines.stack,
        "find_top": lines.find_top,
        "mark_times": times.mark_times,
        "mark_durations": times.mark_durations,
        "draw_lines": lines.draw_lines,
        "most_of": lambda values: max((abs(item) for item in values if item), default=1),
        "example": sql.EXAMPLE,
        "quick": times.QUICK,
        "ways": series.WAYS,
        "comparisons": statements.COMPARISONS,
        "plot_ways": list(statements.WAYS),
        "hour_before": lambda text: _shift(text, -3600 * SECOND),
        "hour_after": lambda text: _shift(text, 3600 * SECOND),
        "just_after": lambda text: _shift(text, 1),
    }
    return environment
