"""Define SQL view sets: the changes that declarations would make, or all their problems. View
sets that read a changed one, directly or not, change with it, or the definition is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakebed.errors import BadDefinition, BadInput
from lakebed.model.source import SqlSource
from lakebed.model.view_set import ViewSet
from lakebed.views.dependencies import in_dependency_order
from lakebed.views.registry import Change
from lakebed.views.sql import rules as sql
from lakebed.views.sql.analysis import Engines, analyse, as_view_set
from lakebed.views.sql.declaration import SqlView
from lakebed.views.sql.rules import Parsed


@dataclass(frozen=True, slots=True)
class Definition:
    """The planned state of one view set."""

    view_set: ViewSet
    change: Change
    because_of: str | None = None
    """The changed view set that it reads, if it is not declared itself."""


def plan_definitions(
    declarations: Sequence[SqlView],
    active: Mapping[str, ViewSet],
    built_in: Mapping[str, ViewSet],
    engines: Engines,
) -> list[Definition]:
    """Return the effect of each definition, sources before their readers. `BadDefinition` with all
    problems. SQL that is active already is not analysed again."""
    plan = _Plan(
        {view.name: view for view in declarations}, active, {**built_in, **active}, engines
    )
    counted = Counter(view.name for view in declarations)
    problems = [f"{name}: is declared twice" for name, count in counted.items() if count > 1]
    for view in declarations:
        problems += plan.check(view, built_in)
    if not problems:
        plan.derive_all()
    if problems or plan.problems:
        raise BadDefinition(problems or plan.problems)
    return plan.definitions


@dataclass(slots=True)
class _Plan:
    declarations: Mapping[str, SqlView]
    active: Mapping[str, ViewSet]
    existing: Mapping[str, ViewSet]
    """The active view sets, and the built-in ones that are not registered yet."""
    engines: Engines
    problems: list[str] = field(default_factory=list)
    definitions: list[Definition] = field(default_factory=list)

    # ---- checks without an engine

    def check(self, view: SqlView, built_in: Mapping[str, ViewSet]) -> Iterator[str]:
        yield from view.find_problems()
        yield from self._check_name(view.name, built_in)
        parsed_sql, merged = sql.parse(view.sql), sql.parse(view.merge_sql)
        view_set_names = {*self.existing, *self.declarations}
        for what, parsed in (("sql", parsed_sql), ("merge_sql", merged)):
            for problem in parsed.problems:
                yield f"{view.name}: {what} {problem}"
            for name in sorted(parsed.own & view_set_names):
                yield f"{view.name}: {what} calls a part of itself {name}, which is a view set"
        for cut in parsed_sql.cuts:
            yield f"{view.name}: sql has {cut} in it, and what it leaves of parts does not add up"
        if parsed_sql.compares:
            yield (
                f"{view.name}: sql has an aggregate in a subquery, which is another one for each "
                "part; compare with it in statements that read the view set"
            )
        if merged.filters:
            yield (
                f"{view.name}: merge_sql leaves rows out, which may become more with later parts; "
                "leave them out in sql, or in statements that read the view set"
            )
        if "\\" in view.merge_sql:
            yield f"{view.name}: merge_sql has a \\ in it, which the engines read differently"
        if not parsed_sql.problems:
            yield from self._check_reads(view.name, parsed_sql)
        if not merged.problems and set(merged.reads) != {view.name}:
            read = ", ".join(merged.reads) or "nothing"
            yield f"{view.name}: merge_sql must read {view.name} itself and only that, not {read}"

    def _check_name(self, name: str, built_in: Mapping[str, ViewSet]) -> Iterator[str]:
        if name in built_in:
            yield (
                f"{name}: is built in, and programs count on its columns; "
                "define another view set that reads it"
            )
        elif name in self.active and not isinstance(self.active[name].source, SqlSource):
            yield (
                f"{name}: exists, and programs publish its rows; choose another name, or forget "
                f"it with: lakebed views remove {name}"
            )

    def _check_reads(self, name: str, parsed: Parsed) -> Iterator[str]:
        readable = {*self.existing, *self.declarations} - {name}
        if not parsed.reads:
            yield f"{name}: sql reads no view set"
        for read in parsed.reads:
            if read == name:
                yield f"{name}: sql reads {name} itself; that is for merge_sql"
            elif read not in readable:
                readable_text = ", ".join(sorted(readable))
                yield f"{name}: sql reads {read}, which is no view set; there are {readable_text}"
            elif read not in self.declarations and self.existing[read].source is None:
                yield (
                    f"{name}: sql reads {read}, whose rows programs publish and replace as they "
                    "like; only what is built from blocks can be read"
                )

    # ---- what the engines say

    def derive_all(self) -> None:
        """Derive every declared view set, and those that read a changed one, in dependency
        order."""
        try:
            order = in_dependency_order(self._outline())
        except BadInput as error:
            self.problems.append(f"{error}; {error.hint}")
            return
        now = {
            name: view_set
            for name, view_set in self.existing.items()
            if name not in self.declarations
        }
        changed, failed = set[str](), set[str]()
        for outline in order:
            name, reads = outline.name, _reads(outline)
            cause = next((read for read in reads if read in changed), None)
            if failed & set(reads):
                failed.add(name)  # its cause is reported already
                continue
            if name not in self.declarations and cause is None:
                continue
            definition = self._derive(name, {read: now[read] for read in reads}, cause)
            if definition is None:
                failed.add(name)
                continue
            self.definitions.append(definition)
            now[name] = definition.view_set
            if definition.change is Change.EVOLVED:
                changed.add(name)

    def _outline(self) -> list[ViewSet]:
        """Return all future view sets; of declared ones, only the name and the sources matter."""
        import pyarrow as pa

        outlines = {}
        for name, view in self.declarations.items():
            schema = pa.schema([(view.time_column, pa.timestamp("us", "UTC"))])
            reads = tuple((read, b"") for read in sql.parse(view.sql).reads)
            source = SqlSource(view.sql, view.merge_sql, reads)
            outlines[name] = ViewSet(name, 1, schema, view.time_column, source=source)
        return list({**self.existing, **outlines}.values())

    def _derive(
        self, name: str, sources: Mapping[str, ViewSet], cause: str | None
    ) -> Definition | None:
        declared = self.declarations.get(name)
        active = self.active.get(name)
        view = declared or SqlView.of(self.existing[name])
        try:
            view_set = self._find_unchanged(view, active, sources) or analyse(
                view, active.version if active else 1, sources, self.engines
            )
        except BadDefinition as error:
            before = f"{name}: "
            if declared is None:
                before += f"reads {cause} and would not work any more: "
            self.problems += [f"{before}{problem}" for problem in error.problems]
            return None
        change = _compare(active, view_set)
        if change is Change.EVOLVED:
            view_set = replace(view_set, version=view_set.version + 1)
        return Definition(view_set, change, None if declared else cause)

    @staticmethod
    def _find_unchanged(
        view: SqlView, active: ViewSet | None, sources: Mapping[str, ViewSet]
    ) -> ViewSet | None:
        """Return the view set if no part that needs an engine has changed."""
        if active is None:
            return None
        try:
            same = as_view_set(view, active.version, active.schema, sources)
        except BadInput:  # another time column or sort order, which these columns do not allow
            return None
        return same if same.source == active.source else None


def _compare(active: ViewSet | None, derived: ViewSet) -> Change:
    if active is None:
        return Change.CREATED
    if derived.schema_hash != active.schema_hash or derived.time_column != active.time_column:
        return Change.EVOLVED
    return Change.UNCHANGED if derived == active else Change.AMENDED


def _reads(view_set: ViewSet) -> tuple[str, ...]:
    return view_set.source.names if isinstance(view_set.source, SqlSource) else ()
