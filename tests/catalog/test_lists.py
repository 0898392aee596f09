"""Lists in conditions: one bound value, however long, whose elements are looked up in an index."""

from __future__ import annotations

import re

import sqlalchemy as sa

from lakebed.catalog.catalog import Catalog
from lakebed.catalog.expressions import one_of, one_of_bound
from lakebed.catalog.schema import series

SERIES = 3_000


def fill(catalog: Catalog) -> None:
    with catalog.write() as transaction:
        transaction.connection.execute(
            sa.insert(series),
            [
                {"view_set_name": "t", "view_instance_id": f"b{i}", "file_schema_hash": b"h"}
                for i in range(SERIES)
            ],
        )


def test_a_list_may_be_longer_than_there_are_parameters(catalog: Catalog) -> None:
    fill(catalog)
    names = [f"b{i}" for i in range(0, 200_000, 2)]
    with catalog.read() as connection:
        found = connection.scalars(
            sa.select(series.c.view_instance_id).where(one_of(series.c.view_instance_id, names))
        )
        assert sorted(found) == sorted(names[: SERIES // 2])


def test_a_list_is_looked_up_in_an_index_of_a_table_that_was_never_analyzed(
    catalog: Catalog, dialect: str
) -> None:
    fill(catalog)
    query = sa.select(series.c.series_id).where(
        series.c.view_set_name == sa.bindparam("view_set"),
        series.c.file_schema_hash == sa.bindparam("schema_hash"),
        one_of_bound(series.c.view_instance_id, "wanted"),
    )
    spelled = str(query.compile(catalog.engine))
    with catalog.glance() as connection:
        if dialect == "sqlite":
            steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {spelled}", ("t", b"h", "[]"))
            assert "view_instance_id=?" in " ".join(str(step) for step in steps)
        else:  # as the server plans what a connection has prepared
            numbered = iter(range(1, 4))
            spelled = re.sub(r"%\(\w+\)s", lambda _: f"${next(numbered)}", spelled)
            steps = connection.exec_driver_sql(f"EXPLAIN (GENERIC_PLAN) {spelled}")
            (searched,) = [step for (step,) in steps if "Index Cond" in step]
            assert "view_instance_id = ANY" in searched
