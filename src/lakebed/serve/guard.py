"""The guard of a server, the same for HTTP and gRPC: it identifies callers, counts requests, and
limits the bytes of requests in memory.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from lakebed.access.credentials import read_secret
from lakebed.access.keys import ANYBODY, Caller, Role
from lakebed.admission import Admission
from lakebed.errors import NotStarted, Unauthenticated
from lakebed.lake import Lake
from lakebed.serve.health import Health
from lakebed.serve.limits import ServerSettings
from lakebed.serve.meters import Meters
from lakebed.serve.workers import Workers

_ASIDE_THREADS = 8


class Guard:
    """The checks that every request passes before the lake works for it."""

    def __init__(
        self, lake: Lake, settings: ServerSettings, meters: Meters, health: Health
    ) -> None:
        self._lake = lake
        self.open_to_all = settings.open_to_all
        self.meters = meters
        self.health = health
        self.body_bytes = Admission(
            settings.most_in_flight_bytes, hint="send it again a little later"
        )
        """Bytes of bodies are counted as they arrive, so that many half ones cannot fill it."""
        self.aside = Workers("lakebed-aside", health, _ASIDE_THREADS)
        """For short work that must not wait for the lake's: keys, meters, cancelling."""

    async def needs_key(self) -> bool:
        """Return True if callers must show a key: from the first key on, wherever it is created."""
        if self.open_to_all:
            return False
        if self._lake.keys.must_look_for_any():
            await self.aside.run(self._lake.keys.has_any)
        return self._lake.keys.had_any

    async def identify(
        self, headers: Mapping[str, str], *, hint: str, session_key: str | None = None
    ) -> Caller:
        """Return the caller; raise `Unauthenticated` without a key that is in force."""
        if not await self.needs_key():
            return ANYBODY
        secret = read_secret(headers) or session_key
        if secret is None:
            raise Unauthenticated("a key is needed", hint=hint)
        return await self.check_key(secret)

    async def check_key(self, secret: str) -> Caller:
        """Return the caller with a key; raise `Unauthenticated` if it is not in force."""
        return await self.aside.run(lambda: self._lake.keys.check(secret))

    def identify_again(self, headers: Mapping[str, str], role: Role) -> None:
        """Raise unless a caller was identified before, while keys cannot be looked up."""
        if self.open_to_all or not self._lake.keys.had_any:
            return
        caller = self._lake.keys.recall(read_secret(headers) or "")
        if caller is None:
            raise NotStarted("the key cannot be looked up")
        caller.require(role)

    def count(self, route: str, status: int, started_at: float | None) -> None:
        """Count an answered request, and how long it took since ``begun``."""
        self.meters.requests.labels(route, str(status)).inc()
        if started_at is not None:
            self.meters.seconds.labels(route).observe(time.perf_counter() - started_at)

    def close(self) -> None:
        """Wait for the threads to finish."""
        self.aside.close()
