"""The SQL functions that a view set may not use, with the reasons: building a range again must give
the same rows. This is the only list; `lakebed.views.sql.rules` applies it.
"""

from __future__ import annotations

_CLOCK = "reads the clock"
_CHANCE = "is random"
_WORK = "depends on how Spark spreads the work"
_FILES = "depends on which files hold the rows"
_WHO = "depends on who builds"
_SESSION = "depends on the session"
_PROGRAM = "depends on the program's version"
_CODE = "runs code outside SQL"
_NAMES = "names tables or columns by text, which cannot be checked"

_BY_REASON = {
    _CLOCK: """now current_timestamp current_date curdate current_time localtime localtimestamp
        getdate sysdate systimestamp today""",
    _CHANCE: """rand random randn uniform randstr uuid gen_random_uuid newid shuffle aes_encrypt
        kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kll_merge_agg_bigint
        kll_merge_agg_double kll_merge_agg_float kll_sketch_merge_bigint kll_sketch_merge_double
        kll_sketch_merge_float""",
    _WORK: """monotonically_increasing_id spark_partition_id mode percentile_approx
        approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine
        histogram_numeric""",
    _FILES: "input_file_name input_file_block_start input_file_block_length",
    _WHO: "current_user session_user user current_role",
    _SESSION: """current_database current_schema current_catalog current_path current_timezone
        python_worker_logs sql_keywords collations""",
    _PROGRAM: "version",
    _CODE: "reflect try_reflect java_method",
    _NAMES: "identifier query_table",
}

FORBIDDEN = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}
"""Functions that are refused wherever they are called, each with the reason."""

FORBIDDEN_WITHOUT_ARGUMENTS = {"unix_timestamp": _CLOCK, "to_unix_timestamp": _CLOCK}
"""Functions that are allowed with an argument, and depend on the clock without one."""

WITHOUT_PARENTHESES = frozenset(
    name
    for name in FORBIDDEN
    if name.startswith(("current_", "local", "session_")) or name == "user"
)
"""Functions that need no parentheses: where no column has the name, Spark calls the function."""

MOMENTS = frozenset({"now", "today", "tomorrow", "yesterday"})
"""Words that Spark reads as the clock in ``TIMESTAMP 'now'``, in casts of constants and wherever
text is compared with a time."""

UNORDERED_AS_WRITTEN = {"array_unique_agg": "collect_set", "group_concat": "listagg"}
"""The parser's names of aggregates, with Spark's names."""

UNORDERED = frozenset({"array_agg", "collect_list", "collect_union", "string_agg"}).union(
    *UNORDERED_AS_WRITTEN.items()
)
"""Aggregates whose result has the order in which rows arrive; allowed where it is sorted."""

SORTING = frozenset({"array_sort", "sort_array", "list_sort"})

ANY_OF_GROUP = frozenset(
    {"first", "first_value", "last", "last_value", "any_value", "max_by", "min_by"}
)
"""Aggregates that pick a row. Allowed, because the value is often the same in the whole group;
where it is not, the result depends on the order of rows (of ties, for the last two)."""

GENERATORS = frozenset(
    {"explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer"}
)
"""What LATERAL VIEW may call: each makes rows of one value of the row beside it."""
