"""The optional parts of an installation: what each is for, its modules, and how to install it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from lakebed.errors import MissingExtra


@dataclass(frozen=True, slots=True)
class Extra:
    """One entry of ``project.optional-dependencies``."""

    name: str
    purpose: str
    modules: tuple[str, ...]

    def list_missing(self) -> list[str]:
        """Return the modules of this extra that are not installed. Nothing is imported."""
        return [module for module in self.modules if not is_installed(module)]


_SERVE = ("grpc", "httptools", "jinja2", "prometheus_client", "starlette", "uvicorn")
_EXPORTER = "opentelemetry.exporter.otlp.proto.http"
_SPARK = ("pyspark", "py4j", "pandas")

EXTRAS = {
    extra.name: extra
    for extra in (
        Extra("postgres", "a catalog in PostgreSQL", ("psycopg",)),
        Extra("spark", "builds and queries on Spark", _SPARK),
        Extra("connect", "Spark Connect", (*_SPARK, "grpc", "grpc_status", "zstandard")),
        Extra("serve", "a server", _SERVE),
        Extra("demo", "the demo", (*_SERVE, *_SPARK, "opentelemetry.sdk", _EXPORTER)),
    )
}


def require_extra(name: str) -> None:
    """Raise `MissingExtra` unless every module of an extra is installed."""
    missing = EXTRAS[name].list_missing()
    if missing:
        raise missing_extra(name, f"{missing[0]} is not installed")


def missing_extra(name: str, reason: str) -> MissingExtra:
    """Return the error for an extra that is missing or cannot be imported."""
    return MissingExtra(
        f"the extra {name} is missing, for {EXTRAS[name].purpose}: {reason}",
        hint=f"pip install 'lakebed[{name}]'",
    )


def explain_missing_module(error: ModuleNotFoundError) -> MissingExtra | None:
    """Return the error that names the extra of a missing module; None if no extra has it."""
    module = error.name or ""
    for extra in EXTRAS.values():
        if any(f"{module}.".startswith(f"{top}.") for top in extra.modules):
            return missing_extra(extra.name, f"{module} is not installed")
    return None


def is_installed(module: str) -> bool:
    """Return True if a module can be found. It is not imported."""
    try:
        return find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # its package is missing, or is None in sys.modules
        return False
