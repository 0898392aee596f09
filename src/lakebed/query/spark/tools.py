"""The port through which statements on Spark use the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from lakebed.model.view_set import ViewSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class SparkTools(Protocol):
    """Sessions and frames; `SparkAccess` documents each method."""

    def use(
        self, spark: SparkSession | None, master: str | None, remote: str | None
    ) -> AbstractContextManager[SparkSession]: ...

    def beside(self, session: SparkSession) -> AbstractContextManager[SparkSession]: ...

    def read(self, session: SparkSession, view_set: ViewSet, paths: Sequence[str]) -> DataFrame: ...

    def read_versions(
        self, session: SparkSession, view_set: ViewSet, versions: Mapping[str, int]
    ) -> DataFrame: ...

    def schema(self, view_set: ViewSet) -> StructType: ...
