"""The samples' source of variety: one seeded source of numbers, skewed choices, ids, and a clock
that only moves when records are made.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import log as _log
from typing import Generic, TypeVar

T = TypeVar("T")

_SLOTS = 1024


class Skewed(Generic[T]):
    """Picks by Zipf's law: the first value most often, the last ones rarely, all of them sometimes.

    The values are laid out in a table beforehand, so that a pick costs one look-up.
    """

    def __init__(self, values: Sequence[T], exponent: float = 1.1) -> None:
        weights = [1 / rank**exponent for rank in range(1, len(values) + 1)]
        scale = _SLOTS / sum(weights)
        self._table: list[T] = []
        for value, weight in zip(values, weights, strict=True):
            self._table += [value] * max(1, round(weight * scale))
        self._size = len(self._table)

    def pick(self, chance: Chance) -> T:
        return self._table[int(chance.random() * self._size)]


class Chance:
    """A seeded source of numbers and the samples' clock."""

    def __init__(self, seed: int, begin_ns: int) -> None:
        self._source = random.Random(seed)  # noqa: S311 - samples, not secrets
        self.now_ns = begin_ns
        self.random = self._source.random
        self.choice = self._source.choice
        self.shuffle = self._source.shuffle
        self._bits = self._source.getrandbits
        self._recent: list[tuple[bytes, bytes]] = []

    def below(self, limit: int) -> int:
        """A whole number from 0 up to, not including, the limit."""
        return int(self.random() * limit)

    def happens(self, probability: float) -> bool:
        return self.random() < probability

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.random()

    def heavy(self, scale: float) -> float:
        """A positive number with a long tail: usually near the scale, rarely far above it."""
        return scale * self._source.paretovariate(1.6)

    def trace_id(self) -> bytes:
        return self._bits(128).to_bytes(16, "big")

    def span_id(self) -> bytes:
        return self._bits(64).to_bytes(8, "big")

    def random_bytes(self, count: int) -> bytes:
        return self._source.randbytes(count)

    def request_id(self) -> str:
        """An id inside a text; of fixed width, so that a template can exchange it in place."""
        return f"req-{self._bits(48):012x}"

    def pass_time(self, mean_ns: float) -> int:
        """Lets about this much time pass and returns the instant reached."""
        self.now_ns += 1 + int(-mean_ns * _log(1.0 - self.random()))
        return self.now_ns

    def remember(self, trace_id: bytes, span_id: bytes) -> None:
        """Keeps a span that later logs, links and exemplars can refer to."""
        if len(self._recent) < 64:
            self._recent.append((trace_id, span_id))
        else:
            self._recent[self.below(64)] = (trace_id, span_id)

    def context(self) -> tuple[bytes, bytes]:
        """A trace and a span id: mostly of a span that was made before, if there is one."""
        if not self._recent or self.happens(0.1):
            self.remember(self.trace_id(), self.span_id())
        return self._recent[self.below(len(self._recent))]
