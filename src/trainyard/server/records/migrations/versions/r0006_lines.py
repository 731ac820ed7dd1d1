"""Queues of due resources (called lines in this revision), and an index that finds the first of each account."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("resources", sa.Column("line", WORD))
    put_jobs_in_line()
    in_line = sa.text("due_at IS NOT NULL AND lease_token IS NULL AND line IS NOT NULL")
    op.create_index(
        "resources_in_line",
        "resources",
        ["kind", "line", "account", "due_at", "id"],
        sqlite_where=in_line,
        postgresql_where=in_line,
    )


def put_jobs_in_line() -> None:
    """Put each job that has not ended in the line of its yard and engine."""
    connection = op.get_bind()
    due = sa.text("SELECT id, body FROM resources WHERE kind = 'training-job' AND due_at IS NOT NULL")
    for row, body in connection.execute(due).all():
        job = json.loads(body).get("job", {})
        line = f"{job.get('site', '')}/{job.get('plan', {}).get('engine', '')}"
        connection.execute(sa.text("UPDATE resources SET line = :line WHERE id = :id"), {"line": line, "id": row})
