"""Trials of a program with changes from outside: a whole agent, a real sandbox, two ranks of a real training."""

import json
import os
from collections.abc import Iterator

import pytest

from tests.system.test_agent import World, _world
from tests.system.test_program_profiles import SCRIPT, profiler
from trainyard.formats.profiles.contract import CHANGES_VARIABLE, STEPS_VARIABLE
from trainyard.formats.profiles.step_times import decode_rows
from trainyard.link.contract import FrameKind, LaunchSpec
from trainyard.link.event_protocol import STEP_TIMES


@pytest.fixture
def world() -> Iterator[World]:
    yield from _world(is_root=os.geteuid() == 0)


@pytest.mark.flow
def test_a_job_that_would_never_end_completes_after_the_steps_of_its_trial(world: World) -> None:
    environment = {
        "OMP_NUM_THREADS": "1",
        STEPS_VARIABLE: "30",
        CHANGES_VARIABLE: json.dumps({"loader_workers": "1", "batch_size": "16", "channels_last": "true"}),
    }
    launch = LaunchSpec("torchrun", {"algo-1": 2})
    verdict = world.run(SCRIPT, profiler=profiler(), environment=environment, launch=launch)
    assert verdict["outcome"] == "completed", verdict
    folder = world.folder.ml / STEP_TIMES
    for rank in ("worker_0", "worker_1"):
        rows = decode_rows((folder / f"{rank}.steps").read_bytes())
        assert sum(row.steps for row in rows) == 30
        facts = json.loads((folder / f"{rank}.json").read_bytes())
        assert facts["changes"] == {"loader_workers": "1", "batch_size": "16"}
        assert facts["samples_per_step"] == pytest.approx(16, rel=0.1)
    notes = {payload["text"] for payload in world.payloads(FrameKind.NOTE)}
    assert "The trial did not change channels_last: the model has no two-dimensional convolutions." in notes
