"""Values of resources by which lists can filter and sort: numbers and texts, each with its index."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    owner = sa.ForeignKey("resources.id", ondelete="CASCADE", deferrable=True, initially="IMMEDIATE")
    op.create_table(
        "resource_values",
        sa.Column("resource", WORD, owner, primary_key=True),
        sa.Column("name", WORD, primary_key=True),
        sa.Column("text", WORD, primary_key=True),
        sa.Column("number", sa.Double()),
        sa.Column("account", WORD, nullable=False),
        sa.Column("kind", WORD, nullable=False),
        sqlite_with_rowid=False,
    )
    create_partial("resource_values_by_number", ["kind", "name", "account", "number", "resource"], "number IS NOT NULL")
    create_partial("resource_values_by_text", ["kind", "name", "account", "text", "resource"], "number IS NULL")


def create_partial(name: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, "resource_values", columns, sqlite_where=condition, postgresql_where=condition)
