"""The declaration of administrative operations, and how Python and Flight call them.

An operation is a function of a lake under `operation`. Its signature has the arguments and their
types, its docstring is the documentation, and its body makes a plan and carries it out through
``lake.retirement``. In a SQL statement that is `Changes`, which commits at the end.

Over a connection, arguments are MessagePack, so that times and bytes stay what they are, and tables
are Arrow streams.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, runtime_checkable

import msgspec
import pyarrow as pa

from lakebed.errors import BadInput, Unsupported
from lakebed.model.arguments import check, read_hints

if TYPE_CHECKING:
    from lakebed.lifecycle.check import Checker
    from lakebed.lifecycle.retire import Retirement
    from lakebed.pipeline.pipeline import Pipeline
    from lakebed.query.queries import Queries
    from lakebed.tables.tables import Tables

PREFIX = "lakebed."
"""What the names of Flight actions begin with."""

TABLE = pa.Table
_PIECE_BYTES = 1 << 20
L = TypeVar("L")
P = ParamSpec("P")
R = TypeVar("R")


class OperableLake(Protocol):
    """The parts of a lake that operations use."""

    retirement: Retirement
    queries: Queries
    tables: Tables
    checker: Checker
    pipeline: Pipeline


@runtime_checkable
class Connection(Protocol):
    """A connection to a server, which carries operations out on its own lake."""

    def act(self, action: str, body: bytes) -> bytes:
        """Return the result of one action."""


@dataclass(frozen=True)
class Operation:
    """One administrative operation."""

    function: Callable[..., Any]
    returns: Any
    """The type of its result."""
    changes: bool = False
    """True if it changes the lake, and so needs the role admin."""
    in_sql: bool = False
    """True if SQL can call it as a scalar function, for each row."""
    deprecated: str | None = None
    """The warning that its callers get."""
    instead: str | None = None
    """What to do over a connection, for an operation that needs the lake itself."""

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def action(self) -> str:
        """The name of its Flight action."""
        return PREFIX + self.name

    @property
    def summary(self) -> str:
        """The first sentence of its documentation."""
        return (self.function.__doc__ or "").split(".")[0].split(":")[0]

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The type of each argument, without the lake."""
        return dict(list(read_hints(self.function).items())[1:])

    def call(self, lake: Any, *args: Any, **options: Any) -> Any:
        """Run it on a lake. `BadInput` for arguments of other types than it declares."""
        bound = inspect.signature(self.function).bind(lake, *args, **options)
        for name, hint in self.arguments.items():
            if name in bound.arguments:
                bound.arguments[name] = check(self.name, name, bound.arguments[name], hint)
        return self.function(*bound.args, **bound.kwargs)

    def answer(self, lake: Any, body: bytes) -> Iterator[bytes]:
        """Run it for a connection; return its result in pieces."""
        try:
            arguments = msgspec.msgpack.decode(body, type=dict[str, Any])
            inspect.signature(self.function).bind(lake, **arguments)
        except (msgspec.DecodeError, TypeError, RecursionError) as error:
            raise BadInput(f"the call is not understood: {error}") from error
        result = self.call(lake, **arguments)
        data = _encode_table(result) if self.returns is TABLE else msgspec.msgpack.encode(result)
        for begin in range(0, len(data), _PIECE_BYTES):
            yield data[begin : begin + _PIECE_BYTES]

    def send(self, connection: Connection, *args: Any, **options: Any) -> Any:
        """Let a server run it."""
        if self.instead is not None:
            raise Unsupported(f"{self.name} needs the lake itself", hint=self.instead)
        bound = inspect.signature(self.function).bind(connection, *args, **options)
        _, *names = bound.arguments
        arguments = {name: bound.arguments[name] for name in names if name in self.arguments}
        try:
            body = msgspec.msgpack.encode(arguments, enc_hook=_spell)
        except TypeError as error:
            raise BadInput(
                f"{self.name} cannot be asked for this over a connection: {error}"
            ) from error
        data = connection.act(self.action, body)
        if self.returns is TABLE:
            return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
        return msgspec.msgpack.decode(data, type=self.returns)


OPERATIONS: dict[str, Operation] = {}
"""Every operation, by name; complete once `lakebed.admin` is imported."""


def operation(
    returns: Any = TABLE, **declared: Any
) -> Callable[[Callable[Concatenate[L, P], R]], Callable[Concatenate[L | Connection, P], R]]:
    """Declare an operation; the options are fields of `Operation`. The function then takes a
    connection in place of the lake, too, and checks its arguments."""

    def declare(
        function: Callable[Concatenate[L, P], R],
    ) -> Callable[Concatenate[L | Connection, P], R]:
        declaration = Operation(function, returns, **declared)
        OPERATIONS[declaration.name] = declaration

        @wraps(function)
        def call(lake: L | Connection, /, *args: P.args, **options: P.kwargs) -> R:
            if declaration.deprecated is not None:
                warnings.warn(declaration.deprecated, DeprecationWarning, stacklevel=2)
            if isinstance(lake, Connection):
                result: R = declaration.send(lake, *args, **options)
            else:
                result = declaration.call(lake, *args, **options)
            return result

        return call

    return declare


def _encode_table(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _spell(value: Any) -> Any:
    """Return the text of a pandas timestamp, with its nanoseconds; MessagePack has no such type."""
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} cannot be sent")
