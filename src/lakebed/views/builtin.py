"""The view sets that every lake has once telemetry lands in it."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from lakebed.decode import logs, metrics, spans
from lakebed.model.source import BlockSource, SqlSource
from lakebed.model.view_set import ViewSet
from lakebed.views import blocks

_TIME = pa.timestamp("us", "UTC")
_MAP = pa.map_(pa.string(), pa.string())

PROCESSES_COLUMNS = {
    "process_id": "one OpenTelemetry resource",
    "exe": "namespace/name or name of the service; empty without a name",
    "username": "attribute process.owner",
    "realname": "empty",
    "computer": "attribute host.name",
    "distro": "attribute os.description",
    "cpu_brand": "attribute host.cpu.model.name",
    "tsc_frequency": "ticks per second: always nanoseconds",
    "start_time": "when the process was first seen",
    "start_ticks": "the same in nanoseconds since 1970",
    "insert_time": "when the process was first seen",
    "parent_process_id": "empty",
    "properties": "attributes of the resource",
    "last_update_time": "when its latest block landed",
    "last_block_end_ticks": "its latest event in nanoseconds since 1970",
    "last_block_end_time": "its latest event",
}
STREAMS_COLUMNS = {
    "stream_id": "one signal of one process",
    "process_id": "one OpenTelemetry resource",
    "dependencies_metadata": "empty",
    "objects_metadata": "empty",
    "tags": "the signal: logs, metrics or traces",
    "properties": "what else is known of the stream",
    "insert_time": "when the stream was first seen",
    "format": "otlp/logs, otlp/metrics or otlp/traces",
    "last_update_time": "when its latest block landed",
}
LOG_STATS_COLUMNS = {
    "time_bin": "the minute in which the records happened",
    "process_id": "one OpenTelemetry resource",
    "level": "1 fatal, 2 error, 3 warn, 4 info, 5 debug, 6 trace",
    "target": "name of the instrumentation scope",
    "count": "how many records",
}

_SQL_VERSIONS = 1000
"""The versions of SQL view sets are this far apart: each change of what one reads adds one to it,
and must not overtake a later program's."""

COLUMNS = {
    "blocks": blocks.COLUMNS,
    "processes": PROCESSES_COLUMNS,
    "streams": STREAMS_COLUMNS,
    "log_entries": logs.COLUMNS,
    "measures": metrics.COLUMNS,
    "spans": spans.COLUMNS,
    "log_stats": LOG_STATS_COLUMNS,
}
"""What every column of the built-in view sets means."""

_PROCESSES_SQL = """
SELECT process_id,
       max("processes.exe") AS exe,
       max("processes.username") AS username,
       max("processes.realname") AS realname,
       max("processes.computer") AS computer,
       max("processes.distro") AS distro,
       max("processes.cpu_brand") AS cpu_brand,
       max("processes.tsc_frequency") AS tsc_frequency,
       min("processes.start_time") AS start_time,
       min("processes.start_ticks") AS start_ticks,
       min("processes.insert_time") AS insert_time,
       max("processes.parent_process_id") AS parent_process_id,
       first_value("processes.properties") AS properties,
       max(insert_time) AS last_update_time,
       max(end_ticks) AS last_block_end_ticks,
       max(end_time) AS last_block_end_time
FROM blocks
GROUP BY process_id
"""
_PROCESSES_MERGE = """
SELECT process_id,
       max(exe) AS exe,
       max(username) AS username,
       max(realname) AS realname,
       max(computer) AS computer,
       max(distro) AS distro,
       max(cpu_brand) AS cpu_brand,
       max(tsc_frequency) AS tsc_frequency,
       min(start_time) AS start_time,
       min(start_ticks) AS start_ticks,
       min(insert_time) AS insert_time,
       max(parent_process_id) AS parent_process_id,
       first_value(properties) AS properties,
       max(last_update_time) AS last_update_time,
       max(last_block_end_ticks) AS last_block_end_ticks,
       max(last_block_end_time) AS last_block_end_time
FROM processes
GROUP BY process_id
"""
_STREAMS_SQL = """
SELECT stream_id,
       max(process_id) AS process_id,
       first_value("streams.dependencies_metadata") AS dependencies_metadata,
       first_value("streams.objects_metadata") AS objects_metadata,
       first_value("streams.tags") AS tags,
       first_value("streams.properties") AS properties,
       min("streams.insert_time") AS insert_time,
       max("streams.format") AS format,
       max(insert_time) AS last_update_time
FROM blocks
GROUP BY stream_id
"""
_STREAMS_MERGE = """
SELECT stream_id,
       max(process_id) AS process_id,
       first_value(dependencies_metadata) AS dependencies_metadata,
       first_value(objects_metadata) AS objects_metadata,
       first_value(tags) AS tags,
       first_value(properties) AS properties,
       min(insert_time) AS insert_time,
       max(format) AS format,
       max(last_update_time) AS last_update_time
FROM streams
GROUP BY stream_id
"""
_LOG_STATS_SQL = """
SELECT date_trunc('minute', time) AS time_bin, process_id, level, target, count(*) AS count
FROM log_entries
GROUP BY date_trunc('minute', time), process_id, level, target
"""
_LOG_STATS_MERGE = """
SELECT time_bin, process_id, level, target, sum(count) AS count
FROM log_stats
GROUP BY time_bin, process_id, level, target
"""


