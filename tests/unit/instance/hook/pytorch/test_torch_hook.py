"""Trainings of all kinds, with a hook that finds models automatically."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.unit.instance.hook.pytorch.conftest import Watch, mean, names, scalar, value
from tests.unit.instance.hook.pytorch.programs import Net, batch
from trainyard.formats.tensors.contract import Kind, Mode, Statistic

PARAMETERS: dict[str, dict[str, str]] = {"weights": {}, "biases": {}, "gradients": {}}


def test_every_step_has_the_loss_and_the_parameters_with_gradients_as_they_are_before_the_update(watch: Watch) -> None:
    seen = watch(PARAMETERS)
    model, criterion = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters())
    losses, weights, gradients = [], [], []
    for _ in range(5):
        x, y = batch()
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        losses.append(loss.item())
        weights.append(mean(model.hidden.weight))
        gradients.append(mean(model.out.bias.grad.abs()))
        optimizer.step()
    steps = seen.close()
    assert [step.number for step in steps] == [0, 1, 2, 3, 4]
    assert all(step.mode is Mode.TRAIN for step in steps)
    assert [scalar(step, "CrossEntropyLoss_output_0") for step in steps] == losses
    assert [value(step, "Net_hidden.weight") for step in steps] == pytest.approx(weights, rel=1e-5)
    told = [value(step, "gradient/Net_out.bias", Statistic.MEAN_ABS) for step in steps]
    assert told == pytest.approx(gradients, rel=1e-5)
    kinds = {tensor.name: tensor.kind for tensor in steps[0].table.tensors}
    assert kinds["Net_out.bias"] is Kind.BIAS
    assert kinds["gradient/Net_out.bias"] is Kind.GRADIENT


def test_without_collections_only_losses_are_recorded(watch: Watch) -> None:
    seen = watch()
    train(Net(), steps=3)
    assert [names(step) for step in seen.close()] == [{"CrossEntropyLoss_output_0"}] * 3


def test_accumulated_gradients_are_one_step_with_a_loss_for_each_forward(watch: Watch) -> None:
    seen = watch({"gradients": {}})
    model, criterion = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        for _ in range(3):
            x, y = batch()
            criterion(model(x), y).backward()
        total = mean(model.out.weight.grad.abs())
        optimizer.step()
    steps = seen.close()
    assert len(steps) == 2
    assert {f"CrossEntropyLoss_output_{number}" for number in range(3)} <= names(steps[1])
    assert value(steps[1], "gradient/Net_out.weight", Statistic.MEAN_ABS) == pytest.approx(total, rel=1e-5)


def test_a_loss_that_is_a_function_is_named_loss(watch: Watch) -> None:
    seen = watch()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        x, y = batch()
        loss = functional.cross_entropy(model(x), y)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    steps = seen.close()
    assert [scalar(step, "loss_output_0") for step in steps] == losses
    assert steps[0].table.tensors[0].collections == ("all", "losses")


def test_a_term_added_to_a_loss_is_recorded_too(watch: Watch) -> None:
    seen = watch()
    model, criterion = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch()
    loss = criterion(model(x), y)
    (loss + 1.0).backward()
    optimizer.step()
    (step,) = seen.close()
    assert scalar(step, "loss_output_0") == pytest.approx(scalar(step, "CrossEntropyLoss_output_0") + 1.0)


def test_a_scaled_loss_and_its_gradients_are_recorded_unscaled(watch: Watch) -> None:
    seen = watch({"gradients": {}})
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x, y = batch()
        loss = functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaled = mean(model.out.weight.grad.abs())
    scaler.step(optimizer)
    scaler.update()
    (step,) = seen.close()
    assert scalar(step, "loss_output_0") == pytest.approx(loss.item())
    assert value(step, "gradient/Net_out.weight", Statistic.MEAN_ABS) == pytest.approx(scaled / 1024.0, rel=1e-5)


def test_gradients_of_an_optimizer_that_unscales_itself_are_recorded_unscaled(watch: Watch) -> None:
    seen = watch({"gradients": {"save_interval": "1"}})
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    x, y = batch()
    scaler.scale(functional.cross_entropy(model(x), y)).backward()
    scaled = mean(model.out.weight.grad.abs())
    scaler.step(optimizer)
    scaler.update()
    (step,) = seen.close()
    assert value(step, "gradient/Net_out.weight", Statistic.MEAN_ABS) == pytest.approx(scaled / 512.0, rel=1e-5)


def test_a_step_that_a_scaler_skips_is_not_counted(watch: Watch) -> None:
    seen = watch({"gradients": {}})
    model, criterion = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for factor in (1.0, float("inf"), 2.0):
        x, y = batch()
        optimizer.zero_grad()
        loss = criterion(model(x), y) * factor
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    steps = seen.close()
    assert len(steps) == 2
    assert scalar(steps[1], "loss_output_0") == pytest.approx(loss.item())
    assert "CrossEntropyLoss_output_1" not in names(steps[1])


def test_parameters_in_bfloat16_have_statistics(watch: Watch) -> None:
    seen = watch({**PARAMETERS, "weights": {"save_interval": "1"}})
    model = Net().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weights = mean(model.hidden.weight)
    functional.mse_loss(model(torch.randn(4, 6, dtype=torch.bfloat16)), torch.zeros(4, 3)).backward()
    optimizer.step()
    (step,) = seen.close()
    assert value(step, "Net_hidden.weight") == pytest.approx(weights, rel=1e-3)
    assert step.table.tensors[step.table.places["Net_hidden.weight"]].dtype == "bfloat16"


def test_evaluation_is_a_step_for_each_forward_with_its_loss_and_no_gradients(watch: Watch) -> None:
    seen = watch(PARAMETERS)
    model, criterion = Net(), nn.CrossEntropyLoss()
    train(model, steps=2)
    model.eval()
    with torch.no_grad():
        losses = [criterion(model(x), y).item() for x, y in (batch() for _ in range(3))]
    model.train()
    train(model, steps=1)
    steps = seen.close()
    modes = [(step.number, step.mode, step.mode_step) for step in steps]
    train_steps = [(0, Mode.TRAIN, 0), (1, Mode.TRAIN, 1)]
    assert modes == [*train_steps, *((2 + n, Mode.EVAL, n) for n in range(3)), (5, Mode.TRAIN, 2)]
    assert [scalar(step, "CrossEntropyLoss_output_0") for step in seen.of(Mode.EVAL)] == losses
    assert names(steps[3]) == {"CrossEntropyLoss_output_0"}


def test_a_model_that_trains_in_evaluation_mode_trains(watch: Watch) -> None:
    seen = watch({"gradients": {}})
    model = Net().eval()
    train(model, steps=3)
    assert [(step.mode, step.mode_step) for step in seen.close()] == [(Mode.TRAIN, number) for number in range(3)]


@dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor | None = None


@pytest.mark.parametrize("wrap", [lambda x: {"logits": x}, Output, lambda x: (x, [x, None])])
def test_outputs_are_found_in_whatever_a_model_returns(watch: Watch, wrap: Callable[[torch.Tensor], Any]) -> None:
    class Wrapping(Net):
        def forward(self, x: torch.Tensor) -> Any:
            return wrap(super().forward(x))

    seen = watch({"outputs": {"include_regex": "Wrapping_output,relu_output"}})
    model = Wrapping()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    output = model(torch.randn(4, 6))
    logits = output["logits"] if isinstance(output, dict) else getattr(output, "logits", None)
    logits = output[0] if logits is None else logits
    logits.sum().backward()
    optimizer.step()
    (step,) = seen.close()
    assert value(step, "Wrapping_output_0") == pytest.approx(logits.mean().item(), abs=1e-6)
    assert value(step, "relu_output_0", Statistic.MIN) >= 0
    assert ("Wrapping_output_1" in names(step)) == isinstance(output, tuple)


def test_the_loss_of_a_model_that_computes_its_own_is_recorded_in_evaluation_too(watch: Watch) -> None:
    class Whole(Net):
        def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> Any:
            logits = super().forward(x)
            return Output(logits, functional.cross_entropy(logits, y))

    seen = watch()
    model = Whole()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(*batch()).loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        loss = model(*batch()).loss
    seen.close()
    assert scalar(seen.of(Mode.EVAL)[0], "loss_output_0") == loss.item()


def test_a_layer_that_is_called_again_continues_its_count(watch: Watch) -> None:
    class Twice(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = self.out(self.relu(self.relu(self.hidden(x)) - 1.0))
            return output

    seen = watch({"relus": {"include_regex": "relu_(input|output)"}})
    train(Twice(), steps=2)
    assert {"relu_input_0", "relu_input_1", "relu_output_0", "relu_output_1"} <= names(seen.close()[1])


def test_an_input_is_as_it_was_before_a_layer_changed_it_in_place(watch: Watch) -> None:
    class InPlace(Net):
        def __init__(self) -> None:
            super().__init__()
            self.relu = nn.ReLU(inplace=True)

    seen = watch({"relus": {"include_regex": "relu_input,hidden_output"}})
    train(InPlace(), steps=1)
    (step,) = seen.close()
    assert value(step, "relu_input_0", Statistic.MIN) < 0
    assert value(step, "hidden_output_0", Statistic.MIN) < 0


def test_a_recomputed_forward_is_not_counted(watch: Watch) -> None:
    class Checkpointed(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            from torch.utils.checkpoint import checkpoint

            hidden = checkpoint(lambda x: self.relu(self.hidden(x)), x, use_reentrant=False)
            output: torch.Tensor = self.out(hidden)
            return output

    seen = watch({"relus": {"include_regex": "relu_output"}})
    train(Checkpointed(), steps=2)
    assert "relu_output_1" not in names(seen.close()[1])


def test_frozen_weights_are_observed_only_if_they_are_saved(watch: Watch) -> None:
    seen = watch({"weights": {"save_interval": "2"}, "gradients": {}})
    model = Net()
    model.hidden.weight.requires_grad_(False)
    train(model, steps=2)
    steps = seen.close()
    assert "Net_hidden.weight" in names(steps[0])
    assert "Net_hidden.weight" not in names(steps[1])
    assert "gradient/Net_hidden.weight" not in names(steps[0])
    assert steps[1].lacks == 0


def test_shared_parameters_are_recorded_once(watch: Watch) -> None:
    class Tied(nn.Module):  # type: ignore[misc]  # mypy does not read torch
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
            self.decoder.weight = self.encoder.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = self.decoder(self.encoder(x))
            return output

    seen = watch(PARAMETERS)
    train(Tied(), steps=1)
    assert names(seen.close()[0]) == {
        "Tied_encoder.weight",
        "gradient/Tied_encoder.weight",
        "CrossEntropyLoss_output_0",
    }


def test_adversarial_optimizers_have_separate_steps(watch: Watch) -> None:
    seen = watch({"gradients": {}})
    generator, critic = nn.Sequential(nn.Linear(2, 6)), nn.Sequential(nn.Linear(6, 1))
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (generator, critic)]
    criterion = nn.BCEWithLogitsLoss()
    for _ in range(4):
        with torch.no_grad():
            fake = generator(torch.randn(4, 2))
        optimizers[1].zero_grad()
        criterion(critic(fake), torch.zeros(4, 1)).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        criterion(critic(generator(torch.randn(4, 2))), torch.ones(4, 1)).backward()
        optimizers[0].step()
    steps = seen.close()
    assert len(steps) == 8
    assert {name for name in names(steps[4]) if "gradient" in name} == {
        "gradient/Sequential1_0.weight",
        "gradient/Sequential1_0.bias",
    }
    assert "gradient/Sequential_0.weight" in names(steps[5])
    assert all(scalar(step, "BCEWithLogitsLoss_output_0") > 0 for step in steps)


def test_optimizers_that_step_after_another_belong_to_one_step(watch: Watch) -> None:
    seen = watch({"gradients": {}})
    model = Net()
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model.hidden, model.out)]
    for _ in range(4):
        x, y = batch()
        functional.cross_entropy(model(x), y).backward()
        for optimizer in optimizers:
            optimizer.step()
    steps = seen.close()
    assert len(steps) == 4
    assert {"gradient/Net_hidden.weight", "gradient/Net_out.weight"} <= names(steps[3])


def test_a_closure_runs_unchanged_and_its_first_gradients_are_recorded(watch: Watch) -> None:
    seen = watch(PARAMETERS)
    model = Net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x, y = batch()
    first: list[float] = []
    weights: list[float] = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        if len(first) < len(weights):
            first.append(mean(model.out.weight.grad.abs()))
        return loss

    for _ in range(2):
        weights.append(mean(model.out.weight))
        optimizer.step(closure)
    steps = seen.close()
    assert len(steps) == 2
    told = [value(step, "gradient/Net_out.weight", Statistic.MEAN_ABS) for step in steps]
    assert told == pytest.approx(first, rel=1e-5)
    assert [value(step, "Net_out.weight") for step in steps] == pytest.approx(weights, rel=1e-5)
    assert scalar(steps[0], "loss_output_1") < scalar(steps[0], "loss_output_0")


def test_parameters_that_the_program_steps_itself_end_a_step_too(watch: Watch) -> None:
    seen = watch(PARAMETERS, finds_models=False)
    model, criterion = Net(), nn.CrossEntropyLoss()
    assert seen.hook is not None
    seen.hook.watch(model)
    for _ in range(3):
        x, y = batch()
        criterion(model(x), y).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    steps = seen.close()
    assert len(steps) == 3
    assert {"Net_out.weight", "gradient/Net_out.weight", "CrossEntropyLoss_output_0"} <= names(steps[2])


def test_parameters_of_no_module_are_trained_by_their_numbers(watch: Watch) -> None:
    seen = watch(PARAMETERS)
    image = torch.zeros(3, 3, requires_grad=True)
    optimizer = torch.optim.SGD([image], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        ((image - 1.0) ** 2).sum().backward()
        optimizer.step()
    steps = seen.close()
    assert [scalar(step, "loss_output_0") for step in steps] == pytest.approx([9.0, 5.76, 3.6864])
    assert value(steps[1], "Parameter_0.weight") == pytest.approx(0.2)


def test_the_state_of_an_optimizer_is_there_from_its_second_step_on(watch: Watch) -> None:
    seen = watch({"optimizer_variables": {}})
    train(Net(), steps=3, optimizer=torch.optim.Adam)
    steps = seen.close()
    assert not any(name.startswith("optimizer/") for name in names(steps[0]))
    assert {"optimizer/exp_avg/Net_out.weight", "optimizer/exp_avg_sq/Net_out.weight"} <= names(steps[1])
    assert value(steps[2], "optimizer/exp_avg_sq/Net_out.weight") > 0


def test_a_model_without_a_name_is_found_when_it_was_copied(watch: Watch) -> None:
    import copy

    original = Net()
    seen = watch({"weights": {}})
    train(copy.deepcopy(original), steps=2)
    assert "Net_hidden.weight" in names(seen.close()[1])


def test_a_model_whose_parts_alone_are_called_is_found_by_them(watch: Watch) -> None:
    class Holder(nn.Module):  # type: ignore[misc]  # mypy does not read torch
        def __init__(self) -> None:
            super().__init__()
            self.model = Net()

    seen = watch({"relus": {"include_regex": "relu_output"}})
    holder, criterion = Holder(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(holder.parameters(), lr=0.1)
    for _ in range(4):
        x, y = batch()
        criterion(holder.model(x), y).backward()
        optimizer.step()
    holder.eval()
    with torch.no_grad():
        holder.model(batch()[0])
    steps = seen.close()
    assert [step.mode for step in steps] == [Mode.TRAIN] * 4 + [Mode.EVAL]


def test_a_batch_of_another_size_keeps_the_shares_of_elements_right(watch: Watch) -> None:
    seen = watch({"relus": {"include_regex": "relu_output"}})
    model, criterion = Net(), nn.CrossEntropyLoss()
    nn.init.constant_(model.hidden.bias, -100.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for size in (8, 3):
        x, y = batch(size)
        criterion(model(x), y).backward()
        optimizer.step()
    steps = seen.close()
    info = steps[1].table.tensors[steps[1].table.places["relu_output_0"]]
    assert [value(step, "relu_output_0", Statistic.ZEROS) / info.size for step in steps] == pytest.approx([1.0, 1.0])


def test_parameters_that_change_without_a_gradient_to_reset_end_a_step_too(watch: Watch) -> None:
    """Like those of an optimizer whose step was compiled, so that its hooks do not run."""
    seen = watch({"gradients": {}})
    model, criterion = Net(), nn.CrossEntropyLoss()
    torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        x, y = batch()
        model.zero_grad(set_to_none=False)
        criterion(model(x), y).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.1)
    steps = seen.close()
    assert len(steps) == 4
    assert "gradient/Net_out.weight" in names(steps[3])


def test_a_training_in_another_thread_is_the_training(watch: Watch) -> None:
    import threading

    seen = watch({"gradients": {}})
    model = Net()
    torch.optim.SGD(model.parameters(), lr=0.1)
    model.eval()
    with torch.no_grad():
        model(batch()[0])
    thread = threading.Thread(target=train, args=(model.train(),), kwargs={"steps": 3})
    thread.start()
    thread.join()
    seen.close()
    assert len(seen.of(Mode.TRAIN)) == 3


def test_models_that_are_trained_one_after_the_other_have_the_same_names(watch: Watch) -> None:
    seen = watch({"weights": {}})
    for width in (5, 7):
        model = nn.Sequential(nn.Linear(6, width), nn.Linear(width, 3))
        train(model, steps=2)
        del model
    steps = seen.close()
    assert names(steps[0]) == names(steps[3])
    places = [step.table.tensors[step.table.places["Sequential_0.weight"]] for step in (steps[0], steps[3])]
    assert [tensor.shape for tensor in places] == [(5, 6), (7, 6)]


def test_histograms_are_recorded_if_a_collection_asks_for_them(watch: Watch) -> None:
    from trainyard.formats.tensors.statistics.histograms import BINS

    seen = watch({"weights": {"save_interval": "2", "save_histogram": "true"}, "gradients": {"save_interval": "2"}})
    train(Net(), steps=3)
    seen.close()
    files = list((seen.folder / "histograms").rglob("*.arrows"))
    rows = [row for file in files for row in pyarrow.ipc.open_stream(file.read_bytes()).read_all().to_pylist()]
    assert sorted({row["step"] for row in rows}) == [0, 2]
    counts = next(value for value in rows[0].values() if isinstance(value, list))
    assert len(counts) == BINS
    assert {sum(next(value for value in row.values() if isinstance(value, list))) for row in rows} == {30, 15}


def train(model: nn.Module, *, steps: int, optimizer: Any = torch.optim.SGD) -> None:
    criterion = nn.CrossEntropyLoss()
    stepping = optimizer(model.parameters(), lr=0.1)
    for _ in range(steps):
        x, y = batch()
        stepping.zero_grad()
        criterion(model(x), y).backward()
        stepping.step()
