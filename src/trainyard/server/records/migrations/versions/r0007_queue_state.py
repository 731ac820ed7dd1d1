"""Columns for queue state and priority, which `due_at` used to encode by shifted dates."""

import json
from collections import defaultdict
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
ROWS_AT_ONCE = 500

SELECT_JOBS = sa.text(
    "SELECT id, body FROM resources WHERE kind = 'training-job' AND due_at IS NOT NULL AND id > :last "
    "ORDER BY id LIMIT :rows"
)
QUEUE_JOBS = sa.text(
    "UPDATE resources SET state = :state, priority = :priority, due_at = created_at WHERE id IN :ids"
).bindparams(sa.bindparam("ids", expanding=True))


def upgrade() -> None:
    op.drop_index("resources_due", "resources")
    op.drop_index("resources_in_line", "resources")
    op.execute("ALTER TABLE resources RENAME COLUMN line TO queue")
    op.add_column("resources", sa.Column("state", WORD, nullable=False, server_default=""))
    op.add_column("resources", sa.Column("priority", sa.BigInteger(), nullable=False, server_default="0"))
    queue_jobs()
    is_free = "due_at IS NOT NULL AND lease_token IS NULL"
    create_partial("resources_due", ["kind", "state", "due_at", "id"], is_free)
    in_queue = ["kind", "state", "queue", "account", "priority", "due_at", "id"]
    create_partial("resources_in_queue", in_queue, f"{is_free} AND queue IS NOT NULL")


def queue_jobs() -> None:
    """Give each training job that has not ended its state, priority and true date, read from its body.

    The old dates are ambiguous: from 2039-05-19 on, an on-demand job would read as spot.
    """
    connection, last = op.get_bind(), ""
    while rows := connection.execute(SELECT_JOBS, {"last": last, "rows": ROWS_AT_ONCE}).all():
        ids = defaultdict(list)
        for row, body in rows:
            ids[state_and_priority(json.loads(body).get("job", {}))].append(row)
        for (state, priority), some in ids.items():
            connection.execute(QUEUE_JOBS, {"state": state, "priority": priority, "ids": some})
        last = rows[-1][0]


def state_and_priority(job: dict[str, Any]) -> tuple[str, int]:
    attempts = job.get("attempts") or [{"ended_at": 0}]
    is_placed = attempts[-1].get("ended_at") is None
    return "placed" if is_placed else "waiting", int(bool(job.get("plan", {}).get("is_spot")))


def create_partial(name: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, "resources", columns, sqlite_where=condition, postgresql_where=condition)
