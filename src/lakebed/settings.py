"""The only reader of the environment. A setting has one name everywhere: ``tail_mib`` is the
variable ``LAKEBED_TAIL_MIB`` and the line ``tail_mib = 256`` of a settings file. An option of a
command goes before the variable, the variable before the file, the file before the default. What
a lake's processes must agree on (grace period, longest read) is stored in its catalog instead.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    TypeAdapter,
    ValidationError,
)

from lakebed.errors import BadInput

PREFIX = "LAKEBED_"
FILE_VARIABLE = "LAKEBED_CONFIG"
"""The variable that names the settings file."""

FILE_NAME = "lakebed.toml"
"""The settings file of the current folder, which is read if no other is named."""

ROLES = ("ingest", "query", "pipeline", "web")
"""The roles of a server process."""

_HINT = "the settings are listed in docs/cli.md, and shown by: lakebed config"
_PLACES = ("lake", "certificate", "serve_certificate", "serve_private_key")
"""Paths, which in a file are relative to its folder."""


def _check_roles(text: str) -> str:
    roles = [role.strip() for role in text.split(",")]
    for role in roles:
        if role not in ROLES:
            raise ValueError(f"{role!r} is no role of a server, use some of {','.join(ROLES)}")
    return ",".join(roles)


class Settings(BaseModel):
    """The settings of a process. The field descriptions are the documentation. `read_settings`
    reads them from the environment and a file; the class itself reads nothing."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, validate_default=True)

    lake: str = Field(
        default=".", description="The lake to use: a folder, or the URL of its catalog."
    )
    actor: str = Field(
        default="", description="Who the journal names; user@host:process if not set."
    )
    log: Literal["", "info", "debug"] = Field(
        default="",
        description="Print log records on stderr, as JSON lines: `info` or `debug`.",
    )
    lease_seconds: float = Field(
        default=30.0,
        gt=0,
        description="A process that shows no sign of life for this long is taken for dead.",
    )
    sweep_files: int = Field(
        default=1000, ge=1, description="How many files one transaction of a sweep claims at most."
    )
    breaker_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Retiring more than this share of a view set must be confirmed by name.",
    )
    breaker_partitions: int = Field(
        default=10,
        ge=1,
        description="Retiring fewer partitions than this never needs to be confirmed.",
    )
    breaker_minutes: float = Field(
        default=60.0,
        gt=0,
        description="Retirements by one user or key within so many minutes count together.",
    )
    journal_days: float = Field(
        default=90.0, gt=0, description="Journal entries older than this are dropped by a sweep."
    )
    query_memory_mib: int = Field(
        default=2048,
        ge=16,
        description="How much memory the queries of a process may use before they spill to disk.",
    )
    query_spill_mib: int = Field(
        default=16_384,
        ge=0,
        description="How much disk (in TMPDIR) the queries of a process may use when they spill.",
    )
    query_seconds: float | None = Field(
        default=None,
        gt=0,
        description="How long a query may take; if not set, without end, and 300 on a server.",
    )
    verify_pages: bool = Field(
        default=True,
        description="Whether a query verifies the checksums of the pages that this process has not "
        "read before.",
    )
    tail_mib: int = Field(
        default=256,
        ge=1,
        description="How much that has landed and is not built one query decodes by itself.",
    )
    tend_on_close: bool = Field(
        default=True,
        description="Whether a program that closes an embedded lake does some of its upkeep.",
    )
    tail_cache_mib: int = Field(
        default=256, ge=0, description="How much of what queries decoded is kept for the next one."
    )
    key: SecretStr | None = Field(
        default=None, description="The key that a client of a server shows it."
    )
    certificate: Path | None = Field(
        default=None,
        description="The authorities (a PEM file) that a client trusts instead of the system's.",
    )
    serve_host: str = Field(
        default="127.0.0.1", min_length=1, description="The address that a server listens on."
    )
    serve_port: int = Field(
        default=4318, ge=0, le=65535, description="A server's HTTP port; 0 for any that is free."
    )
    serve_otlp_port: int = Field(
        default=4317, ge=0, le=65535, description="A server's port of OTLP over gRPC."
    )
    serve_flight_port: int = Field(
        default=50051, ge=0, le=65535, description="A server's port of FlightSQL."
    )
    serve_roles: Annotated[str, AfterValidator(_check_roles)] = Field(
        default=",".join(ROLES),
        description="What a server does: some of `ingest,query,pipeline,web`.",
    )
    serve_without_keys: bool = Field(
        default=False,
        description="Whether a server lets everybody in who can reach its ports.",
    )
    serve_certificate: Path | None = Field(
        default=None, description="Speak TLS with this certificate (a PEM file)."
    )
    serve_private_key: Path | None = Field(
        default=None, description="The certificate's private key (a PEM file)."
    )
    serve_wait_seconds: float = Field(
        default=300.0,
        ge=0,
        description="How long a server waits at its start for a PostgreSQL that accepts no "
        "connections; 0 for not at all.",
    )
    serve_telemetry_seconds: float = Field(
        default=60.0,
        ge=0,
        description="How often a server writes its own telemetry into its lake; 0 for never.",
    )


class Kind(StrEnum):
    """The sources of a value, the strongest first."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a setting's value, and its name there."""

    kind: Kind
    place: str = ""
    """The option, the variable, or the file."""

    def __str__(self) -> str:
        return self.place or self.kind.value


@dataclass(frozen=True, slots=True)
class Reading:
    """The settings as far as they can be read, where each comes from, and what is wrong."""

    settings: Settings
    origins: Mapping[str, Origin]
    file: Path | None
    problems: tuple[str, ...] = ()


