"""Values of resources by which lists can filter and sort: numbers and texts, each with its index."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

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
    of_name = ["kind", "name", "account"]
    op.create_index("resource_values_by_number", "resource_values", [*of_name, "number", "resource"])
    is_text = sa.text("number IS NULL")
    op.create_index(
        "resource_values_by_text",
        "resource_values",
        [*of_name, "text", "resource"],
        sqlite_where=is_text,
        postgresql_where=is_text,
    )
