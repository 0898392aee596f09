"""Checks of the arguments of the public Python API, from the types that it declares.

Without them a value of a wrong type fails late, in words of Python's own: a text for a bool is
true, and a list for a name is ``unhashable type``.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import EnumType
from functools import wraps
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, BinaryIO, ParamSpec, TypeVar, Union, get_args, get_origin

from lakebed.errors import BadInput
from lakebed.model.time import Instant

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

_MANY = (Collection, Sequence, Iterable)
_INSTANT = frozenset(get_args(Instant))
"""Times are checked where they are read, which says more."""
_OWN_CHECKS = "__own_checks__"
_BYTES = (bytes, bytearray, memoryview)


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with its arguments checked: `BadInput` names one of a wrong type. Where
    several texts are expected, one text stands for itself."""
    parameters = inspect.signature(function).parameters
    positional = [
        name
        for name, parameter in parameters.items()
        if parameter.kind not in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    ]
    many = [
        name for name in positional if parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
    ]
    named = {
        name
        for name, parameter in parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    hints: dict[str, Any] = {}

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        if not hints:
            hints.update(_without_times(read_hints(function)))
        values = list(args)
        for index, value in enumerate(args):
            name = positional[index] if index < len(positional) - len(many) else "".join(many)
            if name and name != "self":
                values[index] = check(function.__name__, name, value, hints[name])
        for name, value in options.items():
            if name in named:
                options[name] = check(function.__name__, name, value, hints[name])
        return function(*values, **options)  # type: ignore[arg-type]

    return call


def checks_itself(*names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark parameters that a function checks itself, with messages of its own."""

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        function.__dict__[_OWN_CHECKS] = names
        return function

    return mark


def checked_methods(kind: type[C]) -> type[C]:
    """Check the arguments of every public method of a class."""
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(kind, name, checked(method))
    return kind


def list_names(names: Collection[str | Collection[str]]) -> tuple[str, ...]:
    """Return names that are given one by one, or as lists of names. An empty list is `BadInput`: no
    names at all stand for all of them."""
    flat: list[str] = []
    if any(not name for name in names):
        raise BadInput("a list of names is empty", hint="leave it out to mean all")
    for name in names:
        flat.extend([name] if isinstance(name, str) else name)
    return tuple(flat)


def _without_times(hints: Mapping[str, Any]) -> dict[str, Any]:
    return {name: Any if is_time(hint) else hint for name, hint in hints.items()}


def is_time(hint: Any) -> bool:
    """Return True for the type of a parameter that is a time, or a time or None."""
    return get_origin(hint) in (Union, UnionType) and set(get_args(hint)) >= _INSTANT


def check(function: str, name: str, value: Any, hint: Any) -> Any:
    """Return a value of a declared type, or raise `BadInput` with the name of the argument."""
    if fits(value, hint):
        return value
    if isinstance(value, str) and _takes_texts(hint):
        return (value,)
    raise BadInput(
        f"{function}: argument {name!r} must be {describe(hint)}, not {_describe_value(value)}"
    )


def _describe_value(value: Any) -> str:
    """Return the type of a value in words, of a list with the types of its items."""
    kind = type(value).__name__
    if not isinstance(value, list | tuple) or not value:
        return kind
    return f"a {kind} of {' and '.join(sorted({type(item).__name__ for item in value}))}"


def _takes_texts(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(map(_takes_texts, get_args(hint)))
    return get_origin(hint) in _MANY and fits("", get_args(hint)[0])


class _Names(dict[str, Any]):
    """The names in an annotation. One that is imported for type checkers only becomes an empty
    class of the same name."""

    def __init__(self, module: Mapping[str, Any]) -> None:
        super().__init__()
        self._module = module

    def __missing__(self, name: str) -> Any:
        if name in self._module:
            return self._module[name]
        if hasattr(builtins, name):
            return getattr(builtins, name)
        return type(name, (_Unimported,), {})


class _Unimported:
    """A type that is not imported; values are compared by the names of their classes."""


def read_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the declared type of each parameter; Any for those that cannot be read."""
    hints = {}
    function = inspect.unwrap(function)
    for name in inspect.signature(function).parameters:
        own = name in function.__dict__.get(_OWN_CHECKS, ())
        written = Any if own else function.__annotations__.get(name, Any)
        if isinstance(written, str):
            try:
                written = eval(written, {}, _Names(function.__globals__))  # noqa: S307
            except (AttributeError, TypeError):
                written = Any
        hints[name] = written
    return hints


def fits(value: Any, hint: Any) -> bool:
    """Return True if a value is of a declared type."""
    if hint is Any or isinstance(hint, TypeVar):
        return True
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, item) for item in inner)
    if origin in _MANY:
        is_many = isinstance(value, origin) and not isinstance(value, (str, *_BYTES))
        return is_many and all(fits(item, inner[0]) for item in value)
    if origin is tuple:
        is_pair = isinstance(value, tuple | list) and len(value) == len(inner)
        return is_pair and all(map(fits, value, inner))
    if origin is Callable:
        return callable(value)
    if hint is BinaryIO:  # open files are not instances of it
        return callable(getattr(value, "read", None))
    if hint is bytes:
        return isinstance(value, _BYTES)
    if hint is bool:
        return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")
    if hint in (int, float):
        number = Integral if hint is int else Real
        return isinstance(value, number) and not isinstance(value, bool)
    kind = origin or hint
    if isinstance(kind, EnumType) and not isinstance(value, kind):
        return isinstance(value, str | int) and value in list(kind)
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    if issubclass(kind, _Unimported):
        return any(base.__name__ == kind.__name__ for base in type(value).__mro__)
    return isinstance(value, kind)


def describe(hint: Any) -> str:
    """Return a declared type in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(map(describe, inner))
    if origin in _MANY:
        return f"a list of {' and '.join(map(describe, inner))}"
    if origin is tuple:
        return f"a tuple of {' and '.join(map(describe, inner))}"
    if origin is Callable:
        return "a function"
    if hint is BinaryIO:
        return "a file that is open for reading bytes"
    return "None" if hint is NoneType else str(getattr(origin or hint, "__name__", hint))
