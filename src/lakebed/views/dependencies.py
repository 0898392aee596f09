"""Dependencies between view sets, and the kinds of blocks that each is finally built from."""

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
    """Return the view sets with sources before their readers, otherwise by name. `BadInput` for a
    cycle."""
    by_name = {
        view_set.name: view_set
        for view_set in sorted(view_sets, key=lambda view_set: view_set.name)
    }
    sorter = TopologicalSorter(
        {name: _reads(view_set) & by_name.keys() for name, view_set in by_name.items()}
    )
    try:
        return [by_name[name] for name in sorter.static_order()]
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        raise BadInput(
            f"view sets read each other in a circle: {circle}",
            hint="let one of them read something else",
        ) from None


def plan_dependents(evolved: ViewSet, candidates: Sequence[ViewSet]) -> list[ViewSet]:
    """Return the SQL view sets that read an evolved one, directly or not, each in a new version
    that reads the new schema."""
    hashes = {evolved.name: evolved.schema_hash}
    dependents: list[ViewSet] = []
    for candidate in in_dependency_order(candidates):
        source = candidate.source
        if candidate.name == evolved.name or not isinstance(source, SqlSource):
            continue
        if not _reads(candidate) & hashes.keys():
            continue
        reads = tuple((name, hashes.get(name, schema_hash)) for name, schema_hash in source.reads)
        new = replace(candidate, version=candidate.version + 1, source=replace(source, reads=reads))
        hashes[new.name] = new.schema_hash
        dependents.append(new)
    return dependents


def list_readers(name: str, view_sets: Iterable[ViewSet]) -> list[str]:
    """Return the view sets whose SQL reads this one, by name."""
    return sorted(view_set.name for view_set in view_sets if name in _reads(view_set))


def _reads(view_set: ViewSet) -> set[str]:
    return set(view_set.source.names) if isinstance(view_set.source, SqlSource) else set()


def list_encodings(view_set: ViewSet) -> tuple[str, ...] | None:
    """Return the encodings of the blocks that a block view set is built from; None for all."""
    assert isinstance(view_set.source, BlockSource)  # noqa: S101
    decoder = view_set.source.decoder
    return None if decoder == "blocks" else encodings_of(Signal(decoder))


@dataclass(frozen=True, slots=True)
class Sources:
    """The kinds of blocks that a view set is built from, directly or through other view sets."""

    every: bool
    encodings: tuple[str, ...]


def find_sources(view_set: ViewSet, active: Mapping[str, ViewSet]) -> Sources:
    """Return the kinds of blocks that a view set's rows finally come from."""
    if isinstance(view_set.source, BlockSource):
        encodings = list_encodings(view_set)
        return Sources(encodings is None, encodings or ())
    every, needed = False, set[str]()
    if isinstance(view_set.source, SqlSource):
        for name in view_set.source.names:
            below = find_sources(active[name], active)
            every |= below.every
            needed |= set(below.encodings)
    return Sources(every, tuple(sorted(needed)))
