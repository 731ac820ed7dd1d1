"""Counters of accounts, starting with the instances of training jobs that have not ended."""

import json
from collections import Counter

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    table = op.create_table(
        "counters",
        sa.Column("account", WORD, primary_key=True),
        sa.Column("name", WORD, primary_key=True),
        sa.Column("value", sa.BigInteger(), nullable=False),
    )
    rows = [{"account": account, "name": name, "value": value} for (account, name), value in count_instances().items()]
    if rows:
        op.bulk_insert(table, rows)


def count_instances() -> Counter[tuple[str, str]]:
    living = sa.text(
        "SELECT account, body FROM resources WHERE kind = 'training-job' AND status IN ('InProgress', 'Stopping')"
    )
    found: Counter[tuple[str, str]] = Counter()
    for account, body in op.get_bind().execute(living):
        plan = json.loads(body)["job"]["plan"]
        for name in ("on-demand", f"on-demand/{plan['instance_type']}"):
            found[account, f"training-instances/{name}"] += plan["instance_count"]
    return found
