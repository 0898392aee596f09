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
    """One thing that is not as it should be."""

    severity: Severity
    kind: str
    subject: str
    message: str
    modified: int | None = None
    """Of a stray: when the file was last written."""
    journaled: int | None = None
    """Of a stray: when the journal last named it."""


def damage(kind: str, subject: str, message: str) -> Finding:
    """Return a finding of damage."""
    return Finding(Severity.DAMAGE, kind, subject, message)
