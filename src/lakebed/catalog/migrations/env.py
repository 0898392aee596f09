"""Alembic's entry: runs the wanted revision on the connection that `migrate` opened and commits."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    transactional_ddl=False,  # the caller's transaction surrounds the whole revision
)
context.run_migrations()
