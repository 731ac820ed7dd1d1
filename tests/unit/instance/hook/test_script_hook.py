"""A hook that a program creates in three lines, and the hook that a job attaches."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainyard.hook
from trainyard.formats.tensors.contract import Mode, Step
from trainyard.formats.tensors.trials.trial import create_trial
from trainyard.instance.hook import attachment
from trainyard.instance.hook.attachment import attach
from trainyard.instance.hook.contract import HookContext
from trainyard.testing.eventually import eventually


class Follower:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.notes: list[str] = []

    def take(self, step: Step) -> None:
        self.steps.append(step)

    def end(self) -> None: ...

    def send_event(self, kind: str, payload: Any) -> None:
        if kind == "note":
            self.notes.append(payload["text"])


@pytest.fixture
def follower() -> Iterator[Follower]:
    yield Follower()
    attachment.take_over()


def train(model: nn.Module, criterion: nn.Module, *, steps: int = 3) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        criterion(model(torch.randn(4, 6)), torch.randn(4, 2)).backward()
        optimizer.step()


def steps_elsewhere(folder: Path) -> list[int]:
    """The steps that another process finds now."""
    code = "import sys; from trainyard.trial import create_trial; print(create_trial(sys.argv[1]).steps())"
    answer = subprocess.run(
        [sys.executable, "-c", code, str(folder)], check=True, capture_output=True, text=True, timeout=60
    )
    found: list[int] = json.loads(answer.stdout)
    return found


def scalar(step: Step, name: str) -> float:
    return float(step.scalars[step.table.scalars.index(step.table.places[name])])


def configure(ml: Path, content: Any) -> None:
    file = ml / "input/config/debughookconfig.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))


def test_three_lines_record_a_training_whose_parts_were_made_before(tmp_path: Path) -> None:
    model, criterion = nn.Linear(6, 2), nn.MSELoss()
    hook = trainyard.hook.Hook(tmp_path, collections=["weights", "gradients"], parameters={"save_interval": 2})
    hook.watch(model)
    train(model, criterion)
    hook.close()
    trial = create_trial(str(tmp_path))
    assert set(trial.tensor_names()) == {
        "MSELoss_output_0",
        "Linear_weight",
        "gradient/Linear_weight",
        "gradient/Linear_bias",
    }
    assert trial.tensor("Linear_weight").steps() == [0, 2]
    assert trial.loaded_all_steps


def test_a_program_reads_every_step_it_has_made_and_still_adds_to_the_last(tmp_path: Path) -> None:
    model, criterion = nn.Linear(6, 2), nn.MSELoss()
    everything: dict[str, str | int | bool] = {"save_interval": 1, "overhead_budget": "none"}
    hook = trainyard.hook.Hook(tmp_path, collections=["weights"], parameters=everything)
    hook.watch(model)
    for made in range(1, 6):
        train(model, criterion, steps=1)
        trial = create_trial(str(tmp_path))
        assert trial.steps() == list(range(made))
        hook.save_scalar("late", made)
        hook.save_tensor("picture", torch.full((2,), float(made)))
    hook.close()
    trial = create_trial(str(tmp_path))
    assert trial.steps() == [0, 1, 2, 3, 4]
    assert list(trial.series("scalar/late").values) == [1, 2, 3, 4, 5]
    assert trial.tensor("picture").value(4).tolist() == [5, 5]
    assert trial.tensor("Linear_weight").steps() == [0, 1, 2, 3, 4]
    assert trial.tensor("Linear_weight").value(4).shape == (2, 6)


def test_another_process_sees_the_last_step_before_the_next_begins(tmp_path: Path) -> None:
    model, criterion = nn.Linear(6, 2), nn.MSELoss()
    everything: dict[str, str | int | bool] = {"save_interval": 1, "overhead_budget": "none"}
    hook = trainyard.hook.Hook(tmp_path, parameters=everything)
    hook.watch(model)
    train(model, criterion, steps=1)
    eventually(lambda: any(tmp_path.glob("*.manifest.json")))
    eventually(lambda: steps_elsewhere(tmp_path) == [0])
    hook.save_scalar("late", 1)
    train(model, criterion, steps=10)
    eventually(lambda: steps_elsewhere(tmp_path) == list(range(11)))
    hook.save_scalar("late", 10)
    hook.close()
    trial = create_trial(str(tmp_path))
    assert trial.steps() == list(range(11))
    late = trial.tensor("scalar/late")
    assert {step: late.value(step) for step in late.steps()} == {0: 1, 10: 10}


def test_rules_get_each_step_once_with_what_the_program_saved_afterwards(tmp_path: Path, follower: Follower) -> None:
    configure(tmp_path, {"LocalPath": str(tmp_path / "jobs")})
    attach(tmp_path, HookContext([follower], send_event=follower.send_event))
    model, criterion = nn.Linear(6, 2), nn.MSELoss()
    with trainyard.hook.Hook(tmp_path / "own", parameters={"save_interval": 1}) as hook:
        hook.watch(model)
        for number in range(3):
            train(model, criterion, steps=1)
            assert create_trial(str(tmp_path / "own")).steps()[-1] == number
            assert [step.number for step in follower.steps] == list(range(number))
            hook.save_scalar("late", number)
    assert [(step.number, scalar(step, "scalar/late")) for step in follower.steps] == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_only_watched_models_are_followed(tmp_path: Path) -> None:
    criterion = nn.MSELoss()
    with trainyard.hook.Hook(tmp_path, parameters={"save_interval": 1}) as hook:
        model = nn.Linear(6, 2)
        hook.watch(model)
        train(nn.Linear(6, 2), nn.L1Loss(), steps=2)
        train(model, criterion, steps=2)
        train(nn.Linear(6, 2), nn.L1Loss(), steps=2)
    trial = create_trial(str(tmp_path))
    assert trial.steps() == [0, 1]
    assert trial.tensor_names() == ["MSELoss_output_0"]


def test_scalars_and_tensors_of_the_program_belong_to_its_step(tmp_path: Path) -> None:
    model, criterion = nn.Linear(6, 2), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainyard.hook.Hook(tmp_path) as hook:
        hook.watch(model)
        for number in range(3):
            criterion(model(torch.randn(4, 6)), torch.randn(4, 2)).backward()
            optimizer.step()
            hook.save_scalar("accuracy", number / 10)
            hook.save_tensor("confusion", [[number, 1], [0, 2]])
    trial = create_trial(str(tmp_path))
    assert trial.tensor("scalar/accuracy").steps() == [0, 1, 2]
    assert trial.tensor("scalar/accuracy").value(2) == pytest.approx(0.2)
    assert trial.tensor("confusion").value(1).tolist() == [[1, 1], [0, 2]]


def test_the_mode_that_the_program_sets_wins(tmp_path: Path) -> None:
    model = nn.Linear(6, 2)
    with trainyard.hook.Hook(tmp_path, collections={"outs": {"include_regex": "output", "save_interval": 1}}) as hook:
        hook.watch(model)
        hook.mode("PREDICT")
        model(torch.randn(4, 6))
        hook.mode(Mode.EVAL)
        model(torch.randn(4, 6))
    trial = create_trial(str(tmp_path))
    assert [trial.mode(step) for step in trial.steps()] == [Mode.PREDICT, Mode.EVAL]


def test_a_loss_of_the_programs_own_is_named_after_its_class(tmp_path: Path) -> None:
    class HalfLoss(nn.Module):  # type: ignore[misc]  # mypy does not read torch
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return 0.5 * ((x - y) ** 2).mean()

    model, criterion = nn.Linear(6, 2), HalfLoss()
    with trainyard.hook.Hook(tmp_path) as hook:
        hook.watch(model, loss=criterion)
        train(model, criterion, steps=1)
    assert create_trial(str(tmp_path)).tensor_names() == ["HalfLoss_output_0"]


def test_a_job_with_a_configuration_has_a_hook(tmp_path: Path, follower: Follower) -> None:
    configure(tmp_path, {"LocalPath": "/opt/ml/output/tensors", "HookParameters": {"save_interval": "1"}})
    attach(tmp_path, HookContext([follower], send_event=follower.send_event))
    attach(tmp_path, HookContext([follower], send_event=follower.send_event))
    train(nn.Linear(6, 2), nn.MSELoss())
    attachment.take_over()
    assert [step.number for step in follower.steps] == [0, 1, 2]
    assert create_trial(str(tmp_path / "output/tensors")).steps() == [0, 1, 2]


def test_a_job_without_a_configuration_has_none(tmp_path: Path, follower: Follower) -> None:
    attach(tmp_path, HookContext([follower], send_event=follower.send_event))
    train(nn.Linear(6, 2), nn.MSELoss())
    assert attachment.take_over() is not None
    assert follower.steps == []
    assert list(tmp_path.iterdir()) == []


def test_an_invalid_configuration_is_reported_and_nothing_is_captured(tmp_path: Path, follower: Follower) -> None:
    configure(tmp_path, {"HookParameters": {"save_interval": "often"}})
    attach(tmp_path, HookContext([follower], send_event=follower.send_event))
    train(nn.Linear(6, 2), nn.MSELoss())
    assert follower.notes[0].startswith('No tensors are captured: "save_interval" is "often"')


def test_a_hook_that_the_program_creates_takes_over_the_context(tmp_path: Path, follower: Follower) -> None:
    configure(tmp_path, {"LocalPath": str(tmp_path / "jobs")})
    attach(tmp_path, HookContext([follower], send_event=follower.send_event))
    model = nn.Linear(6, 2)
    with trainyard.hook.Hook(tmp_path / "own", parameters={"save_interval": 1}) as hook:
        hook.watch(model)
        train(model, nn.MSELoss())
    assert not (tmp_path / "jobs").exists()
    assert create_trial(str(tmp_path / "own")).steps() == [0, 1, 2]
    assert [step.number for step in follower.steps] == [0, 1, 2]


def test_importing_the_public_module_imports_nothing_of_torch() -> None:
    code = "import sys, trainyard.hook; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
