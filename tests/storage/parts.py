"""What the tests of stores share."""

from __future__ import annotations


def one_line(error: BaseException) -> str:
    """What users read of an error, which is one line."""
    text = f"{error}; {getattr(error, 'hint', None)}"
    assert "\n" not in text
    return text
