"""What programs do with models besides training them, and failures of the hook, which must not reach them."""

import copy
import io
import json
import logging
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.unit.instance.hook.pytorch.conftest import Watch, names, value
from tests.unit.instance.hook.pytorch.programs import Net, train
from trainyard.formats.tensors.contract import Mode, Statistic
from trainyard.formats.tensors.trials.trial import create_trial
from trainyard.instance.hook.pytorch import parameters, roots, tensor_capture
from trainyard.instance.hook.pytorch.torch_hook import TorchHook

EVERYTHING = {"all": {"save_interval": "1"}}


def test_a_training_is_the_same_to_the_last_bit_with_a_hook(watch: Watch) -> None:
    plain = Net()
    watched = copy.deepcopy(plain)
    expected = train(plain)
    seen = watch(EVERYTHING)
    assert train(watched) == expected
    assert len(seen.close()) == 3
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_model_saved_whole_has_nothing_of_the_hook(watch: Watch) -> None:
    watch(EVERYTHING)
    model = nn.Sequential(nn.Linear(6, 3), nn.ReLU())
    train(model)
    saved = io.BytesIO()
    torch.save(model, saved)
    assert b"trainyard" not in saved.getvalue()
    assert b"trainyard" not in pickle.dumps(nn.CrossEntropyLoss())
    loaded = torch.load(io.BytesIO(saved.getvalue()), weights_only=False)
    x = torch.randn(2, 6)
    assert torch.equal(loaded(x), model(x))


def test_a_copy_of_a_model_is_not_watched(watch: Watch) -> None:
    seen = watch({"relus": {"include_regex": "relu_output"}})
    model = Net()
    train(model, steps=2)
    average = copy.deepcopy(model).eval()
    with torch.no_grad():
        average(torch.randn(4, 6))
    assert [step.mode for step in seen.close()] == [Mode.TRAIN] * 2


def test_a_model_can_be_scripted_while_it_is_watched(watch: Watch) -> None:
    seen = watch(EVERYTHING)
    model = Net()
    train(model, steps=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        scripted = torch.jit.script(model)
    x = torch.randn(2, 6)
    assert torch.equal(scripted(x), model(x))
    train(model, steps=1)
    assert "relu_output_0" in names(seen.close()[-1])


def test_a_model_can_be_traced_and_exported_while_it_is_watched(watch: Watch) -> None:
    seen = watch(EVERYTHING)
    model = Net()
    train(model, steps=2)
    x = torch.randn(2, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(model, x)
    assert torch.equal(traced(x), model(x))
    torch.fx.symbolic_trace(model)
    seen.close()


def test_functional_transforms_of_a_watched_model_work(watch: Watch) -> None:
    seen = watch(EVERYTHING)
    model = Net()
    train(model, steps=1)
    weights = dict(model.named_parameters())

    def loss(weights: Mapping[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, weights, (x,)).sum()

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, torch.randn(4, 1, 6))
    assert gradients["out.bias"].shape == (4, 3)
    seen.close()


def test_data_parallel_is_named_after_the_model_in_it(watch: Watch) -> None:
    seen = watch({"weights": {}, "outs": {"include_regex": "Net_output"}})
    train(nn.DataParallel(Net()), steps=2)
    assert {"Net_hidden.weight", "Net_output_0"} <= names(seen.close()[1])


@pytest.mark.parametrize("is_in_place", [False, True])
@pytest.mark.parametrize("make", [Net, lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))])
def test_a_compiled_model_is_one_graph_with_the_statistics_of_its_layers(
    watch: Watch, make: Any, is_in_place: bool
) -> None:
    import torch._dynamo

    torch._dynamo.reset()
    seen = watch({"weights": {}, "gradients": {}, "layers": {"include_regex": "(relu|1)_output", "reductions": "min"}})
    model = make()
    compiled = model
    if is_in_place:
        model.compile(backend="aot_eager", fullgraph=True)
    else:
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    train(compiled, steps=4)
    compiled.eval()
    with torch.no_grad():
        x = torch.randn(4, 6)
        compiled(x)
        zeros = float((model.get_submodule("0" if make is not Net else "hidden")(x) <= 0).sum())
    steps = seen.close()
    assert [step.mode for step in steps] == [Mode.TRAIN] * 4 + [Mode.EVAL]
    layer = "relu_output_0" if make is Net else "1_output_0"
    assert value(steps[-1], layer, Statistic.ZEROS) == zeros
    assert value(steps[2], layer, Statistic.MAX) > 0
    name = type(model).__name__
    assert any(each.startswith(f"gradient/{name}") for each in names(steps[3]))


