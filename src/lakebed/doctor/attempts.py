"""Looking at something that may fail, hang or crash, without being taken along."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from lakebed.doctor.facts import Trouble
from lakebed.errors import LakebedError

T = TypeVar("T")


class Attempt(Generic[T]):
    """Something that is being looked at, in a thread of its own from the moment it is made."""

    def __init__(self, what: str, look: Callable[[], T]) -> None:
        self._what = what
        self._look = look
        self._seen: list[T | Trouble] = []
        self._thread = threading.Thread(target=self._run, name=f"doctor {what}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._seen.append(self._look())
        except BaseException as error:  # noqa: BLE001  (what is broken must not break the report)
            self._seen.append(explain(error, self._what))

    def wait(self, seconds: float) -> T | Trouble:
        """What was seen, or why nothing was; a thread that hangs is left behind."""
        self._thread.join(seconds)
        if self._seen:
            return self._seen[0]
        return Trouble(
            f"{self._what} gave no answer within {seconds:g} s",
            "check that it runs, that the network reaches it, and that nobody holds its locks",
        )


def explain(error: BaseException, what: str = "") -> Trouble:
    """An error as one line; ``what`` was looked at, for errors that do not say it."""
    if isinstance(error, LakebedError):
        hint = None if error.hint is None else " ".join(error.hint.split())
        return Trouble(" ".join(str(error).split()), hint)
    if isinstance(error, OSError) and error.strerror:
        named = what if error.filename is None else error.filename
        return Trouble(f"{named}: {error.strerror.lower()}" if named else error.strerror.lower())
    first = next(iter(str(error).strip().splitlines()), "")
    return Trouble(f"unexpected {type(error).__name__}" + (f": {first}" if first else ""))
