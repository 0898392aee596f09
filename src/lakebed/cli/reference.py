"""Prints the reference of the command line, made from the commands themselves: `make docs` writes
it to docs/cli.md, and a test compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer

from lakebed.cli.main import app
from lakebed.settings import FILE_NAME, FILE_VARIABLE, Settings, spell, variable

_HEAD = """# The command line

This page is made from the code: `make docs`.

`lakebed` prints data on stdout and talk on stderr. `--json` turns tables into one JSON document
whose keys are a contract: they are only ever added to. Instants are ISO 8601 in UTC. A TIME that
you give is `1h` or `7d` (so long ago), `now`, `today`, `yesterday`, a date, or ISO 8601 with a zone
([all spellings](concepts.md#spelling-times)). Commands that condemn or delete show their plan and
act only with `--yes`.

| exit code | meaning |
| --- | --- |
| 0 | done; an empty answer is an answer |
| 1 | the lake is damaged, or something failed |
| 2 | the call was wrong; nothing was attempted |
| 3 | what was named does not exist |
| 4 | conflict, or refused unless asked for by name; nothing happened |
| 5 | done in part; the messages say what was left |
| 69 | the catalog or the store is unavailable or cannot be written, or a port is taken; try again |
| 130 | interrupted |
| 143 | ended by SIGTERM, in the same order as by an interrupt; `serve` and `demo` end with 0 |
"""


def lines() -> Iterator[str]:
    """The page, line by line."""
    yield _HEAD
    root = typer.main.get_command(app)
    yield from _command(root, "lakebed")
    yield "## Settings"
    yield ""
    yield "An option goes before the environment variable, the variable before the line of the"
    yield "settings file, the file before the default; see [operating.md](operating.md)."
    yield ""
    yield "| variable | in the file | default | meaning |"
    yield "| --- | --- | --- | --- |"
    yield f"| `{FILE_VARIABLE}` | | `{FILE_NAME}`, if there is one | The settings file. |"
    for name, field in Settings.model_fields.items():
        default = "" if field.default in ("", None) else f"`{spell(field.default)}`"
        yield f"| `{variable(name)}` | `{name}` | {default} | {field.description} |"
    yield ""
    yield "S3 stores take `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION` and, for other"
    yield "servers than AWS's, `AWS_ENDPOINT_URL`, as every S3 client does."


def _command(command: Any, path: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name in command.commands:
            yield from _command(command.commands[name], f"{path} {name}")
        return
    yield f"## {path}"
    yield ""
    yield _help(command)
    yield ""
    with typer.Context(command, info_name=path) as context:
        yield f"    {path} {' '.join(command.collect_usage_pieces(context))}"
        yield ""
        rows = [
            record
            for parameter in command.get_params(context)
            if (record := parameter.get_help_record(context)) is not None
        ]
    if rows:
        yield "| option | meaning |"
        yield "| --- | --- |"
        for names, meaning in rows:
            yield f"| `{names}` | {meaning} |".replace("…|", "…\\|")
        yield ""


def _help(command: Any) -> str:
    """The help text with its examples as code."""
    shown = []
    for block in (command.help or "").strip().split("\n\n"):
        text = " ".join(line.strip() for line in block.splitlines())
        examples = text.split("Example: ")
        if examples[0].strip():
            shown.append(examples[0].strip())
        shown += [f"    {example.strip()}" for example in examples[1:]]
    return "\n\n".join(shown)


def main() -> None:
    """Print the page."""
    sys.stdout.write("\n".join(lines()).rstrip() + "\n")


if __name__ == "__main__":
    main()
