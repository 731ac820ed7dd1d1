"""Runs Alembic inside a transaction that the caller commits."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def upgrade(connection: Connection, to: str = "head") -> None:
    """Run the revisions that the database lacks; `env.py` beside this file takes the connection from the attributes."""
    config = Config()
    # Doubled, because the options of Alembic's configuration expand percent signs.
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, to)
