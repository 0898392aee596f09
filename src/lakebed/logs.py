"""Log records as JSON lines. The library only logs, through the logger ``lakebed`` and with its
figures as extra fields; nothing is printed unless somebody asks for it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

LOGGER = "lakebed"
_NOT_EXTRA = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}


def read_extra(record: logging.LogRecord) -> dict[str, Any]:
    """The figures that were logged with a message."""
    return {name: value for name, value in record.__dict__.items() if name not in _NOT_EXTRA}


class JsonLines(logging.Formatter):
    """One object for each record: what every record has, and then its extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        moment = datetime.fromtimestamp(record.created, UTC)
        said: dict[str, Any] = {
            "time": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
            "thread": record.threadName,
        }
        for name, value in read_extra(record).items():
            said.setdefault(name, value)
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False, default=str)


class StderrHandler(logging.Handler):
    """Prints on whatever stderr is at the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record; what cannot be printed is not worth a failure."""
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001  (as every handler of the standard library does)
            self.handleError(record)


def print_to_stderr(level: str) -> None:
    """Print records from this level on, such as ``info``. Saying it twice prints once."""
    logger = logging.getLogger(LOGGER)
    logger.setLevel(level.upper())
    known = [each for each in logger.handlers if isinstance(each, StderrHandler)]
    for each in known or [_add_handler(logger)]:
        each.setLevel(level.upper())


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Print warnings while the block runs, unless somebody asked for more."""
    logger = logging.getLogger(LOGGER)
    if any(isinstance(each, StderrHandler) for each in logger.handlers):
        yield
        return
    handler = _add_handler(logger)
    handler.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _add_handler(logger: logging.Logger) -> StderrHandler:
    handler = StderrHandler()
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    return handler
