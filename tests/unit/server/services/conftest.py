from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.server.services.accounts import Accounts, open_accounts


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[Accounts]:
    with open_accounts(tmp_path) as opened:
        yield opened
