"""Upkeep runs duties. Each is bounded, runs under a lease so that several processes never do the
same work twice, and is isolated from the failures of the others; what came of it is in the catalog.
A duty that is killed is due again at once, because each can be repeated; so is one that has more to
do than its share.
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
    """What became of a duty that was due."""

    name: str
    said: str | None = None
    error: str | None = None
    skipped: str | None = None
    """Who does it instead, or did."""
    unfinished: bool = False
    """Whether it did only a share, and is due again at once."""


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
        """Once it is set, no duty begins, and nobody waits for a right to do one."""

    def list_duties(self) -> list[tuple[Duty, DutyState]]:
        """Every duty with what is known of it."""
        with self._lake.catalog.read() as connection:
            known = duties.list_states(connection)
        return [(each, known.get(each.name, DutyState(each.name))) for each in self._duties]

    def find_overdue(self) -> dict[str, int]:
        """For how many microseconds each duty should have been done."""
        with self._lake.catalog.read() as connection:
            now = clock.upcoming(connection)
            known = duties.list_states(connection)
        return {
            each.name: known.get(each.name, DutyState(each.name)).overdue_us(
                now, self._lake.row.created_at
            )
            for each in self._duties
        }

    def run_due(self, *names: str, everything: bool = False, patient: bool = True) -> list[DutyRun]:
        """Do what is due now, or everything to its end, or only what is named; one after the
        other. Who is
        ``patient`` waits until it is certain that the doer of a duty is dead."""
        chosen = self._choose(names)
        anyway = everything or bool(names)
        due = {each.name for each in chosen} if anyway else self._list_due()
        done: list[DutyRun] = []
        for duty in chosen:
            if duty.name in due and not self._stop.is_set():
                done.append(self._run(duty, patient=patient, anyway=anyway))
                while everything and done[-1].unfinished:
                    done.append(self._run(duty, patient=patient, anyway=anyway))
        return done

    def _list_due(self) -> set[str]:
        with self._lake.catalog.read() as connection:
            now = clock.upcoming(connection)
            known = duties.list_states(connection)
        return {
            each.name
            for each in self._duties
            if each.name not in known or known[each.name].next_run <= now
        }

    def _choose(self, names: Collection[str]) -> list[Duty]:
        known = {each.name: each for each in self._duties}
        for name in names:
            if name not in known:
                raise BadInput(f"there is no duty {name!r}", hint=f"one of {', '.join(known)}")
        return [each for each in self._duties if not names or each.name in names]

    def _run(self, duty: Duty, *, patient: bool, anyway: bool) -> DutyRun:
        """A duty whose doer died is taken over once that is certain. Who had to wait for a living
        one looks again whether there is anything left to do."""
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
        """Run a duty and record what came of it. The error of one is not the end of the others."""
        begun = self._record(duty, lambda state, now: replace(state, last_begin=now))
        try:
            result = duty.work(self._lake)
        except Cancelled as error:  # by whoever ends this process; it is due again at once
            return DutyRun(duty.name, skipped=str(error))
        except Exception as error:  # noqa: BLE001  (whatever it is: it is recorded and shown)
            message = _describe(error)
            _log.warning("duty failed: %s", message, extra={"duty": duty.name})
            self._record(duty, lambda state, now: _failed(duty, state, now, message))
            return DutyRun(duty.name, error=message)
        unfinished = isinstance(result, Unfinished)
        said = result.said if isinstance(result, Unfinished) else result
        pause = 0 if unfinished else duty.every_seconds
        self._record(duty, lambda state, now: _succeeded(state, now, said, pause))
        _log.info("duty done: %s", said, extra={"duty": duty.name, "begun": begun})
        return DutyRun(duty.name, said=said, unfinished=unfinished)

    def _record(self, duty: Duty, change: Callable[[DutyState, int], DutyState]) -> int:
        with self._lake.catalog.write() as transaction:
            known = duties.list_states(transaction.connection)
            state = known.get(duty.name, DutyState(duty.name))
            duties.record(transaction.connection, change(state, transaction.tick))
            return transaction.tick

    def loop(self, stop: threading.Event, pause: float = 1.0) -> None:
        """Do what is due until told to stop. What has a thread of its own, this one, does not wait
        for the others."""
        here = [each for each in self._duties if each.own_thread]
        others = [each for each in self._duties if not each.own_thread]
        beside = threading.Thread(
            target=Upkeep(self._lake, others, stop)._tend,
            args=(pause,),
            name="lakebed-upkeep-beside",
        )
        beside.start()
        try:
            Upkeep(self._lake, here, stop)._tend(pause)
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
    """What whoever does a duty holds a lease of."""
    return f"duty {duty}"


def _succeeded(state: DutyState, now: int, said: str, pause_seconds: int) -> DutyState:
    return replace(
        state,
        last_success=now,
        said=said,
        error=None,
        runs=state.runs + 1,
        next_run=now + pause_seconds * SECOND,
    )


def _describe(error: Exception) -> str:
    """Return the message of an error, with the hint of one of ours."""
    if not isinstance(error, LakebedError):
        return repr(error)
    return f"{error}; {error.hint}" if error.hint else str(error)


def _failed(duty: Duty, state: DutyState, now: int, error: str) -> DutyState:
    """What fails again and again is tried half as often each time, down to once an hour."""
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
