"""The debugger under faults: a program that is killed at any moment, and a disk that is full."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.system.test_agent import World, _world
from tests.system.test_debugger import ONE_THREAD, SCRIPT, STALLED, TENSORS, debugger, downloaded, notes, standings
from trainyard.formats.tensors.trials.trial import create_trial
from trainyard.link.contract import FrameKind, RuleSpec, SyncSpec
from trainyard.testing.eventually import eventually

pytestmark = pytest.mark.slow

KILLS = 8

# A training with known results: the loss of step n is n.
KNOWN = """
import sys, torch
import trainyard.hook
hook = trainyard.hook.Hook(sys.argv[1], collections={"weights": {"save_interval": 5}})
model = torch.nn.Linear(4, 4)
hook.watch(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
step = 0
while True:
    loss = (model(torch.ones(1, 4)) * 0).sum() + float(step)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    hook.save_scalar("number", step)
    step += 1
    if step == 20:
        print("running", flush=True)
"""


@pytest.fixture
def world() -> Iterator[World]:
    yield from _world(is_root=os.geteuid() == 0)


@pytest.mark.parametrize("seed", range(KILLS))
def test_every_sealed_step_of_a_killed_training_can_be_read(tmp_path: Path, seed: int) -> None:
    environment = {**os.environ, **ONE_THREAD}
    program = subprocess.Popen(
        [sys.executable, "-c", KNOWN, str(tmp_path / "trial")], stdout=subprocess.PIPE, env=environment
    )
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == b"running\n"
        time.sleep(1.0 + random.Random(seed).random() * 2)
    finally:
        program.kill()
        program.wait()
        program.stdout.close()
    trial = create_trial(tmp_path / "trial")
    assert not trial.loaded_all_steps
    series = trial.series("scalar/number")
    assert len(series.steps) > 20
    np.testing.assert_array_equal(series.steps, np.arange(len(series.steps)))
    np.testing.assert_array_equal(series.values, series.steps)
    for step in trial.tensor("Linear_weight").steps():
        assert trial.tensor("Linear_weight").value(step).shape == (4, 4)


def test_a_killed_program_leaves_its_trial_and_its_rules_finish(world: World, tmp_path: Path) -> None:
    world.start(
        SCRIPT.replace('print("trained", flush=True)', ""),
        debugger=debugger(RuleSpec("nan", "NotANumber"), STALLED),
        environment=ONE_THREAD | {"STEPS": "100000"},
    )
    folder = world.folder.ml / TENSORS.removeprefix("/opt/ml/")
    eventually(lambda: any(folder.glob("steps/worker_0/*.arrows")) and len(_judged(world)) == 2, "the first steps")
    for pid in _programs(world):
        os.kill(pid, signal.SIGKILL)
    verdict = world.verdict()
    assert (verdict["outcome"], verdict["card"]["signal"]) == ("failed", "SIGKILL"), verdict
    assert {payload["status"] for payload in standings(world).values()} == {"NoIssuesFound"}
    trial = create_trial(downloaded(world, tmp_path / "trial"))
    assert trial.loaded_all_steps
    assert len(trial.series("gradient/Sequential_0.weight", "mean").steps) > 0


def test_a_killed_rule_process_ends_its_rules_with_an_error_and_affects_nothing_else(world: World) -> None:
    rules = [RuleSpec("nan", "NotANumber"), STALLED]
    world.start(SCRIPT, debugger=debugger(*rules), environment=ONE_THREAD | {"STEPS": "400"})
    eventually(lambda: "stalled" in _judged(world), "the judge")
    for pid in _processes("trainyard.instance.rule_evaluation.start", world):
        os.kill(pid, signal.SIGKILL)
    assert world.verdict()["outcome"] == "completed"
    assert standings(world)["nan"]["status"] == "NoIssuesFound"
    assert standings(world)["stalled"]["status"] == "Error"
    assert "signal 9" in standings(world)["stalled"]["details"]


def test_a_store_that_refuses_tensors_loses_only_the_tensors(world: World) -> None:
    lost = replace(debugger(RuleSpec("nan", "NotANumber")), tensors=SyncSpec("s3://no-such-bucket/tensors", TENSORS))
    verdict = world.run(SCRIPT, debugger=lost, environment=ONE_THREAD)
    assert verdict["outcome"] == "completed", verdict
    assert standings(world)["nan"]["judged"] == 40
    assert any("no-such-bucket" in note for note in notes(world)), notes(world)


def test_a_full_disk_under_the_hook_neither_stops_nor_slows_training(tmp_path: Path) -> None:
    """The tensors go to a file system of two megabytes; those that do not fit are dropped and counted."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    small = tmp_path / "small"
    small.mkdir()
    program = KNOWN.replace("while True:", "import time; began = time.time()\nwhile step < 3000:").replace(
        '"save_interval": 5', '"save_interval": 1'
    )
    program += "\nhook.close(); print('trained', step, time.time() - began, hook._hook.recording.dropped, flush=True)\n"
    program = program.replace('print("running", flush=True)', "pass")
    mounted = f'mount -t tmpfs -o size=2m tmpfs {small} && exec {sys.executable} -c "$PROGRAM" {small}/trial'
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", mounted],
        env={**os.environ, **ONE_THREAD, "PROGRAM": program},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    words = ended.stdout.split()
    assert words[:2] == ["trained", "3000"], ended
    assert int(words[3]) > 0


def _judged(world: World) -> set[str]:
    return {payload["rule"] for payload in world.payloads(FrameKind.RULE)}


def _programs(world: World) -> list[int]:
    return _processes("train.py", world)


def _processes(word: str, world: World) -> list[int]:
    """Return the processes in the world's sandboxes that have a word in their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            environment = (folder / "environ").read_bytes().decode(errors="replace")
            mounts = (folder / "mountinfo").read_text(errors="replace")
        except OSError:
            continue
        is_of_job = "TRAINING_JOB_NAME=mnist-7" in environment and str(world.root) in mounts
        if is_of_job and any(word in each for each in command):
            found.append(int(folder.name))
    assert found, f"no process has {word} in its command line"
    return found
