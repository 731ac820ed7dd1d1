"""Indexes that find resources by their tags."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_index("tags_by_value", "tags", ["key", "value", "arn"])
    op.create_index("tags_by_account_value", "tags", ["key", "account", "value", "arn"])
    tagged = sa.text("arn != ''")
    op.create_index("resources_by_arn", "resources", ["arn"], sqlite_where=tagged, postgresql_where=tagged)
