"""The environment in which Alembic runs the revisions."""

from alembic import context

# Both databases roll back schema changes, although Alembic assumes that SQLite does not. The caller owns the connection
# and its transaction.
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
