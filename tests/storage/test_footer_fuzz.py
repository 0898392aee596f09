"""Whatever bytes a catalog holds for a footer, the answer is a footer or ``DamagedFooter``.

Also a program: ``python -m tests.storage.test_footer_fuzz SEED SECONDS [CASE]`` fuzzes in a process
of its own, with little memory and a watchdog per case, and reports in JSON; with CASE it repeats
that one.
"""

from __future__ import annotations

import base64
import copy
import json
import os
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakebed.errors import DamagedFooter
from lakebed.storage import footer
from tests.storage.test_footer import (
    BINARY,
    BYTE,
    DOUBLE,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    PATH,
    SET,
    STRUCT,
    TRUE,
    UUID,
    add_unknown,
    chunks,
    decode,
    encode,
    refusal,
    sample,
    stripped,
    tree,
    varint,
    with_rows,
    write,
    zigzag,
)

CAMPAIGN = bool(os.environ.get("LAKEBED_CAMPAIGN"))
EFFORT = 10 if CAMPAIGN else 1
CASE_SECONDS = 10
MEMORY_BYTES = 2 << 30

# ---- mutations


INTEGERS = [0, 1, -1, 2, 7, 8, 15, 127, 128, 2**15, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63)]


@cache
def corpus() -> list[bytes]:
    """Real footers, large and small, with and without Arrow's schema and page indexes."""
    small = pa.table({"n": [1, 2, 3], "s": ["x", None, "z"]})
    nested = pa.table({"l": [[{"a": 1, "b": [b"x"]}], [], None]})
    empty = pa.table({"n": pa.array([], pa.int64())})
    files = [write(each, store_schema=False) for each in (small, nested, empty, sample().table)]
    files += [sample(), write(small), write(nested, row_group_size=1)]
    return [each.footer for each in files]


def hostile(rng: random.Random) -> bytes:
    """A footer damaged in its meaning, in its bytes, or none at all."""
    data = rng.choice(corpus())
    way = rng.random()
    if way < 0.5:
        fields, _ = decode(data)
        for _ in range(rng.randint(1, 3)):
            fields = mutate(rng, STRUCT, fields)
        with suppress(ValueError, OverflowError):  # integers may have left what Thrift can hold
            return encode(fields)
    if way < 0.55:
        return rng.randbytes(rng.randrange(300))
    for _ in range(rng.randint(1, 4)):
        data = scramble(rng, data)
    return data


def scramble(rng: random.Random, data: bytes) -> bytes:
    """Damage bytes without regard to what they mean."""
    at = rng.randrange(len(data) + 1)
    head, tail = data[:at], data[at:]
    other = rng.choice(corpus())
    start = rng.randrange(len(other))
    changes: list[Callable[[], bytes]] = [
        lambda: head,
        lambda: head + tail[rng.randint(1, 8) :],
        lambda: head + rng.randbytes(rng.randint(1, 8)) + tail,
        lambda: head + other[start : start + rng.randrange(40)] + tail[rng.randrange(40) :],
        lambda: head + bytes(byte ^ 1 << rng.randrange(8) for byte in tail[:1]) + tail[1:],
        lambda: head + bytes(byte & 0x80 | rng.randrange(0x80) for byte in tail[:1]) + tail[1:],
        lambda: head + b"\xfc" + varint(rng.choice([2**20, 2**31 - 1, 2**63])) + tail[1:],
    ]
    return rng.choice(changes)()


