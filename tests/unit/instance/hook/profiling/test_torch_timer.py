import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, IterableDataset

from trainyard.formats.profiles.contract import StepPhase
from trainyard.formats.profiles.step_times import EVAL, TRAIN, StepRow, decode_rows
from trainyard.instance.hook.profiling.step_file import StepFile
from trainyard.instance.hook.profiling.torch_timer import TorchTimer
from trainyard.testing.eventually import eventually


class Timed:
    """A timer that writes to a folder, and the notes that it sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: list[str] = []
        self.timer = TorchTimer(lambda facts: StepFile(folder, "worker_0", facts), note=self.notes.append)

    def steps(self) -> list[StepRow]:
        """Close the timer and return all steps."""
        self.timer.close()
        assert self.notes == []
        file = self.folder / "worker_0.steps"
        return list(decode_rows(file.read_bytes())) if file.exists() else []


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[Timed]:
    made = Timed(tmp_path)
    yield made
    made.timer.close()


class Samples(Dataset[Any]):  # type: ignore[misc]
    """Samples that take some time to make."""

    def __init__(self, count: int, seconds: float = 0.0) -> None:
        self._count, self._seconds = count, seconds

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(self._seconds)
        return torch.full((4,), float(index)), index % 2


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, labels: torch.Tensor) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()


def phase_ms(step: StepRow, phase: StepPhase) -> float:
    return step.phases_ns[phase] / 1e6


def test_each_phase_of_a_training_is_timed_and_phases_add_up_to_the_step(timed: Timed) -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for inputs, labels in DataLoader(Samples(32, 0.002), batch_size=4):
        train_step(model, optimizer, inputs, labels)
    steps = timed.steps()
    assert [(step.number, step.mode) for step in steps] == [(number, TRAIN) for number in range(8)]
    for step in steps:
        assert phase_ms(step, StepPhase.DATA_WAIT) >= 8
        assert all(step.phases_ns[phase] for phase in (StepPhase.FORWARD, StepPhase.BACKWARD, StepPhase.OPTIMIZER))
        assert abs(sum(step.phases_ns) / 1000 - (step.ended_us - step.started_us)) <= 1


def test_what_no_phase_claims_is_other(timed: Timed) -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        time.sleep(0.02)
        train_step(model, optimizer, torch.ones(2, 4), torch.tensor([0, 1]))
    assert all(phase_ms(step, StepPhase.OTHER) >= 20 for step in timed.steps()[1:])


def test_a_checkpoint_is_part_of_the_next_step(timed: Timed, tmp_path: Path) -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for number in range(3):
        if number == 2:
            torch.save(model.state_dict(), tmp_path / "model.pt")
        train_step(model, optimizer, torch.ones(2, 4), torch.tensor([0, 1]))
    saved = [step.phases_ns[StepPhase.CHECKPOINT] > 0 for step in timed.steps()]
    assert saved == [False, False, True]


def test_forwards_without_gradients_are_steps_of_an_evaluation(timed: Timed) -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train_step(model, optimizer, torch.ones(2, 4), torch.tensor([0, 1]))
    model.eval()
    with torch.no_grad():
        for inputs, _ in DataLoader(Samples(8), batch_size=4):
            model(inputs)
    model.train()
    train_step(model, optimizer, torch.ones(2, 4), torch.tensor([0, 1]))
    assert [step.mode for step in timed.steps()] == [TRAIN, EVAL, EVAL, TRAIN]


def test_accumulated_gradients_belong_to_one_step(timed: Timed) -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for number, (inputs, labels) in enumerate(DataLoader(Samples(24), batch_size=2), start=1):
        nn.functional.cross_entropy(model(inputs), labels).backward()
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
    assert len(timed.steps()) == 3
    assert timed.timer.facts()["samples_per_step"] == 8


def test_optimizers_that_step_in_turn_share_a_step(timed: Timed) -> None:
    models = make_model(), make_model()
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in models]
    for _ in range(3):
        (models[0](torch.ones(2, 4)) + models[1](torch.ones(2, 4))).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
    assert len(timed.steps()) == 3


def test_adversaries_that_learn_in_turn_have_a_step_each(timed: Timed) -> None:
    models = make_model(), make_model()
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in models]
    for _ in range(3):
        for model, optimizer in zip(models, optimizers, strict=True):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    assert len(timed.steps()) == 6


def test_a_step_that_a_gradient_scaler_skips_takes_its_time_anyway(timed: Timed) -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu")
    for number in range(4):
        factor = float("inf") if number == 1 else 1.0
        scaler.scale(model(torch.ones(2, 4)).sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert len(timed.steps()) == 4


def test_each_backward_is_a_step_of_a_program_without_an_optimizer(timed: Timed) -> None:
    weight = torch.ones(4, requires_grad=True)
    for _ in DataLoader(Samples(12), batch_size=4):
        (weight * 2).sum().backward()
        weight.data -= 0.1
    # No forward of a model tells where the next step begins.
    assert [step.mode for step in timed.steps()] == [TRAIN] * 3


def test_a_model_without_an_optimizer_has_forwards(timed: Timed) -> None:
    model = make_model()
    for inputs, labels in DataLoader(Samples(24), batch_size=4):
        nn.functional.cross_entropy(model(inputs), labels).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    steps = timed.steps()
    assert [step.mode for step in steps] == [TRAIN] * 6
    # The model is known once it has gradients.
    assert all(step.phases_ns[StepPhase.FORWARD] for step in steps[1:])


def test_parameters_without_a_model_are_trained_in_steps_too(timed: Timed) -> None:
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.1)
    for _ in range(5):
        optimizer.zero_grad()
        (weight * 2).square().sum().backward()
        optimizer.step()
    steps = timed.steps()
    assert [step.mode for step in steps] == [TRAIN] * 5
    facts = timed.timer.facts()
    assert (facts["device"], facts["precision"], facts["parameters"]) == ("cpu", "float32", 4)


def test_an_optimizer_that_steps_again_begins_a_step(timed: Timed) -> None:
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.1)
    loss = (weight * 2).sum()
    loss.backward()
    for _ in range(4):
        # An evolution strategy sets the gradients itself.
        weight.grad = torch.ones(4)
        optimizer.step()
    assert len(timed.steps()) == 4


def test_forwards_that_are_repeated_during_backward_belong_to_it(timed: Timed) -> None:
    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = make_model()

        def forward(self, inputs: torch.Tensor) -> Any:
            return checkpoint(self.inner, inputs, use_reentrant=False)

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        train_step(model, optimizer, torch.ones(2, 4), torch.tensor([0, 1]))
    assert len(timed.steps()) == 3


def test_an_optimizer_with_a_closure_is_timed_without_what_it_computes(timed: Timed) -> None:
    model = make_model()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

    def compute() -> torch.Tensor:
        optimizer.zero_grad()
        time.sleep(0.005)
        loss = model(torch.ones(2, 4)).square().sum()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(compute)
    steps = timed.steps()
    assert len(steps) == 2
    for step in steps:
        assert step.phases_ns[StepPhase.BACKWARD]
        assert phase_ms(step, StepPhase.OTHER) >= 5


def test_a_compiled_model_is_timed(timed: Timed) -> None:
    model = torch.compile(make_model(), backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        train_step(model, optimizer, torch.ones(2, 4), torch.tensor([0, 1]))
    steps = timed.steps()
    assert len(steps) == 3
    assert all(step.phases_ns[StepPhase.FORWARD] for step in steps)
    assert timed.timer.facts()["is_compiled"]


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_tell_what_batches_cost_and_how_long_they_were_waited_for(timed: Timed, workers: int) -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        # A loader for each epoch is the same one to the reader.
        for inputs, labels in DataLoader(Samples(32, 0.002), batch_size=8, num_workers=workers):
            train_step(model, optimizer, inputs, labels)
    (loader,) = timed.timer.facts()["loaders"]
    assert (loader["name"], loader["workers"], loader["batch_size"]) == ("Samples", workers, 8)
    assert len(loader["fetch_s"]) == 8
    assert min(loader["fetch_s"]) >= 8 * 0.002
    assert len(loader["wait_s"]) >= 8


def test_a_loader_of_batches_knows_their_size_from_its_sampler(timed: Timed) -> None:
    data = Samples(16)
    batches = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(data), 4, drop_last=False)
    assert len(list(DataLoader(data, batch_sampler=batches))) == 4
    assert timed.timer.facts()["loaders"][0]["batch_size"] == 4


def test_loaders_of_the_same_data_are_told_apart(timed: Timed) -> None:
    data = Samples(16, 0.001)
    loaders = DataLoader(data, batch_size=4), DataLoader(data, batch_size=8)
    for _ in range(2):
        for loader in loaders:
            list(loader)
    first, second = timed.timer.facts()["loaders"]
    assert (first["name"], second["name"]) == ("Samples", "Samples1")
    assert (len(first["wait_s"]), len(second["wait_s"])) == (8, 4)
    assert (len(first["fetch_s"]), len(second["fetch_s"])) == (8, 4)


def test_persistent_workers_of_a_stream_tell_what_batches_cost(timed: Timed) -> None:
    class Stream(IterableDataset[Any]):  # type: ignore[misc]
        def __iter__(self) -> Iterator[int]:
            for number in range(8):
                time.sleep(0.002)
                yield number

    loader = DataLoader(Stream(), batch_size=4, num_workers=1, persistent_workers=True)
    for _ in range(2):
        assert len(list(loader)) == 2
    (facts,) = timed.timer.facts()["loaders"]
    assert (facts["is_persistent"], len(facts["wait_s"])) == (True, 4)
    # A stream ends with a batch that stays empty.
    assert len(facts["fetch_s"]) >= 4
    assert max(facts["fetch_s"]) >= 4 * 0.002


def test_workers_that_are_not_forked_keep_what_batches_cost(timed: Timed) -> None:
    loader = DataLoader(Samples(8), batch_size=4, num_workers=1, multiprocessing_context="spawn")
    assert len(list(loader)) == 2
    (facts,) = timed.timer.facts()["loaders"]
    assert (facts["fetch_s"], len(facts["wait_s"])) == ([], 2)


def test_samples_of_evaluations_are_not_those_of_steps(timed: Timed) -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    training, validation = DataLoader(Samples(16), batch_size=4), DataLoader(Samples(64), batch_size=16)
    for _ in range(2):
        # The mode of the evaluation is left only in the first step.
        for inputs, labels in training:
            model.train()
            train_step(model, optimizer, inputs, labels)
        model.eval()
        for inputs, _ in validation:
            with torch.no_grad():
                model(inputs)
    timed.steps()
    assert timed.timer.facts()["samples_per_step"] == pytest.approx(4)


def test_the_facts_describe_the_model(timed: Timed) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(torch.ones(5, 3, 8, 8)).sum()
    loss.backward()
    optimizer.step()
    timed.steps()
    facts = timed.timer.facts()
    assert facts["precision"] == "bfloat16"
    assert (facts["device"], facts["parameters"], facts["samples_per_step"]) == ("cpu", 402, 5)
    assert facts["has_convolutions"]
    assert facts["is_channels_last"]


def test_a_forked_process_writes_nothing(timed: Timed) -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train_step(model, optimizer, torch.ones(2, 4), torch.tensor([0, 1]))
    child = os.fork()
    if not child:
        for _ in range(5):
            train_step(model, optimizer, torch.ones(2, 4), torch.tensor([0, 1]))
        timed.timer.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    train_step(model, optimizer, torch.ones(2, 4), torch.tensor([0, 1]))
    assert len(timed.steps()) == 2


def test_a_backward_that_fails_is_over(timed: Timed) -> None:
    def fail(_: torch.Tensor) -> None:
        raise ValueError("planted")

    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train_step(model, optimizer, torch.ones(2, 4), torch.tensor([0, 1]))
    loss = model(torch.ones(2, 4)).sum()
    loss.register_hook(fail)
    with pytest.raises(ValueError, match="planted"):
        loss.backward()
    time.sleep(0.02)
    train_step(model, optimizer, torch.ones(2, 4), torch.tensor([0, 1]))
    _, step = timed.steps()
    assert phase_ms(step, StepPhase.OTHER) >= 20
    assert phase_ms(step, StepPhase.BACKWARD) < 20


def test_samples_that_a_thread_of_the_program_loads_are_counted(timed: Timed) -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batches: queue.Queue[Any] = queue.Queue(maxsize=1)

    def load() -> None:
        for batch in DataLoader(Samples(32), batch_size=4):
            batches.put(batch)

    loading = threading.Thread(target=load)
    loading.start()
    for _ in range(8):
        train_step(model, optimizer, *batches.get())
    loading.join()
    assert len(timed.steps()) == 8
    assert timed.timer.facts()["samples_per_step"] == 4


def test_short_steps_reach_the_file_while_the_program_runs(timed: Timed, tmp_path: Path) -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train_until_one_is_written() -> bool:
        train_step(model, optimizer, torch.ones(2, 4), torch.tensor([0, 1]))
        rows = list(decode_rows((tmp_path / "worker_0.steps").read_bytes())) if any(tmp_path.iterdir()) else []
        # What a program that is killed loses: the file is written once a second, and steps share rows later.
        return bool(rows) and rows[-1].ended_us > began_us

    train_step(model, optimizer, torch.ones(2, 4), torch.tensor([0, 1]))
    began_us = time.time_ns() // 1000
    eventually(train_until_one_is_written, "a step in the file", within=timedelta(seconds=10))


def test_an_error_ends_the_timing_and_not_the_training(
    tmp_path: Path, timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(StepFile, "add", fail)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = [parameter.clone() for parameter in model.parameters()]
    for _ in range(3):
        train_step(model, optimizer, torch.ones(2, 4), torch.tensor([0, 1]))
    assert not all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert timed.notes == ["The steps of the program are no longer timed; training continues: RuntimeError('planted')."]


def test_a_closed_timer_leaves_the_program_alone(timed: Timed, tmp_path: Path) -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train_step(model, optimizer, torch.ones(2, 4), torch.tensor([0, 1]))
    assert len(timed.steps()) == 1
    finish: Callable[[], None] = lambda: train_step(  # noqa: E731
        model, optimizer, torch.ones(2, 4), torch.tensor([0, 1])
    )
    finish()
    assert len(list(decode_rows((tmp_path / "worker_0.steps").read_bytes()))) == 1
