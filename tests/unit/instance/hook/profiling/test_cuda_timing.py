"""What the step timer tells about a training on a GPU."""

from pathlib import Path

import pytest
import torch

from tests.unit.instance.hook.profiling.profiled_program import ProgramRun, run_program, total_ms
from trainyard.formats.profiles.contract import STEPS_VARIABLE, StepPhase

pytestmark = pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="this machine has no CUDA GPU")

PROGRAM = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    assert not torch.cuda.is_initialized()
    data = TensorDataset(torch.randn(4096, 512), torch.randint(10, (4096,)))
    # Its workers are forked, which a process that uses CUDA could not be without care.
    loader = DataLoader(data, batch_size=64, num_workers=1)
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs.to("cuda")), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            {each_step}
"""


def run(folder: Path, each_step: str) -> ProgramRun:
    run = run_program(folder, PROGRAM.format(each_step=each_step), environment={STEPS_VARIABLE: "60"}, timeout_s=120)
    assert (run.code, run.notes, len(run.steps)) == (0, [], 60), run.output
    return run


def test_calls_that_wait_for_the_gpu_are_counted_and_copies_to_it_timed(tmp_path: Path) -> None:
    found = run(tmp_path, "total = loss.item() + float(loss); text = str(loss); values = loss.detach().to('cpu')")
    counts = {each["name"]: each["calls_per_step"] for each in found.facts["synchronizations"]}
    assert counts == {"item": 1, "float": 1, "print": 1, "cpu": 1}
    assert all(each["seconds_per_step"] > 0 for each in found.facts["synchronizations"])
    assert total_ms(found.steps, StepPhase.HOST_TO_DEVICE) > 0
    assert found.facts["device"] == "cuda"


def test_a_training_without_such_calls_has_none_and_its_gpu_has_holders_of_memory(tmp_path: Path) -> None:
    found = run(tmp_path, "pass")
    assert found.facts["synchronizations"] == []
    held = {each["name"]: each["bytes"] for each in found.facts["memory_holders"]}
    parameters = (512 * 2048 + 2048 + 2048 * 10 + 10) * 4
    assert held["parameters"] == held["gradients"] == parameters
    assert held["optimizer"] >= 2 * parameters
    assert held["activations"] > 0


def test_a_graph_that_is_compiled_as_a_whole_may_contain_these_calls(tmp_path: Path) -> None:
    found = run(
        tmp_path, "x = torch.compile(lambda t: t.to(torch.float16).float() * 2, fullgraph=True, backend='eager')(loss)"
    )
    assert torch.__version__ in found.facts["framework_version"]
