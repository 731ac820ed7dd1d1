"""Names at the end of the indexes by time, so that a search for part of a name reads only matching rows."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

ORDERS = {
    "created": ["created_at"],
    "modified": ["modified_at"],
    "status": ["status", "created_at"],
    "status_modified": ["status", "modified_at"],
}


def upgrade() -> None:
    with_parent = sa.text("parent IS NOT NULL")
    for order, columns in ORDERS.items():
        for scope in ("account", "kind", "parent"):
            op.drop_index(f"resources_by_{scope}_{order}", "resources")
        ends = [*columns, "id", "name"]
        op.create_index(f"resources_by_account_{order}", "resources", ["account", "kind", *ends])
        op.create_index(f"resources_by_kind_{order}", "resources", ["kind", *ends])
        op.create_index(
            f"resources_by_parent_{order}",
            "resources",
            ["parent", "kind", *ends],
            sqlite_where=with_parent,
            postgresql_where=with_parent,
        )
