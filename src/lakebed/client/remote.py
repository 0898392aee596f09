"""Functions of a lake that work over a connection as well: their arguments and what they give, as
bytes. A function declares itself once; both ends use that. Arguments are MessagePack, so that
times and bytes stay what they are; tables are Arrow streams.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec
import pyarrow as pa

from lakebed.client.client import Client
from lakebed.errors import BadInput, Unsupported
from lakebed.model.arguments import check, checked, read_hints

PREFIX = "lakebed."
"""How the actions of these functions are called, before their names."""

TABLE = pa.Table
_PIECE_BYTES = 1 << 20
L = TypeVar("L")
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RemoteFunction:
    """A function that a server does for others."""

    function: Callable[..., Any]
    """Of a lake, and of what else it takes."""
    gives: Any
    """The type of its result."""
    changes: bool
    """Whether it changes the lake, and so is for administrators."""

    def call(self, lake: Any, *args: Any, **options: Any) -> Any:
        """Do it here. `BadInput` for arguments of other types than it declares."""
        bound = inspect.signature(self.function).bind(lake, *args, **options)
        for name, hint in list(_read_hints(self.function).items())[1:]:
            if name in bound.arguments:
                value = bound.arguments[name]
                bound.arguments[name] = check(self.function.__name__, name, value, hint)
        return self.function(*bound.args, **bound.kwargs)

    def answer(self, lake: Any, body: bytes) -> Iterator[bytes]:
        """Do it, and give its result in pieces."""
        try:
            given = msgspec.msgpack.decode(body, type=dict[str, Any])
            inspect.signature(self.function).bind(lake, **given)
        except (msgspec.DecodeError, TypeError, RecursionError) as error:
            raise BadInput(f"the call is not understood: {error}") from error
        result = self.call(lake, **given)
        data = _encode_table(result) if self.gives is TABLE else msgspec.msgpack.encode(result)
        for begin in range(0, len(data), _PIECE_BYTES):
            yield data[begin : begin + _PIECE_BYTES]

    def ask(self, client: Client, *args: Any, **options: Any) -> Any:
        """Let a server do it."""
        name = self.function.__name__
        given = inspect.signature(self.function).bind(client, *args, **options).arguments
        first = next(iter(given))
        sent = {key: value for key, value in given.items() if key != first}
        try:
            body = msgspec.msgpack.encode(sent, enc_hook=_spell)
        except TypeError as error:
            raise BadInput(f"{name} cannot be asked for this over a connection: {error}") from error
        data = client.act(PREFIX + name, body)
        if self.gives is TABLE:
            return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
        return msgspec.msgpack.decode(data, type=self.gives)


_FUNCTIONS: dict[str, RemoteFunction] = {}
FUNCTIONS: Mapping[str, RemoteFunction] = _FUNCTIONS
"""Every function that declared itself, by its name."""


def also_remote(
    gives: Any = TABLE, *, changes: bool = False, deprecated: str | None = None
) -> Callable[[Callable[Concatenate[L, P], R]], Callable[Concatenate[L | Client, P], R]]:
    """Declare a function of a lake that takes a connection in its place. ``deprecated`` is the
    warning that its callers get."""

    def declare(
        function: Callable[Concatenate[L, P], R],
    ) -> Callable[Concatenate[L | Client, P], R]:
        known = RemoteFunction(function, gives, changes)
        _FUNCTIONS[function.__name__] = known

        @wraps(function)
        def call(lake: L | Client, /, *args: P.args, **options: P.kwargs) -> R:
            if deprecated is not None:
                warnings.warn(deprecated, DeprecationWarning, stacklevel=2)
            if isinstance(lake, Client):
                result: R = known.ask(lake, *args, **options)
            else:
                result = known.call(lake, *args, **options)
            return result

        return call

    return declare


def never_remote(
    instead: str,
) -> Callable[[Callable[Concatenate[L, P], R]], Callable[Concatenate[L | Client, P], R]]:
    """A function that needs the lake itself, and says what to do over a connection instead."""

    def declare(
        function: Callable[Concatenate[L, P], R],
    ) -> Callable[Concatenate[L | Client, P], R]:
        @wraps(function)
        def call(lake: L | Client, /, *args: P.args, **options: P.kwargs) -> R:
            if isinstance(lake, Client):
                raise Unsupported(f"{function.__name__} needs the lake itself", hint=instead)
            return checked(function)(lake, *args, **options)

        return call

    return declare


_read_hints = cache(read_hints)


def _encode_table(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _spell(value: Any) -> Any:
    """Return the text of a pandas timestamp, with its nanoseconds; MessagePack knows no others."""
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} cannot be sent")
