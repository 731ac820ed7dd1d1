from pathlib import Path

import pytest

from trainyard.engines.engine_set import EngineSet
from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.testing.engines.simulated import SimulatedEngine


class Stubborn(SimulatedEngine):
    def close(self) -> None:
        raise Unavailable("It does not answer.")


class Closing(SimulatedEngine):
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def engines(tmp_path: Path) -> EngineSet:
    return EngineSet(
        [
            SimulatedEngine(tmp_path, name="far", is_here=False),
            SimulatedEngine(tmp_path, name="local"),
            SimulatedEngine(tmp_path, name="container"),
        ]
    )


def test_an_engine_is_found_by_its_name_and_the_first_by_none(engines: EngineSet) -> None:
    assert engines["container"].name == "container"
    assert engines[""] is engines.default
    assert engines.names == ("far", "local", "container")


def test_a_job_of_an_engine_that_the_yard_was_started_without_can_wait_for_it(engines: EngineSet) -> None:
    with pytest.raises(Unavailable, match='started without the engine "ray"'):
        engines["ray"]
    assert engines.queue_of("ray") == "ray"


def test_engines_on_the_yards_own_machine_share_a_line_and_others_have_their_own(engines: EngineSet) -> None:
    assert {name: engines.queue_of(name) for name in ("", "far", "local", "container")} == {
        "": "far",
        "far": "far",
        "local": "local",
        "container": "local",
    }


def test_engines_need_unique_names(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="each engine only once, not local, local"):
        EngineSet([SimulatedEngine(tmp_path, name="local"), SimulatedEngine(tmp_path, name="local")])


def test_one_engine_that_cannot_be_closed_does_not_keep_another_open(tmp_path: Path) -> None:
    last = Closing(tmp_path, name="last")

    EngineSet([Stubborn(tmp_path, name="first"), last]).close()

    assert last.is_closed
