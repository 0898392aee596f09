"""Statements are compiled once in a process, and not once for each of the lakes that its tests make
and open: each has an engine of its own, and SQLAlchemy keeps what it compiled with the engine.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa


class _Compiled(dict[Any, Any]):
    """Compiled statements of one kind of database, found from any engine."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_without_dialect(key), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        super().__setitem__(_without_dialect(key), compiled)


def _without_dialect(key: Any) -> Any:
    dialect, *rest = key
    assert isinstance(dialect, sa.Dialect), "SQLAlchemy's keys begin with the engine's dialect"
    return tuple(rest)


_KNOWN: dict[str, _Compiled] = {}


def share_compiled_statements() -> None:
    """From now on, among all engines of this process."""
    sa.event.listen(sa.Engine, "engine_connect", _share)


def _share(connection: sa.Connection) -> None:
    known = _KNOWN.setdefault(connection.dialect.name, _Compiled())
    connection.execution_options(compiled_cache=known)
