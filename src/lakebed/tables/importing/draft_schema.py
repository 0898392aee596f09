"""A schema for a table that does not exist yet, drafted from the columns of the files to
import. Where files disagree, the most frequent type wins.
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


def kind_of_field(field: pa.Field) -> str | None:
    """Return `kind_of` the field's type, or None for an extension type that is not supported."""
    return kind_of(field.type) if find_foreign(field.type, field.metadata) is None else None


def kind_of(data_type: pa.DataType) -> str | None:
    """Return the column type that stores such values unchanged: `NOTHING` for a type that holds
    only NULL, None if no column type can."""
    import pyarrow as pa

    types = pa.types
    if isinstance(data_type, pa.BaseExtensionType):
        return kind_of(data_type.storage_type) if find_foreign(data_type) is None else None
    if types.is_dictionary(data_type) or types.is_run_end_encoded(data_type):
        return kind_of(data_type.value_type)
    if is_list(data_type):
        item = kind_of(data_type.value_type)
        if item is None:
            return None
        return "json[]" if item.endswith("[]") else f"{item or 'string'}[]"
    checks: dict[str, bool] = {
        NOTHING: types.is_null(data_type),
        "bool": types.is_boolean(data_type),
        "int": types.is_integer(data_type),
        "float": types.is_floating(data_type),
        "datetime": types.is_timestamp(data_type) or types.is_date(data_type),
        "string": types.is_string(data_type)
        or types.is_large_string(data_type)
        or types.is_string_view(data_type),
        "json": types.is_struct(data_type) or types.is_map(data_type),
    }
    return next((kind for kind, holds in checks.items() if holds), None)


@dataclass(slots=True)
class Draft:
    """The columns of all files together."""

    kinds: dict[str, str] = field(default_factory=dict)
    """The type of each column, in the order of the files."""
    files: Counter[str] = field(default_factory=Counter)
    """The number of files that have each column."""

    def list_times(self, requested: str | None) -> list[str]:
        """Return the candidates for the time column: the requested one, or all frequent columns
        that hold times, or all columns if none holds times."""
        if requested is not None:
            if requested not in self.kinds:
                raise BadInput(
                    f"no file has a column {requested!r} that could be the time",
                    hint=f"there are {', '.join(self.kinds)}",
                )
            return [requested]
        times = [name for name, kind in self.kinds.items() if kind == "datetime"]
        max_files = max((self.files[name] for name in times), default=0)
        return [name for name in times if 2 * self.files[name] > max_files] or list(self.kinds)

    def choose_time(
        self, requested: str | None, samples: Sequence[Mapping[str, Any]]
    ) -> tuple[str, str | None]:
        """Return the time column and, if it holds numbers, their unit, guessed as for a proposed
        schema. Raise `BadInput` if no column holds times."""
        names = self.list_times(requested)
        # The name of a requested column must not influence the guess.
        sample_names = {name: name if requested is None else "time" for name in names}
        usual = [sample for sample in samples if self._is_usual(sample, names)] or samples
        records = [{sample_names[name]: sample.get(name) for name in names} for sample in usual]
        try:
            proposed = propose_schema(records)["columns"]
        except BadInput:
            if names and self.kinds[names[0]] == "datetime":
                return names[0], None
            subject = "no column" if requested is None else f"column {requested}"
            problem = "holds times" if requested is None else "does not hold times"
            raise BadInput(
                f"{subject} of the files {problem}, and a table needs one that does",
                hint="name the time column, or make the table first and say what its numbers count",
            ) from None
        time_column = next(name for name in names if proposed[sample_names[name]].get("time"))
        return time_column, proposed[sample_names[time_column]].get("unit")

    def _is_usual(self, sample: Mapping[str, Any], names: Sequence[str]) -> bool:
        """Return True if the sample has all these columns and the time columns hold times."""
        times = [name for name in names if self.kinds[name] == "datetime"]
        return all(name in sample and isinstance(sample[name], datetime | None) for name in times)

    def finish(self, time: str, unit: str | None, unique: Sequence[str]) -> TableSchema:
        """Return the schema with this time column; ``unit`` is that of a numeric one."""
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


def draft_columns(
    files: Sequence[tuple[pa.Schema, Folders]], requested_names: Sequence[str] = ()
) -> Draft:
    """Return the columns of the files and of the folders around them. Time folders are left out
    unless requested; columns that no table can have are always left out."""
    kinds_by_name: dict[str, Counter[str]] = {}
    for schema, _ in files:
        for column in schema:
            kind = kind_of_field(column)
            if kind:
                kinds_by_name.setdefault(column.name, Counter())[kind] += 1
    file_columns = {field.name for schema, _ in files for field in schema}
    for name, values in _gather(files).items():
        if name not in file_columns and (
            name in requested_names or name.lower() not in TIME_FOLDERS
        ):
            kind = "int" if all(map(_is_count, values)) else "string"
            kinds_by_name[name] = Counter({kind: len(files)})
    draft = Draft()
    used_names: set[str] = set()
    for name in sorted(
        kinds_by_name, key=lambda candidate: -kinds_by_name[candidate].total()
    ):  # of like names, the usual one
        if name.lower() not in used_names and _can_be_named(name):
            used_names.add(name.lower())
            draft.files[name] = kinds_by_name[name].total()
            draft.kinds[name] = _agree(kinds_by_name[name])
    draft.kinds = {name: draft.kinds[name] for name in kinds_by_name if name in draft.kinds}
    return draft


def _gather(files: Sequence[tuple[pa.Schema, Folders]]) -> Mapping[str, set[str]]:
    """Return the values in folders by name. Spellings that differ in case become one name: the one
    in lower case, which needs no quotes, or the first."""
    values_by_name: dict[str, set[str]] = {}
    names: dict[str, str] = {}
    for _, folders in files:
        for name, value in folders.items():
            small = name.lower()
            names[small] = name if name == small else names.get(small, name)
            values_by_name.setdefault(small, set()).update([] if value is None else [value])
    return {names[small]: values for small, values in values_by_name.items()}


def _is_count(value: str) -> bool:
    """Return True if the text is a canonical 64-bit integer; ``007`` is not."""
    return value.removeprefix("-").isdecimal() and str(int(value)) == value and len(value) < 19


def _agree(kinds: Counter[str]) -> str:
    """Return the most frequent type; integers count as floats if any file has floats."""
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
