"""Administration from Python: the operations of `lakebed.operations`, as calls that return data.

Tables have the columns of the SQL functions, in micromegas' names and order where it has them, and
become data frames with ``.to_pandas()``. A failure is raised as an error.

    import lakebed
    from lakebed import admin

    lake = lakebed.open("weather")  # or lakebed.connect("grpc://…"), as an administrator
    admin.list_incompatible_partitions(lake).to_pandas()
"""

from __future__ import annotations

from lakebed.operations import lookups, retirement
from lakebed.operations.lookups import *  # noqa: F403  (a new operation needs no line here)
from lakebed.operations.retirement import *  # noqa: F403

__all__ = [*lookups.__all__, *retirement.__all__]
