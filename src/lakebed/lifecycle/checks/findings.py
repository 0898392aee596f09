"""Findings of checks."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Severity(enum.StrEnum):
    """The severity of a finding."""

    DAMAGE = "damage"  # rows are lost, doubled or unreadable, or could become so
    WARNING = "warning"  # something to look at; no row is affected
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem or a remark about one subject."""

    severity: Severity
    kind: str
    subject: str
    message: str
    modified: int | None = None
    """The time of a stray's last write."""
    journaled: int | None = None
    """The tick at which the journal last named a stray."""


def damage(kind: str, subject: str, message: str) -> Finding:
    """Return a finding of damage."""
    return Finding(Severity.DAMAGE, kind, subject, message)
