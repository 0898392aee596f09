"""Which view sets are made of which others, and in the end of which blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from lakebed.errors import BadInput
from lakebed.model.block import encodings_of
from lakebed.model.signal import Signal
from lakebed.model.source import BlockSource, SqlSource
from lakebed.model.view_set import ViewSet


def in_dependency_order(view_sets: Iterable[ViewSet]) -> list[ViewSet]:
    """What is read comes before its readers; otherwise by name. `BadInput` for a circle."""
    known = {each.name: each for each in sorted(view_sets, key=lambda each: each.name)}
    sorter = TopologicalSorter({name: _reads(each) & known.keys() for name, each in known.items()})
    try:
        return [known[name] for name in sorter.static_order()]
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        raise BadInput(
            f"view sets read each other in a circle: {circle}",
            hint="let one of them read something else",
        ) from None


def plan_dependents(evolved: ViewSet, others: Sequence[ViewSet]) -> list[ViewSet]:
    """The SQL view sets that read an evolved one, directly or not, each in a new version that
    reads the new schema."""
    hashes = {evolved.name: evolved.schema_hash}
    dependents: list[ViewSet] = []
    for each in in_dependency_order(others):
        source = each.source
        if each.name == evolved.name or not isinstance(source, SqlSource):
            continue
        if not _reads(each) & hashes.keys():
            continue
        reads = tuple((name, hashes.get(name, known)) for name, known in source.reads)
        new = replace(each, version=each.version + 1, source=replace(source, reads=reads))
        hashes[new.name] = new.schema_hash
        dependents.append(new)
    return dependents


def list_readers(name: str, view_sets: Iterable[ViewSet]) -> list[str]:
    """The view sets whose SQL reads this one, by name."""
    return sorted(each.name for each in view_sets if name in _reads(each))


def _reads(view_set: ViewSet) -> set[str]:
    return set(view_set.source.names) if isinstance(view_set.source, SqlSource) else set()


def list_encodings(view_set: ViewSet) -> tuple[str, ...] | None:
    """Which blocks a block view set is made of; None for all."""
    assert isinstance(view_set.source, BlockSource)  # noqa: S101
    decoder = view_set.source.decoder
    return None if decoder == "blocks" else encodings_of(Signal(decoder))


@dataclass(frozen=True, slots=True)
class Sources:
    """The blocks behind a view set, however many view sets are between."""

    every: bool
    encodings: tuple[str, ...]


def find_sources(view_set: ViewSet, active: Mapping[str, ViewSet]) -> Sources:
    """Which blocks a view set's rows come from in the end."""
    if isinstance(view_set.source, BlockSource):
        encodings = list_encodings(view_set)
        return Sources(encodings is None, encodings or ())
    every, found = False, set[str]()
    if isinstance(view_set.source, SqlSource):
        for name in view_set.source.names:
            below = find_sources(active[name], active)
            every |= below.every
            found |= set(below.encodings)
    return Sources(every, tuple(sorted(found)))
