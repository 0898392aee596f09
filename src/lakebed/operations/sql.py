"""The port through which SQL statements reach the operations. It is cheap to import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakebed.catalog.catalog import Catalog
from lakebed.lifecycle.changes import Changes, Line
from lakebed.lifecycle.retire import Retirement
from lakebed.pipeline.pipeline import Pipeline

if TYPE_CHECKING:
    from lakebed.query.embedded.functions.calls import LakeFunction


class SqlOperations:
    """The operations of one lake for its queries."""

    def __init__(self, catalog: Catalog, retirement: Retirement, pipeline: Pipeline) -> None:
        self._catalog = catalog
        self._retirement = retirement
        self._pipeline = pipeline

    def list_functions(self) -> Sequence[LakeFunction]:
        """Return the functions that change the lake."""
        from lakebed.operations.sql_functions import make_functions

        return make_functions(self.build)

    def begin(self) -> Changes:
        """Return the changes of a new statement."""
        return self._retirement.begin_changes()

    def build(self, view_set: str, begin: int, end: int) -> list[Line]:
        """Build one view set in an insert-time range; many transactions, each by itself."""
        from lakebed.pipeline.telling import build_and_tell

        return build_and_tell(self._catalog, self._pipeline, view_set, begin, end)