@cache
def built_in() -> tuple[ViewSet, ...]:
    """The built-in view sets; what SQL reads comes before it."""
    landed = ViewSet(
        "blocks", 1, blocks.SCHEMA, "insert_time", ("insert_time",), source=BlockSource("blocks")
    )
    entries = ViewSet("log_entries", 1, logs.SCHEMA, "time", ("time",), source=BlockSource("logs"))
    return (
        landed,
        entries,
        ViewSet(
            "measures",
            1,
            metrics.SCHEMA,
            "time",
            ("name", "time"),
            source=BlockSource("metrics"),
        ),
        ViewSet(
            "spans", 1, spans.SCHEMA, "time", ("trace_id", "time"), source=BlockSource("traces")
        ),
        ViewSet(
            "processes",
            1 * _SQL_VERSIONS,
            _schema(
                PROCESSES_COLUMNS,
                tsc_frequency=pa.int64(),
                start_time=_TIME,
                start_ticks=pa.int64(),
                insert_time=_TIME,
                properties=_MAP,
                last_update_time=_TIME,
                last_block_end_ticks=pa.int64(),
                last_block_end_time=_TIME,
            ),
            "last_update_time",
            ("process_id",),
            source=_sql(_PROCESSES_SQL, _PROCESSES_MERGE, landed),
        ),
        ViewSet(
            "streams",
            1 * _SQL_VERSIONS,
            _schema(
                STREAMS_COLUMNS,
                dependencies_metadata=pa.binary(),
                objects_metadata=pa.binary(),
                tags=pa.list_(pa.string()),
                properties=_MAP,
                insert_time=_TIME,
                last_update_time=_TIME,
            ),
            "last_update_time",
            ("stream_id",),
            source=_sql(_STREAMS_SQL, _STREAMS_MERGE, landed),
        ),
        ViewSet(
            "log_stats",
            1 * _SQL_VERSIONS,
            _schema(LOG_STATS_COLUMNS, time_bin=_TIME, level=pa.int32(), count=pa.int64()),
            "time_bin",
            ("time_bin", "process_id"),
            source=_sql(_LOG_STATS_SQL, _LOG_STATS_MERGE, entries),
        ),
    )


def _schema(columns: dict[str, str], **types: pa.DataType) -> pa.Schema:
    return pa.schema([(name, types.get(name, pa.string())) for name in columns])


def _sql(sql: str, merge_sql: str, *reads: ViewSet) -> SqlSource:
    return SqlSource(
        sql.strip(),
        merge_sql.strip(),
        tuple((view_set.name, view_set.schema_hash) for view_set in reads),
    )
