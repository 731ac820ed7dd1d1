"""Trainings on a GPU, for which the hook never waits."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.unit.instance.hook.pytorch.conftest import Watch, mean, names, scalar, value
from tests.unit.instance.hook.pytorch.programs import train
from trainyard.formats.tensors.contract import Mode, Statistic
from trainyard.formats.tensors.trials.trial import create_trial

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA GPU")

EVERYTHING = {"all": {"save_interval": "2"}}


def make() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).cuda()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(16, 64, device="cuda"), torch.randint(0, 8, (16,), device="cuda")


def test_losses_statistics_and_values_arrive_and_change_nothing(watch: Watch) -> None:
    plain = make()
    watched = copy.deepcopy(plain)
    expected = train(plain, batch, steps=6)
    seen = watch(EVERYTHING)
    assert train(watched, batch, steps=6) == expected
    steps = seen.close()
    assert [scalar(step, "CrossEntropyLoss_output_0") for step in steps] == pytest.approx(expected, rel=1e-6)
    assert value(steps[3], "1_output_0", Statistic.MIN) == 0.0
    trial = create_trial(str(seen.folder))
    assert trial.tensor("Sequential_0.weight").steps() == [0, 2, 4]
    assert (trial.tensor("Sequential_0.weight").value(4) != trial.tensor("Sequential_0.weight").value(2)).any()


def test_the_hook_never_makes_the_program_wait_for_the_device(watch: Watch) -> None:
    seen = watch({"weights": {}, "gradients": {}, "relus": {"include_regex": "1_output"}})
    model = make()
    train(model, batch, steps=6)
    torch.cuda.set_sync_debug_mode("error")
    try:
        criterion, optimizer = nn.MSELoss(), torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = torch.randn(16, 64, device="cuda"), torch.randn(16, 8, device="cuda")
        for _ in range(8):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    steps = seen.close()
    assert len(steps) == 14
    assert "gradient/Sequential_0.weight" in names(steps[-1])


def test_gradients_that_a_fused_optimizer_unscales_are_recorded_unscaled(watch: Watch) -> None:
    seen = watch({"gradients": {}})
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=256.0)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = functional.mse_loss(model(torch.randn(16, 64, device="cuda")), torch.zeros(16, 8, device="cuda"))
    scaler.scale(loss).backward()
    scaled = mean(model[0].weight.grad.abs().cpu())
    scaler.step(optimizer)
    scaler.update()
    (step,) = seen.close()
    assert value(step, "gradient/Sequential_0.weight", Statistic.MEAN_ABS) == pytest.approx(scaled / 256.0, rel=1e-4)
    assert scalar(step, "loss_output_0") == pytest.approx(loss.item())


def test_a_model_compiled_by_inductor_keeps_the_statistics_of_its_layers(watch: Watch) -> None:
    seen = watch({"relus": {"include_regex": "1_output", "reductions": "max"}, "gradients": {}})
    model = make()
    compiled = torch.compile(model, fullgraph=True)
    train(compiled, batch, steps=4)
    steps = seen.close()
    assert [step.mode for step in steps] == [Mode.TRAIN] * 4
    assert value(steps[3], "1_output_0", Statistic.MAX) > 0
    assert not math.isnan(value(steps[3], "gradient/Sequential_0.weight", Statistic.STD))


def test_the_time_of_the_device_is_paid_from_the_budget(watch: Watch) -> None:
    seen = watch({"weights": {}, "gradients": {}}, parameters={"overhead_budget": "1"})
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(4))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(32):
        optimizer.zero_grad()
        functional.mse_loss(model(torch.randn(8, 2048, device="cuda")), torch.zeros(8, 2048, device="cuda")).backward()
        optimizer.step()
    torch.cuda.synchronize()
    seen.close()
    assert seen.hook is not None
    assert seen.hook.recording.throttle.overhead > 0
