"""Statements and ends of transactions of the catalog, in the debug log. Secrets are masked, and so
are bytes, because digests of API keys are among them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from lakebed.logs import mask_secrets

_LOGGED_SETS = 3
_LOGGED_CHARACTERS = 200
_SECRET_NAME = re.compile(r"(^|_)(secret|password|token|digest|key)s?(_\d+)*$")
_log = logging.getLogger(__name__)


def log_statements(engine: sa.Engine) -> None:
    """Log what an engine executes, as long as the level is debug."""
    sa.event.listen(engine, "before_cursor_execute", _log_statement)
    sa.event.listen(engine, "commit", lambda _connection: _log.debug("catalog commit"))
    sa.event.listen(engine, "rollback", lambda _connection: _log.debug("catalog rollback"))


def _log_statement(
    _connection: sa.Connection,
    _cursor: Any,
    statement: str,
    parameters: Any,
    context: Any,
    many: bool,
) -> None:
    if not _log.isEnabledFor(logging.DEBUG):
        return
    named = getattr(context, "compiled_parameters", None)
    sets = named or (parameters if many else [parameters])
    extra = {
        "statement": mask_secrets(" ".join(statement.split())),
        "parameters": [_show_set(values) for values in sets[:_LOGGED_SETS]],
        "parameter_sets": len(sets),
    }
    _log.debug("catalog statement", extra=extra)


def _show_set(values: Any) -> Any:
    """Return the parameters of one execution, as far as they may be logged."""
    if isinstance(values, Mapping):
        return {
            name: "***" if _SECRET_NAME.search(name) else _show(value)
            for name, value in values.items()
        }
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return [_show(value) for value in values]
    return _show(values)


def _show(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, list | tuple):
        return [_show(item) for item in value[:_LOGGED_SETS]]
    if isinstance(value, str):
        text = mask_secrets(value)
        return text if len(text) <= _LOGGED_CHARACTERS else text[:_LOGGED_CHARACTERS] + "…"
    return value
