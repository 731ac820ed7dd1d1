import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

from trainyard.formats.profiles.contract import ProgramChange
from trainyard.instance.hook.profiling.step_file import StepFile
from trainyard.instance.hook.profiling.torch_timer import TorchTimer
from trainyard.instance.hook.profiling.trial import ProgramTrial

IMAGES = TensorDataset(torch.randn(64, 3, 8, 8), torch.randint(2, (64,)))


class TrialRun:
    """A timer that makes changes, from the time when it is entered."""

    def __init__(self, folder: Path, changes: Mapping[str, str]) -> None:
        self._folder, self._trial = (
            folder,
            ProgramTrial({ProgramChange(name): value for name, value in changes.items()}),
        )
        self.notes: list[str] = []

    def __enter__(self) -> Self:
        self._timer = TorchTimer(
            lambda facts: StepFile(self._folder, "worker_0", facts), note=self.notes.append, trial=self._trial
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.facts = self._timer.facts()
        self._timer.close()

    @property
    def changes(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.facts["changes"]
        return found


class Model(nn.Module):  # type: ignore[misc]
    """A model that remembers what its forwards compute with."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.last = nn.Linear(144, 2)
        self.seen: dict[str, Any] = {}

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found = self.convolution(images)
        self.seen = {
            "precision": found.dtype,
            "is_channels_last": images.is_contiguous(memory_format=torch.channels_last),
        }
        output: torch.Tensor = self.last(found.flatten(1))
        return output


def train(model: nn.Module, optimizer: torch.optim.Optimizer, *, steps: int = 3) -> torch.Tensor:
    """Train as most programs do, and return the last output."""
    output = torch.empty(0)
    for _ in range(steps):
        output = model(torch.randn(8, 3, 8, 8))
        optimizer.zero_grad()
        nn.functional.cross_entropy(output, torch.randint(2, (8,))).backward()
        optimizer.step()
    return output


def make(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.01)


def test_the_loader_of_the_training_is_changed_and_no_other(tmp_path: Path) -> None:
    changes = {"loader_workers": "2", "prefetch_factor": "3", "persistent_workers": "true", "batch_size": "16"}
    model = Model()
    loader, other = DataLoader(IMAGES, batch_size=8, shuffle=True, num_workers=1), DataLoader(IMAGES, batch_size=8)
    with TrialRun(tmp_path, changes) as run:
        optimizer = make(model)
        sizes = []
        for images, labels in loader:
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            sizes.append(len(images))
        model.eval()
        with torch.no_grad():
            sizes += [len(model(images)) for images, _ in other]
    assert sizes == [16] * 4 + [8] * 8
    assert run.changes == changes
    settings = ("workers", "prefetch", "is_persistent", "batch_size")
    assert [[each[name] for name in settings] for each in run.facts["loaders"]] == [
        [2, 3, True, 16],
        [0, None, False, 8],
    ]
    assert run.notes == []


def test_workers_can_be_taken_away(tmp_path: Path) -> None:
    with TrialRun(tmp_path, {"loader_workers": "0"}) as run:
        assert len(list(DataLoader(IMAGES, batch_size=8, num_workers=2, persistent_workers=True, timeout=9))) == 8
    assert run.facts["loaders"][0]["workers"] == 0
    assert run.changes == {"loader_workers": "0"}


def test_batches_of_a_stream_are_changed_too(tmp_path: Path) -> None:
    class Stream(IterableDataset[int]):  # type: ignore[misc]
        def __iter__(self) -> Iterator[int]:
            return iter(range(12))

    with TrialRun(tmp_path, {"batch_size": "6"}) as run:
        assert [len(batch) for batch in DataLoader(Stream(), batch_size=2)] == [6, 6]
    assert run.changes == {"batch_size": "6"}


@pytest.mark.parametrize(
    ("loader", "why"),
    [
        ({"batch_size": 8}, "there are only 64 samples"),
        (
            {"batch_sampler": BatchSampler(SequentialSampler(IMAGES), 8, drop_last=False)},
            "the data loader does not make batches itself, or has a batch sampler of its own",
        ),
    ],
)
def test_batches_that_cannot_be_changed_are_left_alone(tmp_path: Path, loader: Any, why: str) -> None:
    with TrialRun(tmp_path, {"batch_size": "1000"}) as run:
        assert len(list(DataLoader(IMAGES, **loader))) == 8
    assert run.changes == {}
    assert run.notes == [f"The trial did not change batch_size: {why}."]


def test_a_setting_of_workers_needs_workers(tmp_path: Path) -> None:
    with TrialRun(tmp_path, {"prefetch_factor": "4", "persistent_workers": "true"}) as run:
        list(DataLoader(IMAGES, batch_size=8))
    assert run.changes == {}
    assert run.notes == [
        "The trial did not change prefetch_factor: the data loader has no workers.",
        "The trial did not change persistent_workers: the data loader has no workers.",
    ]


@pytest.mark.parametrize("wrapped", ["not", "before", "after", "in place"])
def test_a_model_computes_in_the_precision_of_the_trial(tmp_path: Path, wrapped: str) -> None:
    model: Any = Model()
    with TrialRun(tmp_path, {"precision": "bfloat16"}) as run:
        called = torch.compile(model, backend="eager") if wrapped == "before" else model
        optimizer = make(model)
        if wrapped == "after":
            called = torch.compile(model, backend="eager")
        elif wrapped == "in place":
            model.compile(backend="eager")
        output = train(called, optimizer)
    assert model.seen["precision"] is torch.bfloat16
    # A loss gets what it expects.
    assert output.dtype is torch.float32
    assert run.changes == {"precision": "bfloat16"}
    assert not torch.is_autocast_enabled("cpu")


def test_a_program_in_lower_precision_can_be_tried_in_float32(tmp_path: Path) -> None:
    model = Model()
    with TrialRun(tmp_path, {"precision": "float32"}) as run, torch.autocast("cpu", torch.bfloat16):
        train(model, make(model))
    assert model.seen["precision"] is torch.float32
    assert run.changes == {"precision": "float32"}


def test_a_model_that_is_of_lower_precision_itself_stays_so(tmp_path: Path) -> None:
    with TrialRun(tmp_path, {"precision": "float32"}) as run:
        model = nn.Linear(4, 2).bfloat16()
        optimizer = make(model)
        model(torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
    assert run.changes == {}
    assert run.notes == ["The trial did not change precision: the parameters of the model are torch.bfloat16."]


def test_an_error_in_a_forward_ends_the_changed_precision(tmp_path: Path) -> None:
    model = Model()
    with TrialRun(tmp_path, {"precision": "bfloat16"}):
        make(model)
        with pytest.raises(RuntimeError):
            model(torch.ones(1))
        assert not torch.is_autocast_enabled("cpu")


def test_a_copy_of_a_changed_model_is_as_the_program_made_it(tmp_path: Path) -> None:
    model = Model()
    with TrialRun(tmp_path, {"precision": "bfloat16"}):
        train(model, make(model))
        average = copy.deepcopy(model)
        average(torch.randn(8, 3, 8, 8))
    assert average.seen["precision"] is torch.float32


def test_images_and_weights_get_the_layout_of_the_trial(tmp_path: Path) -> None:
    model = Model()
    with TrialRun(tmp_path, {"channels_last": "true"}) as run:
        train(model, make(model))
    assert model.seen["is_channels_last"]
    assert run.facts["is_channels_last"]
    assert run.changes == {"channels_last": "true"}


def test_a_model_without_convolutions_has_no_layout(tmp_path: Path) -> None:
    with TrialRun(tmp_path, {"channels_last": "true"}) as run:
        make(nn.Linear(4, 2))
    assert run.notes == ["The trial did not change channels_last: the model has no two-dimensional convolutions."]


def test_a_model_is_compiled_and_its_forwards_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = nn.Module.compile
    # The default backend would need a compiler, and seconds.
    monkeypatch.setattr(nn.Module, "compile", lambda self: original(self, backend="eager"))
    model = Model()
    with TrialRun(tmp_path, {"compile": "true", "precision": "bfloat16"}) as run:
        train(model, make(model))
    assert run.changes == {"compile": "true", "precision": "bfloat16"}
    assert run.facts["is_compiled"]
    assert run.facts["precision"] == "bfloat16"


def test_threads_are_those_of_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    try:
        with TrialRun(tmp_path, {"threads": "3"}) as run:
            torch.set_num_threads(1)
            model = Model()
            train(model, make(model))
        assert run.facts["threads"] == 3
        assert run.changes == {"threads": "3"}
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("change", "value", "why"),
    [
        ("precision", "int4", '"int4" is none of bfloat16, float32'),
        ("compile", "perhaps", '"perhaps" is neither true nor false'),
        ("threads", "0", '"0" is not a number of at least 1'),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(tmp_path: Path, change: str, value: str, why: str) -> None:
    with TrialRun(tmp_path, {change: value}) as run:
        train(model := Model(), make(model))
    assert run.changes == {}
    assert run.notes == [f"The trial did not change {change}: {why}."]