def test_an_observer_sees_each_step_as_it_happens(watch: Watch) -> None:
    class Observer:
        def __init__(self) -> None:
            self.told: list[tuple[Any, ...]] = []

        def begin_step(self, number: int, *, mode: Mode, models: Sequence[Any], optimizers: Sequence[Any]) -> None:
            self.told.append(("begin", number, mode, len(models), len(optimizers)))

        def batch(self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            self.told.append(("batch", type(model).__name__, args[0].shape))

        def loss(self, name: str, value: Any) -> None:
            self.told.append(("loss", name, value.requires_grad))

        def end_step(self, number: int) -> None:
            self.told.append(("end", number))

    observer = Observer()
    seen = watch(observers=(observer,))
    train(Net(), steps=2)
    seen.close()
    step = [("batch", "Net", (4, 6)), ("loss", "CrossEntropyLoss_output_0", False)]
    assert observer.told == [
        ("begin", 0, Mode.TRAIN, 1, 1),
        *step,
        ("end", 0),
        ("begin", 1, Mode.TRAIN, 1, 1),
        *step,
        ("end", 1),
    ]


def test_an_observer_that_fails_is_removed_and_the_rest_continues(watch: Watch) -> None:
    class Failing:
        def begin_step(self, number: int, *, mode: Mode, models: Sequence[Any], optimizers: Sequence[Any]) -> None:
            raise MemoryError("no room")

        def batch(self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None: ...

        def loss(self, name: str, value: Any) -> None: ...

        def end_step(self, number: int) -> None: ...

    seen = watch(observers=(Failing(),))
    train(Net(), steps=3)
    assert seen.hook is not None
    seen.hook.close()
    assert len(seen.steps) == 3
    assert seen.notes == ["Failing has failed and observes no more steps: MemoryError('no room')."]


BREAKABLE = [
    (roots.ModuleRegistry, "tops"),
    (parameters.ParameterPlan, "tensors_of"),
    (tensor_capture.TensorCapture, "observe_parameters"),
    (tensor_capture.TensorCapture, "observe_layer"),
    (tensor_capture.TensorCapture, "observe_loss"),
    (tensor_capture.TensorCapture, "finish"),
    (TorchHook, "_enter"),
    (TorchHook, "_before_backward"),
    (TorchHook, "_after_step"),
]


@pytest.mark.parametrize(("owner", "method"), BREAKABLE, ids=[method for _, method in BREAKABLE])
def test_the_training_continues_unchanged_if_the_hook_breaks(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, owner: Any, method: str
) -> None:
    model = Net()
    expected = train(copy.deepcopy(model))

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(owner, method, broken)
    seen = watch(EVERYTHING)
    with caplog.at_level(logging.CRITICAL):
        assert train(model) == expected
        assert seen.hook is not None
        seen.hook.close()
    assert len(seen.notes) == 1
    assert "broken on purpose" in seen.notes[0]


def test_a_value_that_cannot_be_saved_is_only_left_out(watch: Watch) -> None:
    seen = watch(waits_for_more=True)
    train(Net(), steps=1)
    assert seen.hook is not None
    seen.hook.save_scalar("accuracy", torch.ones(3))
    seen.hook.save_tensor("words", ["no", "numbers"])
    train(Net(), steps=1)
    seen.hook.close()
    assert len(seen.steps) == 2
    assert [note.split(",")[0] for note in seen.notes] == [
        'The scalar "accuracy" is not a single number and is not saved.',
        '"words" cannot be converted to a tensor and is not saved.',
    ]


def test_saved_values_are_those_of_the_step(watch: Watch) -> None:
    seen = watch({"weights": {"save_interval": "2"}, "biases": {"save_interval": "1", "reductions": "prod"}})
    model = Net().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weights = []
    for _ in range(3):
        weights.append(model.hidden.weight.detach().float().numpy().copy())
        optimizer.zero_grad()
        functional.mse_loss(model(torch.randn(4, 6, dtype=torch.bfloat16)).float(), torch.ones(4, 3)).backward()
        optimizer.step()
    seen.close()
    trial = create_trial(str(seen.folder))
    assert trial.tensor("Net_hidden.weight").steps() == [0, 2]
    assert (trial.tensor("Net_hidden.weight").value(2) == weights[2]).all()
    assert trial.tensor("Net_hidden.bias").steps() == [0, 1, 2]
    assert "prod" in {name for name, _ in trial.tensor("Net_hidden.bias").reduction_values(1)}


def test_a_fork_neither_writes_nor_waits(watch: Watch) -> None:
    """Like the workers of a DataLoader, a fork has the hook's memory, but not its thread."""
    seen = watch(EVERYTHING)
    model = Net()
    train(model, steps=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads, which is what this is about
        child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)  # as a DataLoader does: the threads of OpenMP stayed behind
            train(model, steps=2)
            assert seen.hook is not None
            seen.hook.close()
            os._exit(0 if seen.hook.recording.dropped == 0 and seen.hook.recording.is_off else 2)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    train(model, steps=1)
    assert len(seen.close()) == 3


SCRIPT = """
import atexit, sys, threading, torch
from torch import nn
from pathlib import Path
from trainyard.instance.hook.attachment import attach
from trainyard.instance.hook.contract import HookContext
attach(Path(sys.argv[1]), HookContext(send_event=lambda kind, payload: None))
OF_THE_LOADER = "QueueFeederThread"  # closed when the loop ends, and gone a moment later
names = lambda: sorted({thread.name for thread in threading.enumerate()} - {OF_THE_LOADER})
atexit.register(lambda: print("threads at the end:", names()))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(6, 4)), batch_size=2, num_workers=1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    model(x).sum().backward()
    optimizer.step()
"""


def test_a_program_that_ends_leaves_a_whole_trial_and_no_thread(tmp_path: Path) -> None:
    config = tmp_path / "input/config/debughookconfig.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"LocalPath": f"{tmp_path}/tensors", "HookParameters": {"save_interval": "1"}}))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    ended = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
    assert ended.stdout == "threads at the end: ['MainThread']\n"
    trial = create_trial(str(tmp_path / "tensors"))
    assert trial.steps() == [0, 1, 2]
    assert trial.loaded_all_steps
    assert trial.workers() == ["worker_0"]


def test_a_program_that_never_trains_leaves_nothing(watch: Watch) -> None:
    seen = watch(EVERYTHING)
    model = Net()
    torch.optim.SGD(model.parameters(), lr=0.1)
    assert seen.close() == []
    assert not seen.folder.exists()
