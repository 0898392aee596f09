"""Administration from Python: the operations of `lakebed.operations`, as calls that return data.

Tables have the columns of the SQL functions, in micromegas' names and order where it has them, and
become data frames with ``.to_pandas()``. A failure is raised as an error.

    import lakebed
    from lakebed import admin

    lake = lakebed.open("weather")  # or lakebed.connect("grpc://…"), as an administrator
    admin.list_incompatible_partitions(lake).to_pandas()
"""

from __future__ import annotations

from lakebed.operations.lookups import (
    explain_empty,
    find_empty_partitions,
    list_columns,
    list_incompatible_partitions,
    list_partitions,
    list_view_sets,
    validate_table_files,
)
from lakebed.operations.retirement import (
    materialize_partitions,
    restore_partition,
    retire_incompatible_partitions,
    retire_partition_by_file,
    retire_partition_by_metadata,
    retire_partitions,
)

__all__ = [
    "explain_empty",
    "find_empty_partitions",
    "list_columns",
    "list_incompatible_partitions",
    "list_partitions",
    "list_view_sets",
    "materialize_partitions",
    "restore_partition",
    "retire_incompatible_partitions",
    "retire_partition_by_file",
    "retire_partition_by_metadata",
    "retire_partitions",
    "validate_table_files",
]
