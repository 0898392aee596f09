"""Output to a terminal that may close while a program writes to it."""

from __future__ import annotations

import errno
import os
from typing import Any, TextIO


class ClosableTerminal:
    """A stream to a terminal that may close. After that, output is discarded without an error, so
    that the program can end in order when the signal arrives, which may be later."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._require_gone(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._require_gone(error)

    def _require_gone(self, error: OSError) -> None:
        if error.errno != errno.EIO:
            raise error
        write_nowhere(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def write_nowhere(stream: TextIO) -> None:
    """Discard all output to a stream from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