def mutate(rng: random.Random, wire: int, value: Any) -> Any:
    """Change one thing of a decoded value, so that the bytes stay well-formed."""
    if wire in (I16, I32, I64):
        return rng.choice(INTEGERS) if rng.random() < 0.6 else value + rng.randint(-3, 3)
    if wire == BINARY:
        return mutate_string(rng, value)
    if wire == STRUCT:
        fields = dict(value)
        number = rng.choice([*fields, rng.randint(1, 20)])
        if number not in fields or rng.random() < 0.1:
            spare = [(STRUCT, {}), (I32, 1), (I64, 1), (TRUE, True), (LIST, (STRUCT, [{}]))]
            fields[number] = rng.choice([*fields.values(), *spare])
        elif rng.random() < 0.1:
            del fields[number]
        else:
            kind, old = fields[number]
            fields[number] = (kind, mutate(rng, kind, old))
        return fields
    if wire in (LIST, SET):
        element, values = value[0], list(value[1])
        if values and rng.random() < 0.15:
            values = values * rng.randrange(4)
        elif values:
            at = rng.randrange(len(values))
            values[at] = mutate(rng, element, values[at])
        return (element, values)
    return value


def mutate_string(rng: random.Random, value: bytes) -> bytes:
    if len(value) > 100 and rng.random() < 0.5:  # most likely Arrow's schema, which pyarrow unpacks
        with suppress(ValueError):
            return base64.b64encode(scramble(rng, base64.b64decode(value)))
    return rng.choice([b"", value[:-1], value + b"\xff", rng.randbytes(rng.randrange(40))])


def probe(data: bytes) -> str:
    """Upgrade, parse, and ask pyarrow for all it knows; the only error allowed is the damage."""
    candidates = [data]
    with suppress(DamagedFooter):
        upgraded = footer.upgrade(data, num_rows=3, path=PATH)
        assert footer.upgrade(upgraded, num_rows=3, path=PATH) == upgraded
        candidates.append(upgraded)
    outcome = "refused"
    for candidate in candidates:
        with suppress(DamagedFooter):
            parsed = footer.parse(candidate, path=PATH)
            outcome = "parsed"
            for ask in (parsed.to_dict, parsed.schema.to_arrow_schema, parsed.schema.__repr__):
                with suppress(Exception):  # pyarrow may raise; what it must not is crash or hang
                    ask()
    return outcome


# ---- in this process


@settings(
    max_examples=400 * EFFORT,
    deadline=None,
    derandomize=not CAMPAIGN,
    suppress_health_check=list(HealthCheck),
)
@given(rng=st.randoms(use_true_random=False))
def test_mutated_footers_are_parsed_or_refused(rng: random.Random) -> None:
    probe(hostile(rng))


@settings(max_examples=200 * EFFORT, deadline=None, derandomize=not CAMPAIGN)
@given(data=st.binary(max_size=400))
def test_random_bytes_are_parsed_or_refused(data: bytes) -> None:
    probe(data)


def values(depth: int = 3) -> st.SearchStrategy[tuple[int, Any]]:
    """Any Thrift value with its type."""
    integers = st.integers(-(2**63), 2**63 - 1)
    plain = st.one_of(
        st.tuples(st.just(TRUE), st.booleans()),
        st.tuples(st.just(BYTE), st.integers(0, 255)),
        st.tuples(st.just(I16), st.integers(-(2**15), 2**15 - 1)),
        st.tuples(st.sampled_from([I32, I64]), integers),
        st.tuples(st.just(DOUBLE), st.binary(min_size=8, max_size=8)),
        st.tuples(st.just(UUID), st.binary(min_size=16, max_size=16)),
        st.tuples(st.just(BINARY), st.binary(max_size=200)),
    )
    if not depth:
        return plain
    inner = values(depth - 1)
    return st.one_of(
        plain,
        st.dictionaries(NUMBERS, inner, max_size=4).map(lambda fields: (STRUCT, fields)),
        st.tuples(inner, st.integers(1, 20), st.sampled_from([LIST, SET])).map(
            lambda drawn: (drawn[2], (drawn[0][0], [int_if_bool(drawn[0][1])] * drawn[1]))
        ),
    )


