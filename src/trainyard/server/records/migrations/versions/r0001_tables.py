"""The tables and their keys."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
MOMENT = sa.BigInteger()


def upgrade() -> None:
    create_resources()
    create_events()
    create_users()
    create_tags()
    op.create_table(
        "facts",
        sa.Column("name", WORD, primary_key=True),
        sa.Column("value", WORD, nullable=False),
    )


def create_resources() -> None:
    parent = sa.ForeignKey("resources.id", ondelete="CASCADE", deferrable=True, initially="IMMEDIATE")
    op.create_table(
        "resources",
        sa.Column("id", WORD, primary_key=True),
        sa.Column("account", WORD, nullable=False),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("name", WORD, nullable=False),
        sa.Column("region", WORD, nullable=False),
        sa.Column("status", WORD, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("modified_at", MOMENT, nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("parent", WORD, parent),
        sa.Column("arn", WORD, nullable=False),
        sa.Column("due_at", MOMENT),
        sa.Column("lease_token", WORD),
        sa.Column("lease_worker", WORD),
        sa.Column("lease_expires_at", MOMENT),
    )
    op.create_index("resources_by_account_name", "resources", ["account", "kind", "name"], unique=True)


def create_events() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "events",
        sa.Column("sequence", number, primary_key=True, autoincrement=True),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("account", WORD, nullable=False),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("subject", WORD, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("events_by_account", "events", ["account", "sequence"])


def create_users() -> None:
    op.create_table(
        "users",
        sa.Column("account", WORD, primary_key=True),
        sa.Column("name", WORD, nullable=False),
        sa.Column("role", WORD, nullable=False),
        sa.Column("is_admin", sa.Boolean(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("removed_at", MOMENT),
    )
    living = sa.text("removed_at IS NULL")
    op.create_index("users_by_name", "users", ["name"], unique=True, sqlite_where=living, postgresql_where=living)
    op.create_table(
        "access_keys",
        sa.Column("id", WORD, primary_key=True),
        sa.Column("secret", WORD, nullable=False),
        sa.Column("account", WORD, sa.ForeignKey("users.account"), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("session_token", WORD),
        sa.Column("expires_at", MOMENT),
        sa.Column("role", WORD),
        sa.Column("session", WORD),
    )
    op.create_index("access_keys_by_account", "access_keys", ["account", "expires_at"])
    op.create_index("access_keys_by_expiry", "access_keys", ["expires_at"])


def create_tags() -> None:
    op.create_table(
        "tags",
        sa.Column("account", WORD, primary_key=True),
        sa.Column("arn", WORD, primary_key=True),
        sa.Column("key", WORD, primary_key=True),
        sa.Column("value", WORD, nullable=False),
    )
    op.create_index("tags_by_arn", "tags", ["arn", "account", "key"])
