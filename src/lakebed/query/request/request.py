"""One statement with its options, as every entry point passes it on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.errors import BadInput
from lakebed.model.time import Instant
from lakebed.query.request.parameters import Bound, prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EMBEDDED, SPARK = "embedded", "spark"
MOST_ROWS = (1 << 63) - 1
_MOST_SECONDS = 366 * 24 * 3600


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A statement with its options; `lakebed.lake.Lake.query` documents them. `BadInput` for values
    that make no sense, whether a lake or a server runs the statement."""

    sql: str
    begin: Instant | None = None
    end: Instant | None = None
    parameters: Sequence[Any] | None = None
    as_of: Instant | None = None
    stale: bool = False
    limit: int | None = None
    timeout: float | None = None
    explained: bool = False
    admin: bool = True
    """False hides the functions that change the lake."""
    engine: str = EMBEDDED
    spark: SparkSession | None = None
    master: str | None = None
    remote: str | None = None
    database: str | None = None
    """The database whose tables can be named without it."""

    def __post_init__(self) -> None:
        if not isinstance(self.sql, str):
            raise BadInput(f"a statement is a text, not {type(self.sql).__name__}")
        if self.timeout is not None and not _is_duration(self.timeout):
            raise BadInput(f"a timeout of {self.timeout!r} seconds makes no sense")
        if self.parameters is not None and not isinstance(self.parameters, list | tuple):
            raise BadInput("parameters are a list, one for each ? in their order")
        if self.limit is not None and not _is_count(self.limit):
            raise BadInput(f"a limit of {self.limit!r} rows makes no sense")
        if self.parameters is not None and self.engine == SPARK:
            raise BadInput(
                "parameters are for the embedded engine",
                hint="Spark's own are: spark.sql(args=…)",
            )

    def bind(self) -> Bound:
        """Return the statement with its parameters."""
        if self.parameters is None:
            return Bound(self.sql, self.sql)
        return prepare(self.sql).bind(self.parameters)


def _is_count(limit: Any) -> bool:
    is_number = isinstance(limit, int) and not isinstance(limit, bool)
    return is_number and 0 <= limit <= MOST_ROWS


def _is_duration(seconds: Any) -> bool:
    return isinstance(seconds, int | float) and 0 <= seconds <= _MOST_SECONDS