def int_if_bool(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


NUMBERS = st.integers(-(2**15), 2**15 - 1).filter(lambda number: not 0 < number < 20)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    unknown=st.lists(st.tuples(NUMBERS, values(), st.integers(0, 2**16)), max_size=8),
    long_ids=st.sets(st.integers(0, 30)),
    rows=st.sampled_from([None, 0, 3]),
)
def test_any_unknown_fields_anywhere_survive(
    unknown: list[tuple[int, Any, int]], long_ids: set[int], rows: int | None
) -> None:
    fields = with_rows(tree(sample()), rows)
    structs = [fields, *fields[4][1][1], *chunks(fields)]
    for number, value, place in unknown:
        target = structs[place % len(structs)]
        if number not in target:
            spot = list(target)[place // len(structs) % len(target)]
            add_unknown(target, number, value, before=spot)
    upgraded = footer.upgrade(encode(fields, long_ids=long_ids), num_rows=3, path=PATH)
    after, end = decode(upgraded)
    assert end == len(upgraded)
    assert after == stripped(with_rows(fields, 3))
    assert footer.upgrade(upgraded, num_rows=3, path=PATH) == upgraded


# ---- hostile by construction


def appended(payload: bytes) -> bytes:
    """A good footer with one more field, whose header and value are given, behind the others."""
    return encode(with_rows(tree(sample()), 3))[:-1] + payload + b"\0"


def unknown(wire: int, value: bytes) -> bytes:
    return bytes((wire,)) + zigzag(99) + value


HUGE = 2**31
HOSTILE = {
    "nested structs": (unknown(STRUCT, b"\x1c" * 10_000 + bytes(10_000)), "nested deeper than 64"),
    "nested lists": (unknown(LIST, b"\x19" * 10_000), "nested deeper than 64"),
    "nested sets": (unknown(SET, b"\x1a" * 10_000), "nested deeper than 64"),
    "nested maps": (unknown(MAP, b"\x01\xbb" * 10_000), "nested deeper than 64"),
    "a huge list of structs": (unknown(LIST, b"\xfc" + varint(HUGE)), "claims 2147483648 elements"),
    "a huge list of bools": (unknown(LIST, b"\xf1" + varint(HUGE)), "claims 2147483648 elements"),
    "a huge set": (unknown(SET, b"\xf8" + varint(HUGE)), "claims 2147483648 elements"),
    "a huge map": (unknown(MAP, varint(HUGE) + b"\x88"), "claims 2147483648 elements"),
    "a list of doubles past the end": (unknown(LIST, b"\x47" + bytes(24)), "claims 4 elements"),
    "a list of nothings": (unknown(LIST, b"\x20"), "unknown type 0"),
    "a map of nothings": (unknown(MAP, b"\x01\x00"), "unknown type 0"),
    "a varint of 11 bytes": (unknown(I64, b"\xff" * 10 + b"\x01"), "longer than 10 bytes"),
    "a length of 11 bytes": (unknown(BINARY, b"\xff" * 10 + b"\x01"), "longer than 10 bytes"),
    "a count of 11 bytes": (unknown(LIST, b"\xf5" + b"\xff" * 10 + b"\x01"), "longer than 10"),
    "an endless varint": (unknown(I64, b"\xff" * 100_000), "longer than 10 bytes"),
    "a string past the end": (unknown(BINARY, varint(100) + bytes(98)), "claims 100 bytes"),
    "a list of uuids past the end": (unknown(LIST, b"\x4d" + bytes(60)), "claims 4 elements"),
    "a uuid past the end": (unknown(UUID, bytes(14)), "end inside a value"),
    "a double past the end": (unknown(DOUBLE, bytes(6)), "end inside a value"),
    "an unknown type": (unknown(14, bytes(16)), "unknown type 14"),
    "a stop byte with a delta": (b"\x10", "field 8 at offset .* has type 0"),
    "a field id of 17 bits": (b"\x05" + varint(2**16) + b"\0", "does not fit 16 bits"),
    "a negative id of 17 bits": (b"\x05" + varint(2**16 + 1) + b"\0", "does not fit 16 bits"),
    "deltas past 16 bits": (b"\xf1" * 2_200, "does not fit 16 bits"),
    "a field twice": (b"\x06" + zigzag(3) + zigzag(3), "FileMetaData repeats field 3"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_refused(name: str) -> None:
    payload, cause = HOSTILE[name]
    data = appended(payload)
    assert re.search(cause, refusal(data))
    with pytest.raises(DamagedFooter, match=cause):
        footer.parse(data, path=PATH)


def test_nesting_is_allowed_up_to_its_limit() -> None:
    for levels, allowed in ((63, True), (64, False)):
        data = appended(unknown(STRUCT, b"\x1c" * (levels - 1) + bytes(levels)))
        if allowed:
            assert footer.upgrade(data, num_rows=3, path=PATH)
        else:
            assert "nested deeper" in refusal(data)


def retyped(fields: dict[int, Any], number: int, wire: int, value: Any) -> None:
    fields[number] = (wire, value)


def schema(fields: dict[int, Any]) -> list[dict[int, Any]]:
    return fields[2][1][1]


def meta(fields: dict[int, Any], column: int) -> dict[int, Any]:
    return chunks(fields)[column][3][1]


def root_only(fields: dict[int, Any]) -> None:
    """One typed schema element, which is the root, and one chunk of that type."""
    fields[2] = (LIST, (STRUCT, [{1: (I32, 2), 4: (BINARY, b"n")}]))
    del fields[7]
    for group in fields[4][1][1]:
        del group[1][1][1][1:]


DEEP = [{4: (BINARY, b"g"), 5: (I32, 1)}] * 101 + [{1: (I32, 1), 4: (BINARY, b"leaf")}]
DAMAGE: dict[str, tuple[Callable[[dict[int, Any]], Any], str]] = {
    "no version": (lambda f: f.pop(1), "FileMetaData before offset .* lacks field 1"),
    "no schema": (lambda f: f.pop(2), "no schema in front"),
    "no row groups": (lambda f: f.pop(4), "lacks field 4"),
    "an empty schema": (lambda f: schema(f).clear(), "no schema in front"),
    "a short schema": (lambda f: schema(f).pop(), "needs more than"),
    "a long schema": (lambda f: schema(f).append(schema(f)[-1]), "ends before element"),
    "negative children": (lambda f: retyped(schema(f)[2], 5, I32, -1), "element 2 is malformed"),
    "an unknown type": (lambda f: retyped(schema(f)[1], 1, I32, 8), "element 1 is malformed"),
    "an unknown repetition": (lambda f: retyped(schema(f)[1], 3, I32, 3), "element 1 is malformed"),
    "a deep schema": (lambda f: retyped(f, 2, LIST, (STRUCT, DEEP)), "deeper than 100"),
    "a schema behind": (lambda f: f.update({2: f.pop(2)}), "no schema in front"),
    "a row count of another type": (lambda f: retyped(f, 3, I32, 3), "has type 5 instead of 6"),
    "a row count of 65 bits": (lambda f: retyped(f, 3, I64, 2**63), "64 bits at .* overflows"),
    "children of 33 bits": (lambda f: retyped(schema(f)[0], 5, I32, 2**32), "32 bits at .* over"),
    "a leaf for a root": (root_only, "more columns than the schema"),
    "row groups of integers": (
        lambda f: retyped(f, 4, LIST, (I32, [1] * 5)),
        "holds elements of type 5 instead of 12",
    ),
    "a chunk too many": (lambda f: f[4][1][1][0][1][1][1].append(chunks(f)[0]), "more columns"),
    "a chunk too few": (lambda f: f[4][1][1][0][1][1][1].pop(), "row group has 7 columns"),
    "a chunk without metadata": (lambda f: chunks(f)[0].pop(3), "ColumnChunk .* lacks field 3"),
    "another type": (lambda f: retyped(meta(f, 0), 1, I32, 1), "column 0 .* another type"),
    "an unknown codec": (lambda f: retyped(meta(f, 2), 4, I32, 8), "column 2 .* unknown codec"),
    "a short bound": (lambda f: retyped(meta(f, 0)[12][1], 5, BINARY, b"1234567"), "shorter than"),
    "a short fixed bound": (lambda f: retyped(meta(f, 5)[12][1], 6, BINARY, bytes(15)), "shorter"),
    "a long histogram": (
        lambda f: retyped(meta(f, 1)[16][1], 3, LIST, (I64, [1, 2, 3])),
        "column 1 .* size statistics",
    ),
    "a wrong repetition histogram": (
        lambda f: retyped(meta(f, 3)[16][1], 2, LIST, (I64, [1])),
        "column 3 .* size statistics",
    ),
    "sizes of fixed values": (
        lambda f: retyped(meta(f, 1), 16, STRUCT, {1: (I64, 1)}),
        "size stat",
    ),
    "an encrypted column": (lambda f: retyped(chunks(f)[0], 8, STRUCT, {}), "encrypted file"),
    "an encrypted file": (lambda f: retyped(f, 8, STRUCT, {}), "encrypted file"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_footers_whose_parts_do_not_fit_together_are_refused(name: str) -> None:
    damage, cause = DAMAGE[name]
    fields = copy.deepcopy(tree(sample()))
    damage(fields)
    data = encode(fields)
    for call in (
        lambda: footer.parse(data, path=PATH),
        lambda: footer.upgrade(data, num_rows=3, path=PATH),
    ):
        with pytest.raises(DamagedFooter, match=cause):
            call()


# ---- in a process of its own


def test_no_mutated_footer_crashes_or_hangs_a_process(tmp_path: Path) -> None:
    seed = str(random.SystemRandom().getrandbits(32)) if CAMPAIGN else "1"
    seconds = 4 * EFFORT
    sys.stdout.write(f"fuzzing footers with seed {seed} for {seconds} s\n")
    progress = tmp_path / "case"
    progress.write_bytes(bytes(8))
    program = ["-m", "tests.storage.test_footer_fuzz", seed, str(seconds)]
    repeat = f"python {' '.join(program)}"
    try:
        done = subprocess.run(
            [sys.executable, "-W", "error", *program],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"FUZZ_PROGRESS": str(progress)},
            capture_output=True,
            text=True,
            timeout=seconds + 6 * CASE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"hangs: {repeat} {reached(progress)}")
    if done.returncode:
        pytest.fail(f"{done.returncode}: {repeat} {reached(progress)}\n{done.stderr[-2000:]}")
    report = json.loads(done.stdout)
    sys.stdout.write(f"{report}\n")
    assert report["parsed"] > 20
    assert report["refused"] > 20


def reached(progress: Path) -> int:
    return struct.unpack("<Q", progress.read_bytes())[0]


def fuzz(seed: str, seconds: float, only: int | None = None) -> dict[str, Any]:
    """Probe case after case; a crash, a hang or another error than ``DamagedFooter`` ends it."""
    probe(sample().footer)  # what pyarrow maps once is not what a case costs
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    report = {"seed": seed, "cases": 0, "parsed": 0, "refused": 0, "slowest": 0.0}
    progress = os.open(os.environ.get("FUZZ_PROGRESS", os.devnull), os.O_WRONLY)
    deadline = time.monotonic() + seconds
    number = only or 0
    while (started := time.monotonic()) < deadline:
        if os.environ.get("FUZZ_PROGRESS"):
            os.pwrite(progress, struct.pack("<Q", number), 0)
        signal.alarm(CASE_SECONDS)  # its default action ends a process that is stuck in C++
        report[probe(hostile(random.Random(f"{seed}:{number}")))] += 1
        signal.alarm(0)
        report["cases"] += 1
        report["slowest"] = max(report["slowest"], time.monotonic() - started)
        number += 1
        if only is not None:
            break
    return report


if __name__ == "__main__":
    only_case = int(sys.argv[3]) if len(sys.argv) > 3 else None
    sys.stdout.write(json.dumps(fuzz(sys.argv[1], float(sys.argv[2]), only_case)) + "\n")
