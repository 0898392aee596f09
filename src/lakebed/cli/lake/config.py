"""`lakebed config`: which settings hold here, and where each comes from."""

from __future__ import annotations

from pathlib import Path

from lakebed.cli import output
from lakebed.cli.options import HERE, JsonOption, LakeOption
from lakebed.errors import BadInput


def config(lake: LakeOption = HERE, as_json: JsonOption = False) -> None:
    """Show every setting, its value and where it comes from: an option, an environment variable,
    the settings file, or the default.

    The file is the one that LAKEBED_CONFIG names, or lakebed.toml in the current folder. Passwords
    are not shown. Exit code 2 if a setting is wrong; every wrong one is named.

    Example: lakebed config

    Example: lakebed config --json
    """
    from pydantic import SecretStr

    from lakebed.settings import Settings, look_up, spell, unknown_variables, variable

    reading = look_up(lake=lake or None)
    for name, meant in unknown_variables().items():
        instead = f"; did you mean {meant}?" if meant else ""
        output.say(f"note: {name} is no setting{instead}")
    if reading.problems:
        for problem in reading.problems[1:]:
            output.say(f"error: {problem}")
        raise BadInput(reading.problems[0], hint="the settings are listed in docs/cli.md")
    rows = []
    for name, field in Settings.model_fields.items():
        value = getattr(reading.settings, name)
        text = spell(value) if isinstance(value, str | Path | SecretStr) else value
        origin = reading.origins[name]
        if as_json:
            source = {"origin": origin.kind.value, "place": origin.place or None}
            more = {"variable": variable(name), "default": field.default}
            rows.append({"name": name, "value": text, **source, **more})
        else:
            text = "-" if value is None else spell(value)
            rows.append({"name": name, "value": text, "origin": str(origin)})
        rows[-1]["description"] = field.description
    output.show(rows, as_json=as_json, empty="there are no settings")
    if not as_json:
        where = "there is no settings file" if reading.file is None else f"file: {reading.file}"
        output.say(where)
