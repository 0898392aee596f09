"""The whole content of a catalog's database, to compare it before and after something."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from tests.parts.older import describe


def dump_database(engine: sa.Engine) -> dict[str, Any]:
    """Return the definition of everything in a database, and the rows of each table."""
    rows = {}
    with engine.connect() as connection:
        for table in sa.inspect(connection).get_table_names():
            content = connection.exec_driver_sql(f'SELECT * FROM "{table}"')
            rows[table] = sorted(repr(tuple(row)) for row in content)
    return {"definitions": describe(engine), "rows": rows}