def read_settings(**flags: Any) -> Settings:
    """The settings of this process; options that were not given are None. `BadInput` names the
    first that is wrong, and where it stands."""
    reading = look_up(**flags)
    if reading.problems:
        raise BadInput(reading.problems[0], hint=_HINT)
    return reading.settings


def look_up(**flags: Any) -> Reading:
    """The settings and everything that is wrong with them; what is wrong has its default."""
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    file = find_file()
    written, problems = ({}, []) if file is None else _read_file(file)
    for name, value in written.items():
        values[name], origins[name] = value, Origin(Kind.FILE, str(file))
    for name in Settings.model_fields:
        if text := os.environ.get(variable(name)):
            values[name], origins[name] = text, Origin(Kind.ENVIRONMENT, variable(name))
    for name, value in flags.items():
        if value is not None:
            option = f"--{name.removeprefix('serve_').replace('_', '-')}"
            values[name], origins[name] = value, Origin(Kind.FLAG, option)
    while True:
        try:
            settings = Settings(**values)
        except ValidationError as error:
            messages = {str(mistake["loc"][0]): mistake["msg"] for mistake in error.errors()}
            for name, message in messages.items():
                problems.append(_problem(origins.pop(name), name, values.pop(name), message))
            continue
        all_origins = {
            name: origins.get(name, Origin(Kind.DEFAULT)) for name in Settings.model_fields
        }
        return Reading(settings, all_origins, file, tuple(problems))


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def spell(value: object) -> str:
    """A value as a settings file and a variable spell it, without passwords."""
    return str(value).lower() if isinstance(value, bool) else mask(str(value))


def find_file() -> Path | None:
    """The settings file: the one that LAKEBED_CONFIG names, or lakebed.toml in this folder."""
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return Path(named)
    return Path(FILE_NAME) if os.path.lexists(FILE_NAME) else None


def _read_file(file: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the values of a settings file, and a line for each mistake in it."""
    try:
        with file.open("rb") as opened:
            written = tomllib.load(opened)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        explanation = f" ({FILE_VARIABLE} names it)" if os.environ.get(FILE_VARIABLE) else ""
        return {}, [f"cannot read the settings file {file}: {reason}{explanation}"]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        return {}, [f"the settings file {file} is not TOML: {reason[:1].lower()}{reason[1:]}"]
    good: dict[str, Any] = {}
    problems = []
    for name, value in written.items():
        if name not in Settings.model_fields:
            problems.append(f"the settings file {file} has {_unknown(name, value)}")
        elif (mistake := _find_mistake(name, value)) is not None:
            problems.append(_problem(Origin(Kind.FILE, str(file)), name, value, mistake))
        else:
            good[name] = _beside(file, value) if name in _PLACES else value
    return good, problems


def _find_mistake(name: str, value: Any) -> str | None:
    """Return why a file's value is not of its setting's type, or None. Variables are texts and are
    converted. A file has types, and ``true`` is not a number."""
    expected = Settings.model_fields[name].rebuild_annotation()
    adapter: TypeAdapter[Any] = TypeAdapter(expected, config=ConfigDict(allow_inf_nan=False))
    try:
        adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        return error.errors()[0]["msg"]
    except TypeError:  # a date or a time
        return "no setting is a date or a time"
    return None


def _beside(file: Path, place: str) -> str:
    """A place that a file names, as seen from here."""
    return place if "://" in place else str(file.parent / place)


def _unknown(name: str, value: Any) -> str:
    """An unknown name, and what may have been meant."""
    if isinstance(value, dict):
        inner = [f"{name}_{key}" for key in value if f"{name}_{key}" in Settings.model_fields]
        meant = f"; it has no tables, write {inner[0]} = …" if inner else ""
        return f"a table {name!r}, which is no setting{meant}"
    near = difflib.get_close_matches(name, Settings.model_fields, 1)
    return f"{name!r}, which is no setting" + (f"; did you mean {near[0]!r}?" if near else "")


def _problem(origin: Origin, name: str, value: Any, message: str) -> str:
    """One line that names the setting, where it stands, and what is wrong with it."""
    text = f"'{mask(value)}'" if isinstance(value, str) else spell(value)
    if Settings.model_fields[name].annotation == SecretStr | None:
        text = "'***'"
    reason = message.removeprefix("Value error, ")
    reason = reason[:1].lower() + reason[1:]
    if origin.kind is Kind.FILE:
        return f"the setting {name} = {text} in {origin.place} is wrong: {reason}"
    if origin.kind is Kind.FLAG:
        return f"{origin.place} {text} is wrong: {reason}"
    return f"the setting {origin.place}={text} is wrong: {reason}"


def unknown_variables() -> dict[str, str | None]:
    """Variables that begin like ours and are no setting, each with the one that may be meant.
    They are not refused: Kubernetes sets some for a service of our name."""
    known_names = {variable(name) for name in Settings.model_fields} | {FILE_VARIABLE}
    suggestions: dict[str, str | None] = {}
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in known_names:
            near = difflib.get_close_matches(name, known_names, 1, cutoff=0.85)
            suggestions[name] = near[0] if near else None
    return suggestions


def mask(text: str) -> str:
    """A text without the passwords of the URL that it may be."""
    hidden = re.sub(r"(://[^:/?#@]*):.*@", r"\1:***@", text, flags=re.DOTALL)
    return re.sub(
        r"([?&]\w*(?:password|secret|token)=)[^&]*", r"\1***", hidden, flags=re.IGNORECASE
    )


def s3_endpoint() -> str | None:
    """The S3 server to talk to, in the spelling of AWS; None for AWS itself."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
