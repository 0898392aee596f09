"""Upkeep runs duties. Each is bounded, runs under a lease so that several processes never do the
same work twice, and is isolated from the failures of the others. The catalog has its result. A
duty that is killed is due again at once, because each can be repeated; so is one that did only a
share of its work.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from lakebed.catalog import clock
from lakebed.catalog.records import duties
from lakebed.catalog.records.duties import DutyState
from lakebed.errors import BadInput, Cancelled, Conflict, LakebedError
from lakebed.lake import Lake
from lakebed.model.time import SECOND
from lakebed.upkeep.duties import DUTIES, Duty, Unfinished

_LONGEST_PAUSE = 3600
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DutyRun:
    """The result of a duty that was due."""

    name: str
    result: str | None = None
    error: str | None = None
    skipped: str | None = None
    """The reason why it was skipped, such as the process that does it."""
    unfinished: bool = False
    """True if it did only a share, and is due again at once."""


class Upkeep:
    """The duties of one lake."""

    def __init__(
        self,
        lake: Lake,
        every: Sequence[Duty] = DUTIES,
        stop: threading.Event | None = None,
    ) -> None:
        self._lake = lake
        self._duties = every
        self._stop = stop or threading.Event()
        """Once it is set, no duty begins, and nothing waits for a lease."""

    def list_duties(self) -> list[tuple[Duty, DutyState]]:
        """Return every duty with its recorded state."""
        with self._lake.catalog.read() as connection:
            states = duties.list_states(connection)
        return [(duty, states.get(duty.name, DutyState(duty.name))) for duty in self._duties]

    def find_overdue(self) -> dict[str, int]:
        """Return the microseconds by which each duty is overdue."""
        with self._lake.catalog.read() as connection:
            now = clock.upcoming(connection)
            states = duties.list_states(connection)
        return {
            duty.name: states.get(duty.name, DutyState(duty.name)).overdue_us(
                now, self._lake.row.created_at
            )
            for duty in self._duties
        }

    def run_due(self, *names: str, everything: bool = False, patient: bool = True) -> list[DutyRun]:
        """Run the duties that are due, or everything to its end, or only those named, one after the
        other. ``patient`` waits until it is certain that the process that holds a duty's lease is
        dead."""
        selected = self._choose(names)
        anyway = everything or bool(names)
        due = {duty.name for duty in selected} if anyway else self._list_due()
        done: list[DutyRun] = []
        for duty in selected:
            if duty.name in due and not self._stop.is_set():
                done.append(self._run(duty, patient=patient, anyway=anyway))
                while everything and done[-1].unfinished:
                    done.append(self._run(duty, patient=patient, anyway=anyway))
        return done

    def _list_due(self) -> set[str]:
        with self._lake.catalog.read() as connection:
            now = clock.upcoming(connection)
            states = duties.list_states(connection)
        return {
            duty.name
            for duty in self._duties
            if duty.name not in states or states[duty.name].next_run <= now
        }

    def _choose(self, names: Collection[str]) -> list[Duty]:
        by_name = {duty.name: duty for duty in self._duties}
        for name in names:
            if name not in by_name:
                raise BadInput(f"there is no duty {name!r}", hint=f"one of {', '.join(by_name)}")
        return [duty for duty in self._duties if not names or duty.name in names]

    def _run(self, duty: Duty, *, patient: bool, anyway: bool) -> DutyRun:
        """Run a duty under its lease. A duty whose process died is taken over once that is
        certain. After waiting for a living process, the duty runs only if it is still due."""
        right = lease_of(duty.name)
        if patient:
            try:
                self._lake.leases.end_dead_builders([right], require_wanted=self._require_wanted)
            except Cancelled as error:
                return DutyRun(duty.name, skipped=str(error))
        try:
            with self._lake.leases.building(right):
                if not anyway and duty.name not in self._list_due():
                    return DutyRun(duty.name, skipped="done by another meanwhile")
                return self._do(duty)
        except Conflict as taken:
            return DutyRun(duty.name, skipped=str(taken))

    def _do(self, duty: Duty) -> DutyRun:
        """Run a duty and record its result. Its error does not end the other duties."""
        begin = self._record(duty, lambda state, now: replace(state, last_begin=now))
        try:
            result = duty.work(self._lake)
        except Cancelled as error:  # this process ends; it is due again at once
            return DutyRun(duty.name, skipped=str(error))
        except Exception as error:  # noqa: BLE001  (any error is recorded and shown)
            message = _describe(error)
            _log.warning("duty failed: %s", message, extra={"duty": duty.name})
            self._record(duty, lambda state, now: _failed(duty, state, now, message))
            return DutyRun(duty.name, error=message)
        unfinished = isinstance(result, Unfinished)
        text = result.result if isinstance(result, Unfinished) else result
        pause = 0 if unfinished else duty.every_seconds
        self._record(duty, lambda state, now: _succeeded(state, now, text, pause))
        _log.info("duty done: %s", text, extra={"duty": duty.name, "begun": begin})
        return DutyRun(duty.name, result=text, unfinished=unfinished)

    def _record(self, duty: Duty, change: Callable[[DutyState, int], DutyState]) -> int:
        with self._lake.catalog.write() as transaction:
            states = duties.list_states(transaction.connection)
            state = states.get(duty.name, DutyState(duty.name))
            duties.record(transaction.connection, change(state, transaction.tick))
            return transaction.tick

    def loop(self, stop: threading.Event, pause: float = 1.0) -> None:
        """Do what is due until `stop` is set. Duties with a thread of their own, this one, do
        not wait for the others."""
        own_thread_duties = [duty for duty in self._duties if duty.own_thread]
        shared_duties = [duty for duty in self._duties if not duty.own_thread]
        beside = threading.Thread(
            target=Upkeep(self._lake, shared_duties, stop)._tend,
            args=(pause,),
            name="lakebed-upkeep-beside",
        )
        beside.start()
        try:
            Upkeep(self._lake, own_thread_duties, stop)._tend(pause)
        finally:
            stop.set()
            beside.join()

    def _require_wanted(self) -> None:
        if self._stop.is_set():
            raise Cancelled("upkeep is ending", hint="whoever is next does it")

    def _tend(self, pause: float) -> None:
        while not self._stop.wait(pause):
            try:
                self.run_due()
            except LakebedError as error:  # the catalog may come back
                _log.warning("upkeep cannot look what is due: %s", error)
            except Exception:  # noqa: BLE001  (and so may whatever else was missing)
                _log.exception("upkeep cannot look what is due")


def lease_of(duty: str) -> str:
    """Return the name of the lease that protects a duty."""
    return f"duty {duty}"


def _succeeded(state: DutyState, now: int, result: str, pause_seconds: int) -> DutyState:
    return replace(
        state,
        last_success=now,
        result=result,
        error=None,
        runs=state.runs + 1,
        next_run=now + pause_seconds * SECOND,
    )


def _describe(error: Exception) -> str:
    """Return the message of an error, with the hint of one of Lakebed's."""
    if not isinstance(error, LakebedError):
        return repr(error)
    return f"{error}; {error.hint}" if error.hint else str(error)


def _failed(duty: Duty, state: DutyState, now: int, error: str) -> DutyState:
    """Return the state after a failure. The pause doubles with each failure in a row, up to an
    hour."""
    before = 0
    if state.error is not None and state.last_failure is not None:
        before = state.next_run - state.last_failure
    pause = min(max(duty.every_seconds * SECOND, 2 * before), _LONGEST_PAUSE * SECOND)
    return replace(
        state,
        last_failure=now,
        error=error,
        runs=state.runs + 1,
        failures=state.failures + 1,
        next_run=now + pause,
    )
