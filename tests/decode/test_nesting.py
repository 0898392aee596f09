"""How deep JSON may be nested: one limit for all, counted outside of strings only."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from lakebed.decode.json_requests.nesting import MAX_LEVELS, check_nesting
from lakebed.decode.json_requests.otlp_json import to_protobuf
from lakebed.decode.requests import split
from lakebed.errors import BadPayload
from lakebed.model.signal import Signal

_AROUND = 7
"""The levels of a request down to a record."""


def request_with_unknown(levels: int, *, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    unknown = opening * levels + b"1" + closing * levels
    return b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"zz":' + unknown + b"}]}]}]}"


def far_down(frames: int, call: Any) -> Any:
    return call() if not frames else far_down(frames - 1, call)


def is_refused(text: bytes, most: int) -> bool:
    try:
        check_nesting(text, most)
    except BadPayload:
        return True
    return False


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_unknown_fields_may_be_nested_up_to_the_limit(opening: bytes, closing: bytes) -> None:
    fits = request_with_unknown(MAX_LEVELS - _AROUND, opening=opening, closing=closing)
    (part,) = split(Signal.LOGS, fits, content="json")
    for levels in (1, 2, 100, 700, 100_000):
        deeper = MAX_LEVELS - _AROUND + levels
        body = request_with_unknown(deeper, opening=opening, closing=closing)
        with pytest.raises(BadPayload, match="nested more than 200 levels"):
            split(Signal.LOGS, body, content="json")
    # What has landed is read wherever it is, also by who has used much of his stack.
    assert far_down(400, lambda: to_protobuf(Signal.LOGS, part.payload))


def test_a_value_that_another_of_the_same_name_replaces_counts_too() -> None:
    deep = b"[" * 300 + b"]" * 300
    with pytest.raises(BadPayload, match="nested more than 200 levels"):
        split(Signal.LOGS, b'{"resourceLogs":[{"zz":' + deep + b',"zz":1}]}', content="json")


def test_brackets_in_strings_do_not_count() -> None:
    texts = [
        "[" * 300,
        '"[' * 300,
        '\\"[' * 300,
        "\\" * 301 + "{" * 300,
        "}]" * 300,
        "",
        "é[" * 300,
    ]
    records = [{"body": {"stringValue": text}, text: text} for text in texts]
    request = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    for ascii_only in (True, False):
        body = json.dumps(request, ensure_ascii=ascii_only).encode()
        assert split(Signal.LOGS, body, content="json")[0].nb_objects == len(texts)
        with pytest.raises(BadPayload, match="nested more than 200 levels"):
            check_nesting(b"[" + body + b"," + b"[" * 200 + b"]" * 200 + b"]")


def test_levels_are_counted_as_a_parser_meets_them() -> None:
    rng = random.Random(7)

    def value(levels: int) -> Any:
        if not levels or rng.random() < 0.2:
            return rng.choice([1, None, "", '"', "\\", '\\"]}', "{[", "a\\n[", "\u2028"])
        children = [value(levels - 1) for _ in range(rng.randrange(4))]
        if rng.random() < 0.5:
            return children
        return {f"{rng.choice(['', '[', chr(92), chr(34)])}{n}": c for n, c in enumerate(children)}

    def depth(of: Any) -> int:
        inside = of.values() if isinstance(of, dict) else of if isinstance(of, list) else None
        return 0 if inside is None else 1 + max(map(depth, inside), default=0)

    for _ in range(300):
        tree = value(rng.randrange(9))
        text = json.dumps(tree, ensure_ascii=rng.random() < 0.5).encode()
        for most in range(12):
            assert is_refused(text, most) == (depth(tree) > most), (text, most)
