"""What the engine is given by whoever wires a lake. Cheap to import: every opened lake has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.model.view_set import ViewSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class SparkTools:
    """What the engine needs of the pipeline's ways with Spark."""

    use: Callable[
        [SparkSession | None, str | None, str | None], AbstractContextManager[SparkSession]
    ]
    """The caller's session, or the one of a master or a Connect server until it is left."""
    beside: Callable[[SparkSession], AbstractContextManager[SparkSession]]
    """A session of its own beside another."""
    read: Callable[[SparkSession, ViewSet, Sequence[str]], DataFrame]
    """The rows of exactly these files."""
    read_versions: Callable[[SparkSession, ViewSet, Mapping[str, int]], DataFrame]
    """The rows of exactly these files, each with the version of its file unless it has its own."""
    schema: Callable[[ViewSet], StructType]
    """A view set's columns as Spark has them."""
