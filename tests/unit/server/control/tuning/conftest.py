from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.server.control.tuning.studies import Studies, open_studies


@pytest.fixture
def studies(tmp_path: Path) -> Iterator[Studies]:
    with open_studies(tmp_path) as opened:
        yield opened
