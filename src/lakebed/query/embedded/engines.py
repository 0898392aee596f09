"""The embedded engine of one lake, made when it is first needed. Cheap to import."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lakebed.query.embedded.running.turns import EngineReplaced
from lakebed.storage.objects import Store

if TYPE_CHECKING:
    from lakebed.query.changing import SqlOperations
    from lakebed.query.embedded.engine import Analysis, Engine, Resources
    from lakebed.query.embedded.running.streams import BatchStream


class EmbeddedEngines:
    """The engine that plans now; a planner that cannot be stopped keeps its engine. All share
    memory and disk. Safe to use from several threads."""

    def __init__(
        self,
        store: Store,
        memory_bytes: int,
        spill_bytes: int,
        operations: SqlOperations | None = None,
    ) -> None:
        """``operations`` are the functions that change the lake."""
        self._store = store
        self._operations = operations
        self._memory_bytes = memory_bytes
        self._spill_bytes = spill_bytes
        self._engine: Engine | None = None
        self._resources: Resources | None = None
        self._lock = threading.Lock()

    def get(self) -> Engine:
        """Return the engine, a new one if a planner was abandoned with the last one."""
        from lakebed.query.embedded.engine import Engine, Resources

        with self._lock:
            if self._resources is None:
                self._resources = Resources(self._memory_bytes, self._spill_bytes)
            if self._engine is None or self._engine.is_abandoned:
                operations = () if self._operations is None else self._operations.list_functions()
                self._engine = Engine(self._store, self._resources, operations)
            return self._engine

    def analyse(self, *arguments: Any, **options: Any) -> Analysis:
        """Call `Engine.analyse` on an engine, and again on its successor if it was replaced
        meanwhile."""
        while True:
            with suppress(EngineReplaced):
                return self.get().analyse(*arguments, **options)

    def run(self, *arguments: Any, **options: Any) -> BatchStream:
        """Call `Engine.run` on an engine, and again on its successor if it was replaced
        meanwhile."""
        while True:
            with suppress(EngineReplaced):
                return self.get().run(*arguments, **options)

    def close(self) -> None:
        """Release the engine; the next statement would make another."""
        with self._lock:
            engine, self._engine = self._engine, None
            resources, self._resources = self._resources, None
        if engine is not None:
            engine.close()
        if resources is not None:
            resources.close()
