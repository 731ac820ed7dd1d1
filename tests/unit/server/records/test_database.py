"""The URL says which database."""

import subprocess
import sys

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.records.database import open_database


@pytest.mark.parametrize("url", ["", "records.db", "mysql://host/db", "sqlite://", "sqlite:records.db"])
def test_a_url_of_an_unknown_scheme_is_refused_with_what_to_write(url: str) -> None:
    with pytest.raises(InvalidRequest, match="write sqlite:///PATH or postgresql://HOST/DATABASE"):
        open_database(url)


def test_an_invalid_postgresql_url_is_refused_without_showing_its_password() -> None:
    with pytest.raises(InvalidRequest) as caught:
        open_database("postgresql://me:secret@host:port/x")
    assert "secret" not in caught.value.message


def test_a_missing_driver_is_reported_with_how_to_install_it() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from trainyard.foundation.errors import InvalidRequest\n"
        "from trainyard.server.records.sql import open_records\n"
        "try: open_records('postgresql://host/x')\n"
        "except InvalidRequest as error: print(error)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 'pip install "trainyard[postgres]"' in told.stdout
