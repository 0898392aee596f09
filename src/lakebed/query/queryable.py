"""What answers SQL, wherever it is: an open lake, or a connection to a server of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lakebed.model.time import Instant
from lakebed.query.result import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Queryable(Protocol):
    """The query interface; `lakebed.lake.Lake.query` says what the arguments mean."""

    def query(
        self,
        sql: str,
        begin: Instant | None = None,
        end: Instant | None = None,
        *,
        parameters: Sequence[Any] | None = None,
        as_of: Instant | None = None,
        stale: bool = False,
        limit: int | None = None,
        timeout: float | None = None,
        explained: bool = False,
        admin: bool = True,
        engine: str = "embedded",
        spark: SparkSession | None = None,
        master: str | None = None,
        remote: str | None = None,
    ) -> Result: ...
