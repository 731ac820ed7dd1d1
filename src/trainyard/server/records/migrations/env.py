"""What Alembic runs around the revisions."""

from alembic import context

# Both databases undo definitions with everything else, though Alembic holds SQLite not to; and the transaction is the
# caller's, who gave the connection.
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
