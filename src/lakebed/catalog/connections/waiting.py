"""Wait for a database server that accepts no connections yet, so that the order in which services
start does not matter.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from lakebed.catalog.catalog import Catalog
from lakebed.errors import Unavailable

RETRY_SECONDS = 1.0
NOTICE_SECONDS = 10.0


def wait_until_reachable(
    catalog: Catalog,
    seconds: float,
    notice: Callable[[str], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Return when the catalog's server accepts a connection. Raise `Unavailable` after so many
    seconds, and at once if waiting cannot help: for a wrong password, database or address."""
    begin = now()
    next_notice = begin
    refusals = 0
    while True:
        try:
            with catalog.glance():
                break
        except Unavailable as error:
            # A server may start between the attempt and the look at it: only two refusals count.
            cause = getattr(error.__cause__, "orig", None)
            refusals = 0 if catalog.dialect.may_come_up(cause) else refusals + 1
            waited = now() - begin
            if refusals == 2 or waited >= seconds:
                raise
            if refusals:
                continue
            if now() >= next_notice:
                notice(f"{error}; waiting for {seconds - waited:.0f} s at most")
                next_notice = now() + NOTICE_SECONDS
        sleep(RETRY_SECONDS)
    if next_notice > begin:
        notice(f"the catalog responds after {now() - begin:.0f} s")
