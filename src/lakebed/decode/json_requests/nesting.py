"""The limit on the nesting of JSON. Without a fixed limit, whether a text can be read would depend
on the stack that the reading thread has left: it could land in one thread and be unreadable in
another.
"""

from __future__ import annotations

import re
from itertools import accumulate

from lakebed.errors import BadPayload

MAX_LEVELS = 200
"""The limit of nested objects and arrays in a whole request. OTLP itself can nest 100 messages,
which takes fewer levels; Python's own limit, at which parsers fail, is far above.
"""

_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_ALIKE = bytes.maketrans(b"[]", b"{}")
_OTHERS = bytes(set(range(256)) - set(b'{}[]"'))
_STEPS = bytes.maketrans(b"{}", b"\x01\xff")
_PEELED = 4


def check_nesting(text: bytes, max_levels: int = MAX_LEVELS) -> None:
    """Raise `BadPayload` for JSON with more levels. Malformed JSON may pass; its parser refuses it.

    Works on the whole text, because every request is checked: a few percent of its parsing.
    """
    if text.count(b"{") + text.count(b"[") <= max_levels:
        return
    if b"\\" in text:
        text = _ESCAPE.sub(b"", text)
    marks = text.translate(_ALIKE, _OTHERS).replace(b'""', b"")
    brackets = b"".join(marks.split(b'"')[::2])  # every other piece is inside of a string
    peeled = min(_PEELED, max_levels)
    for _ in range(peeled):  # without its leaves a tree has one level less, and is much smaller
        brackets = brackets.replace(b"{}", b"")
    steps = memoryview(brackets.translate(_STEPS)).cast("b")
    if any(level > max_levels - peeled for level in accumulate(steps)):
        raise BadPayload(
            f"the JSON is nested more than {MAX_LEVELS} levels deep",
            hint="unknown fields are ignored but must be read too; leave them out",
        )
