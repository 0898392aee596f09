"""Log records as JSON lines. The library only logs, through the logger ``lakebed`` and with its
figures as extra fields; nothing is printed unless the user asks for it.

Every operation logs its start and its end in the same way, through `Operation`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

LOGGER = "lakebed"
_KEY = re.compile(r"\b(lakebed_[0-9a-f]{12}_)[A-Za-z0-9_-]{43}")
_PASSWORD = re.compile(r"(://[^\s:/@\"']*:)[^\s@/\"']+@")
_EXPECTED_EXIT_CODES = (2, 3, 4, 130)
"""Of errors that a caller or another process caused: not worth a warning."""
_NOT_EXTRA = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}


def read_extra(record: logging.LogRecord) -> dict[str, Any]:
    """The figures that were logged with a message."""
    return {name: value for name, value in record.__dict__.items() if name not in _NOT_EXTRA}


def mask_secrets(text: str) -> str:
    """Return the text without API keys and without passwords in URLs."""
    return _PASSWORD.sub(r"\1***@", _KEY.sub(r"\1***", text))


class Operation:
    """Logs that an operation started, and that it ended or failed, with figures and seconds.

    As a context manager it logs all of it. A refusal, which a caller or another process caused, is
    logged as info, and any other failure as a warning.
    """

    __slots__ = ("_failure_level", "_figures", "_log", "_name", "_started_at")

    def __init__(
        self,
        log: logging.Logger,
        name: str,
        *,
        failure_level: int | None = None,
        **figures: Any,
    ) -> None:
        self._log = log
        self._name = name
        self._failure_level = failure_level
        self._figures = figures
        self._started_at = 0.0

    def start(self) -> Self:
        """Log the start."""
        self._started_at = time.perf_counter()
        if self._log.isEnabledFor(logging.INFO):
            self._log.info("%s started", self._name, extra=self._figures)
        return self

    def add(self, **figures: Any) -> None:
        """Add figures, such as counts, that are known only now."""
        self._figures = self._figures | figures

    def end(self, **figures: Any) -> None:
        """Log the end."""
        if self._log.isEnabledFor(logging.INFO):
            self._log.info("%s ended", self._name, extra=self._figures | figures | self._lasted())

    def fail(self, reason: object, level: int | None = None) -> None:
        """Log that it failed, and why."""
        level = level or self._failure_level
        if level is None:
            is_expected = getattr(reason, "exit_code", None) in _EXPECTED_EXIT_CODES
            level = logging.INFO if is_expected else logging.WARNING
        if self._log.isEnabledFor(level):
            extra = self._figures | self._lasted()
            self._log.log(level, "%s failed: %s", self._name, reason, extra=extra)

    def _lasted(self) -> dict[str, float]:
        return {"seconds": round(time.perf_counter() - self._started_at, 6)}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.end()
        else:
            self.fail(error)


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
        return mask_secrets(json.dumps(said, ensure_ascii=False, default=str))


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


def find_stderr_level() -> str:
    """Return the level from which records are printed, such as ``info``; empty if none are."""
    for handler in logging.getLogger(LOGGER).handlers:
        if isinstance(handler, StderrHandler):
            return logging.getLevelName(handler.level).lower()
    return ""


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
