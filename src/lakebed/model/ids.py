"""Unique identifiers."""

from __future__ import annotations

import uuid


def new_id() -> str:
    """Return a new random UUID."""
    return str(uuid.uuid4())
