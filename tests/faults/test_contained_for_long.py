"""Programs that take all resources for longer than the quick tests; see tests/system/test_contained.py."""

from collections.abc import Callable, Iterator

import pytest

from tests.system.containment import Case, besieged, contain
from tests.system.trainees import Trainee
from tests.system.yards import KINDS, Place, place_for
from trainyard.testing.yard import RunningYard

GRACE_S = 120  # between SIGTERM and SIGKILL

CASES = (
    Case(
        "stubborn",
        """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.setsid()
        else:
            print("ready", flush=True)
        while True:
            time.sleep(1)
        """,
        "Stopped",
        stops_at="ready",
        limit_s=3600,
        takes_most_s=GRACE_S + 30,
    ),
    Case(
        "endless-fork-bomb",
        """
        import os
        while True:
            try:
                os.fork()
            except OSError:
                pass
        """,
        "Stopped",
        ["time limit", "out of memory"],
        limit_s=3,
        takes_most_s=GRACE_S + 30,
        or_status="Failed",
    ),
    Case(
        "million-files",
        """
        import os
        def fill(part):
            os.makedirs(f"/opt/ml/checkpoints/{part}")
            for number in range(250_000):
                os.close(os.open(f"/opt/ml/checkpoints/{part}/{number}", os.O_CREAT | os.O_WRONLY))
        children = []
        for part in range(4):
            child = os.fork()
            if child == 0:
                fill(part)
                os._exit(0)
            children.append(child)
        print([os.waitpid(child, 0)[1] for child in children])
        """,
        "Completed",
        limit_s=900,
        takes_most_s=900,
    ),
    Case(
        "flood",
        "import os\nline = b'x' * 99 + b'\\n'\nwhile True: os.write(1, line * 600)",
        "Stopped",
        ["time limit"],
        limit_s=20,
        takes_most_s=120,
    ),
)


@pytest.fixture(params=KINDS, scope="module")
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place_for(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def siege(place: Place) -> Iterator[tuple[RunningYard, Trainee]]:
    with besieged(place) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_program_that_takes_all_resources_for_long_is_contained(
    case: Case, siege: tuple[RunningYard, Trainee], record_property: Callable[[str, object], None]
) -> None:
    contain(case, *siege, record=record_property)
