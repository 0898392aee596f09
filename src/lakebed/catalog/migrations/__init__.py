"""Alembic's revisions of the catalog; `lakebed.catalog.migrate` runs them one by one."""
