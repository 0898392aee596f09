"""The only reader of the environment. Every setting is a variable ``LAKEBED_…``; what a lake's
processes must agree on (grace period, longest read) is stored in its catalog instead.
"""

from __future__ import annotations

import os
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """How this process behaves; the field descriptions are the documentation."""

    model_config = SettingsConfigDict(env_prefix="LAKEBED_", extra="ignore")

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
        description="Retiring more than this share of a view set must be confirmed.",
    )
    breaker_partitions: int = Field(
        default=10,
        ge=1,
        description="Retiring fewer partitions than this never needs to be confirmed.",
    )
    journal_days: float = Field(
        default=90.0, gt=0, description="Journal entries older than this are dropped by a sweep."
    )
    query_memory_mib: int = Field(
        default=2048,
        ge=16,
        description="How much memory the queries of a process may use before they spill to disk.",
    )
    query_seconds: float | None = Field(
        default=None, gt=0, description="How long a query may take; without end if not set."
    )
    tail_mib: int = Field(
        default=256,
        ge=1,
        description="How much that has landed and is not built one query decodes by itself.",
    )
    tail_cache_mib: int = Field(
        default=256, ge=0, description="How much of what queries decoded is kept for the next one."
    )


def s3_endpoint() -> str | None:
    """The S3 server to talk to, in the spelling of AWS; None for AWS itself."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
