"""What writes to a terminal that goes away ends in order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.console import Console

from lakebed.demo.terminals import ClosableTerminal


def test_what_is_written_to_a_terminal_that_is_gone_is_no_error() -> None:
    window, terminal = os.openpty()
    with os.fdopen(terminal, "w") as stream:
        console = Console(file=ClosableTerminal(stream))  # type: ignore[arg-type]
        assert console.is_terminal
        console.print("it is there")
        assert os.read(window, 1000).startswith(b"it is there")
        os.close(window)
        console.print("it is gone")
        console.print("and stays so")


def test_other_errors_stay_errors(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        with pytest.raises(OSError, match="No space"):
            Console(file=ClosableTerminal(full)).print("more")  # type: ignore[arg-type]
        os.dup2(os.open(tmp_path / "enough", os.O_CREAT | os.O_WRONLY), full.fileno())
