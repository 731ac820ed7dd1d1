import pytest

from tests.unit.server.control.bench import Bench
from tests.unit.server.control.profiling.profiles import Profiled


@pytest.fixture
def profiled(bench: Bench) -> Profiled:
    return Profiled(bench)
