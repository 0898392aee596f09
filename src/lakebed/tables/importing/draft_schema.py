"""A schema for a table that does not exist yet, drafted from the columns of the files that are to
be taken into it. Where files disagree, most of them are right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakebed.errors import BadInput, BadSchema
from lakebed.model.tables.declaration import parse_schema
from lakebed.model.tables.schema import TableSchema
from lakebed.tables.importing.paths import TIME_FOLDERS, Folders
from lakebed.tables.insert.convert_columns import find_foreign, is_list
from lakebed.tables.schema.infer_schema import propose_schema

if TYPE_CHECKING:
    import pyarrow as pa

NOTHING = ""
"""The kind of a column that has only NULL."""


def kind_of_field(given: pa.Field) -> str | None:
    """The same as `kind_of` its type, unless it says that only somebody else knows that."""
    return kind_of(given.type) if find_foreign(given.type, given.metadata) is None else None


def kind_of(given: pa.DataType) -> str | None:
    """The type that a table's column has to hold such values as they are; `NOTHING` if there is
    only NULL to hold, None if no column can."""
    import pyarrow as pa

    types = pa.types
    if isinstance(given, pa.BaseExtensionType):
        return kind_of(given.storage_type) if find_foreign(given) is None else None
    if types.is_dictionary(given) or types.is_run_end_encoded(given):
        return kind_of(given.value_type)
    if is_list(given):
        item = kind_of(given.value_type)
        if item is None:
            return None
        return "json[]" if item.endswith("[]") else f"{item or 'string'}[]"
    told: dict[str, bool] = {
        NOTHING: types.is_null(given),
        "bool": types.is_boolean(given),
        "int": types.is_integer(given),
        "float": types.is_floating(given),
        "datetime": types.is_timestamp(given) or types.is_date(given),
        "string": types.is_string(given)
        or types.is_large_string(given)
        or types.is_string_view(given),
        "json": types.is_struct(given) or types.is_map(given),
    }
    return next((kind for kind, is_it in told.items() if is_it), None)


@dataclass(slots=True)
class Draft:
    """The columns that some files have between them."""

    kinds: dict[str, str] = field(default_factory=dict)
    """The type of each, in the order of the files."""
    files: Counter[str] = field(default_factory=Counter)
    """How many files have it."""

    def list_times(self, wished: str | None) -> list[str]:
        """The columns of which one is the time of a row: the wished one, or all that hold times and
        are not rare, or if there is none, all that there are."""
        if wished is not None:
            if wished not in self.kinds:
                raise BadInput(
                    f"no file has a column {wished!r} that could be the time",
                    hint=f"there are {', '.join(self.kinds)}",
                )
            return [wished]
        times = [name for name, kind in self.kinds.items() if kind == "datetime"]
        most = max((self.files[name] for name in times), default=0)
        return [name for name in times if 2 * self.files[name] > most] or list(self.kinds)

    def choose_time(
        self, wished: str | None, samples: Sequence[Mapping[str, Any]]
    ) -> tuple[str, str | None]:
        """The column that is the time of a row, and what it counts if it is a number, guessed as
        for a schema that is proposed; `BadInput` if none holds times."""
        names = self.list_times(wished)
        # Of a column that was asked for, the name says nothing.
        spelled = {name: name if wished is None else "time" for name in names}
        usual = [each for each in samples if self._is_usual(each, names)] or samples
        records = [{spelled[name]: each.get(name) for name in names} for each in usual]
        try:
            proposed = propose_schema(records)["columns"]
        except BadInput:
            if names and self.kinds[names[0]] == "datetime":
                return names[0], None
            which = "no column" if wished is None else f"column {wished}"
            told = "holds times" if wished is None else "does not hold times"
            raise BadInput(
                f"{which} of the files {told}, and a table needs one that does",
                hint="name the time column, or make the table first and say what its numbers count",
            ) from None
        chosen = next(name for name in names if proposed[spelled[name]].get("time"))
        return chosen, proposed[spelled[chosen]].get("unit")

    def _is_usual(self, sample: Mapping[str, Any], names: Sequence[str]) -> bool:
        """Whether a sample is of a file that has these columns with their usual types."""
        times = [name for name in names if self.kinds[name] == "datetime"]
        return all(name in sample and isinstance(sample[name], datetime | None) for name in times)

    def finish(self, time: str, unit: str | None, unique: Sequence[str]) -> TableSchema:
        """The schema with this column as the time, counted in this unit if it is a number."""
        missing = [name for name in unique if name not in self.kinds]
        if missing:
            raise BadInput(
                f"no file has a column {', '.join(missing)} that could be unique",
                hint=f"there are {', '.join(self.kinds)}",
            )
        columns: dict[str, dict[str, Any]] = {
            name: {"type": kind, "unique": name in unique} for name, kind in self.kinds.items()
        }
        columns[time] |= {"type": "datetime", "time": True, "unit": unit}
        return parse_schema({"columns": columns})


def draft_columns(files: Sequence[tuple[pa.Schema, Folders]], wanted: Sequence[str] = ()) -> Draft:
    """The columns of files and of the folders around them. A folder that only tells the time is
    left out unless it is ``wanted``, as is what no table can have."""
    seen: dict[str, Counter[str]] = {}
    for schema, _ in files:
        for each in schema:
            kind = kind_of_field(each)
            if kind:
                seen.setdefault(each.name, Counter())[kind] += 1
    named = {each.name for schema, _ in files for each in schema}
    for name, values in _gather(files).items():
        if name not in named and (name in wanted or name.lower() not in TIME_FOLDERS):
            kind = "int" if all(map(_is_count, values)) else "string"
            seen[name] = Counter({kind: len(files)})
    draft = Draft()
    taken: set[str] = set()
    for name in sorted(seen, key=lambda each: -seen[each].total()):  # of like names, the usual one
        if name.lower() not in taken and _can_be_named(name):
            taken.add(name.lower())
            draft.files[name] = seen[name].total()
            draft.kinds[name] = _agree(seen[name])
    draft.kinds = {name: draft.kinds[name] for name in seen if name in draft.kinds}
    return draft


def _gather(files: Sequence[tuple[pa.Schema, Folders]]) -> Mapping[str, set[str]]:
    """The values in folders, by name; of several spellings the one in small letters, which needs
    no quotes, or the first."""
    found: dict[str, set[str]] = {}
    names: dict[str, str] = {}
    for _, folders in files:
        for name, value in folders.items():
            small = name.lower()
            names[small] = name if name == small else names.get(small, name)
            found.setdefault(small, set()).update([] if value is None else [value])
    return {names[small]: values for small, values in found.items()}


def _is_count(value: str) -> bool:
    """Whether a number is all that the text is: 007 is not."""
    return value.removeprefix("-").isdecimal() and str(int(value)) == value and len(value) < 19


def _agree(kinds: Counter[str]) -> str:
    """What most files have; whole numbers go with others."""
    for whole, wider in (("int", "float"), ("int[]", "float[]")):
        if kinds[wider]:
            kinds[wider] += kinds.pop(whole, 0)
    return kinds.most_common(1)[0][0]


def _can_be_named(name: str) -> bool:
    try:
        parse_schema({"columns": {name: "datetime"}})
    except BadSchema:
        return False
    return True
