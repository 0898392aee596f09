"""Six statements over ten million log entries in 200 partitions: the embedded engine beside
DataFusion alone on its own listing of the same files and DuckDB on the list of files; the Spark
engine beside `spark.read.parquet`. Systems take turns, so that noise hits all alike.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.harness import EPOCH, MINUTE, Places, Result, median_ms, stopwatch
from lakebed.decode import logs
from lakebed.decode.blocks import LandedBlock
from lakebed.lake import Lake
from lakebed.samples.generator import Generator
from lakebed.storage.local import LocalStore
from lakebed.views.builtin import built_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TITLE = "Six statements over 10,000,000 log entries in 200 partitions, medians in ms"
_BASES = 10
_NEEDLE = "0f0e0d0c-0b0a-8908-8706-050403020100"
_SHARE, _EXTRA_MS = 1.5, 15
_SQL = {
    "count by level": "SELECT level, count(*) AS n FROM log_entries GROUP BY level ORDER BY level",
    "needle by process": "SELECT time, msg FROM log_entries "
    f"WHERE process_id = '{_NEEDLE}' ORDER BY time",
    "tail of 100": "SELECT time, level, msg FROM log_entries WHERE time >= {late} "
    "ORDER BY time DESC, msg LIMIT 100",
    "top messages": "SELECT msg, count(*) AS n FROM log_entries GROUP BY msg "
    "ORDER BY n DESC, msg LIMIT 10",
    "p95 per minute": "SELECT date_trunc('minute', time) AS minute, "
    "approx_percentile_cont(length(msg), 0.95) AS p95 FROM log_entries "
    "GROUP BY date_trunc('minute', time) ORDER BY minute",
    "substring": "SELECT count(*) AS n FROM log_entries WHERE msg LIKE '%timeout%'",
}
_IN_DUCKDB = {"approx_percentile_cont(length(msg), 0.95)": "approx_quantile(length(msg), 0.95)"}
_IN_SPARK = {"approx_percentile_cont(length(msg), 0.95)": "percentile_approx(length(msg), 0.95)"}


def run(places: Places) -> list[Result]:
    partitions, rows, times = (10, 1000, 3) if places.quick else (200, 50_000, 9)
    with places.new_lake("sqlite") as lake:
        _fill(lake, partitions, rows)
        late = EPOCH + (partitions - 1) * MINUTE
        statements = {
            name: sql.format(late=f"to_timestamp_micros({late})") for name, sql in _SQL.items()
        }
        results = _measure(_embedded_peers(lake), statements, times, "datafusion alone")
        return results + _measure_spark(lake, statements, late, max(3, times // 2 + 1))


def _fill(lake: Lake, partitions: int, rows: int) -> None:
    """Real records; each partition a minute of its own, and one with a process of its own."""
    lake.views.ensure(built_in())
    bases = [_decode(seed, rows) for seed in range(_BASES)]
    for number in range(partitions):
        table = bases[number % _BASES]
        times = pa.array(
            [EPOCH + number * MINUTE + place * MINUTE // rows for place in range(rows)],
            pa.timestamp("us", "UTC"),
        )
        table = table.set_column(table.schema.get_field_index("time"), "time", times)
        if number == partitions // 2:
            ids = table["process_id"].combine_chunks()
            few = pa.array([place % (rows // 20) == 0 for place in range(rows)])
            table = table.set_column(
                table.schema.get_field_index("process_id"),
                table.schema.field("process_id"),
                pc.if_else(few, _NEEDLE, ids),
            )
        begin = EPOCH + number * MINUTE
        lake.partitions.publish("log_entries", begin, begin + MINUTE, table)


def _decode(seed: int, rows: int) -> pa.Table:
    request = Generator(seed).logs(rows)
    blocks = []
    for place, resource in enumerate(request.resource_logs):
        one = type(request)(resource_logs=[resource])
        blocks.append(
            LandedBlock(
                f"{seed}-{place}",
                f"stream-{place}",
                f"{place:08x}-0000-8000-8000-{seed:012x}",
                EPOCH,
                "otlp/logs+protobuf",
                one.SerializeToString(),
            )
        )
    return logs.decode(blocks).table.cast(logs.SCHEMA)


Ask = Callable[[str], Any]


def _embedded_peers(lake: Lake) -> dict[str, Ask]:
    import duckdb
    from datafusion import SessionContext

    files = _list_files(lake)
    alone = SessionContext()
    alone.register_parquet("log_entries", str(Path(files[0]).parent))
    duck = duckdb.connect()
    listed = ", ".join(f"'{path}'" for path in files)
    duck.execute(f"CREATE VIEW log_entries AS SELECT * FROM read_parquet([{listed}])")
    return {
        "lakebed, embedded": lambda sql: lake.query(sql).to_arrow(),
        "datafusion alone": lambda sql: alone.sql(sql).to_arrow_table(),
        "duckdb": lambda sql: duck.sql(
            _replace(sql, _IN_DUCKDB).replace("to_timestamp_micros", "make_timestamptz")
        ).to_arrow_table(),
    }


def _list_files(lake: Lake) -> list[str]:
    assert isinstance(lake.store, LocalStore)
    return [
        str(lake.store.locate(each.file_path))
        for each in lake.partitions.list_partitions("log_entries")
        if each.file_path is not None
    ]


def _replace(sql: str, words: dict[str, str]) -> str:
    for ours, theirs in words.items():
        sql = sql.replace(ours, theirs)
    return sql


def _measure(
    systems: dict[str, Ask], statements: dict[str, str], times: int, baseline: str
) -> list[Result]:
    seconds: dict[str, dict[str, list[float]]] = {
        system: {name: [] for name in statements} for system in systems
    }
    for name, sql in statements.items():
        for ask in systems.values():
            ask(sql)  # everybody has seen the files once
        for _ in range(times):
            for system, ask in systems.items():
                seconds[system][name].append(stopwatch(lambda ask=ask, sql=sql: ask(sql)))  # type: ignore[misc]
    medians = {
        system: {name: median_ms(taken) for name, taken in each.items()}
        for system, each in seconds.items()
    }
    results = [Result(system, dict(figures)) for system, figures in medians.items()]
    first = next(iter(systems))
    ratios = {name: medians[first][name] / medians[baseline][name] for name in statements}
    targets = {
        f"{name} ≤ {_SHARE}×": medians[first][name]
        <= max(_SHARE * medians[baseline][name], medians[baseline][name] + _EXTRA_MS)
        for name in statements
    }
    return [*results, Result(f"{first} / {baseline}", dict(ratios), targets)]


def _measure_spark(lake: Lake, statements: dict[str, str], late: int, times: int) -> list[Result]:
    from lakebed.pipeline.sessions.session import open_session

    spark = open_session(cores=2)
    try:
        return _measure(
            _spark_peers(lake, spark),
            {
                name: _replace(
                    sql, _IN_SPARK | {f"to_timestamp_micros({late})": f"timestamp_micros({late})"}
                )
                for name, sql in statements.items()
            },
            times,
            "spark.read.parquet",
        )
    finally:
        spark.stop()


def _spark_peers(lake: Lake, spark: SparkSession) -> dict[str, Ask]:
    files = _list_files(lake)
    plain = spark.newSession()
    plain.read.parquet(*(f"file:{path}" for path in files)).createOrReplaceTempView("log_entries")
    return {
        "lakebed, spark": lambda sql: lake.query(sql, engine="spark", spark=spark).to_arrow(),
        "spark.read.parquet": lambda sql: plain.sql(sql).toArrow(),
    }
