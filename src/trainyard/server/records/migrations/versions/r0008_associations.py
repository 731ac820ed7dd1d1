"""The edges of the lineage."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

INDEXES = {
    "associations_by_destination": ["account", "destination", "source"],
    "associations_by_source_created": ["account", "source", "created_at", "destination"],
    "associations_by_destination_created": ["account", "destination", "created_at", "source"],
    "associations_by_created": ["account", "created_at", "source", "destination"],
}


def upgrade() -> None:
    op.create_table(
        "associations",
        sa.Column("account", WORD, primary_key=True),
        sa.Column("source", WORD, primary_key=True),
        sa.Column("destination", WORD, primary_key=True),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("source_type", WORD, nullable=False),
        sa.Column("destination_type", WORD, nullable=False),
    )
    for name, columns in INDEXES.items():
        op.create_index(name, "associations", columns)
