from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.server.control.bench import Bench, open_bench
from tests.unit.server.services.accounts import Accounts, open_accounts


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with open_bench(tmp_path) as opened:
        yield opened


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[Accounts]:
    with open_accounts(tmp_path) as opened:
        yield opened
