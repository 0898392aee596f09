"""The part of docs/views.md that is made from the code: every built-in view set with its columns.
`make docs` writes it into the page, and a test compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from lakebed.model.source import describe_source
from lakebed.views.builtin import COLUMNS, built_in

MARK = "<!-- From here on this page is made from the code: make docs -->"


def lines() -> Iterator[str]:
    """Return the reference of the built-in view sets, line by line."""
    for view_set in built_in():
        yield f"### {view_set.name}"
        yield ""
        sort_order = ", ".join(f"`{column}`" for column in view_set.sort_order)
        yield (
            f"Made of {describe_source(view_set.source)}; its time is `{view_set.time_column}`; "
            f"sorted by {sort_order}."
        )
        yield ""
        yield "| column | type | meaning |"
        yield "| --- | --- | --- |"
        for field in view_set.schema:
            meaning = COLUMNS[view_set.name][field.name].replace("|", "\\|")
            yield f"| `{field.name}` | {field.type} | {meaning} |"
        yield ""


def rewrite(page: str) -> str:
    """Return the page with everything after the mark replaced."""
    prose = page.split(MARK)[0]
    return f"{prose}{MARK}\n\n" + "\n".join(lines()).rstrip() + "\n"


def main() -> None:
    """Rewrite the page that the arguments name."""
    page = Path(sys.argv[1])
    page.write_text(rewrite(page.read_text()))


if __name__ == "__main__":
    main()
