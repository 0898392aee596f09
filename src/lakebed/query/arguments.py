"""What a caller may ask of a query, wherever it is run: checked before anything is sent or planned,
so that a lake and a connection to one answer alike.
"""

from __future__ import annotations

from typing import Any

from lakebed.errors import BadInput

MOST_ROWS = (1 << 63) - 1
_MOST_SECONDS = 366 * 24 * 3600


def check_arguments(sql: Any, parameters: Any, limit: Any, timeout: Any) -> None:
    """Raise `BadInput` for what makes no sense."""
    if not isinstance(sql, str):
        raise BadInput(f"a statement is a text, not {type(sql).__name__}")
    if timeout is not None and not _is_duration(timeout):
        raise BadInput(f"a timeout of {timeout!r} seconds makes no sense")
    if parameters is not None and not isinstance(parameters, list | tuple):
        raise BadInput("parameters are a list, one for each ? in their order")
    if limit is not None and not _is_count(limit):
        raise BadInput(f"a limit of {limit!r} rows makes no sense")


def _is_count(limit: Any) -> bool:
    is_number = isinstance(limit, int) and not isinstance(limit, bool)
    return is_number and 0 <= limit <= MOST_ROWS


def _is_duration(seconds: Any) -> bool:
    return isinstance(seconds, int | float) and 0 <= seconds <= _MOST_SECONDS
