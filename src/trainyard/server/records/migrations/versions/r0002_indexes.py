"""Indexes for every order and scope of a list, and for claims."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

ORDERS = {
    "name": ["name"],
    "created": ["created_at"],
    "modified": ["modified_at"],
    "status": ["status", "created_at"],
    "status_name": ["status", "name"],
    "status_modified": ["status", "modified_at"],
}


def upgrade() -> None:
    for order, columns in ORDERS.items():
        # The unique index by name exists already.
        if order != "name":
            op.create_index(f"resources_by_account_{order}", "resources", ["account", "kind", *columns, "id"])
        op.create_index(f"resources_by_kind_{order}", "resources", ["kind", *columns, "id"])
        create_partial(f"resources_by_parent_{order}", ["parent", "kind", *columns, "id"], "parent IS NOT NULL")
    create_partial("resources_due", ["kind", "due_at", "id"], "due_at IS NOT NULL AND lease_token IS NULL")
    create_partial("resources_leased", ["kind", "lease_expires_at"], "lease_token IS NOT NULL")


def create_partial(name: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, "resources", columns, sqlite_where=condition, postgresql_where=condition)
