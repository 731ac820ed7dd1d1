"""Ranks that train together, each with its own hook."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from trainyard.formats.tensors.trials.trial import create_trial

SCRIPT = """
import os, sys, warnings
from pathlib import Path
import torch
import torch.distributed as dist
from torch import nn
from trainyard.instance.hook.configuration import parse_config
from trainyard.instance.hook.contract import HookContext
from trainyard.instance.hook.pytorch.torch_hook import TorchHook
from trainyard.instance.hook.recording import HookRecording


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(6, 4)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.hidden(x).relu())


def watch(folder):
    content = {
        "LocalPath": folder,
        "HookParameters": {"include_workers": "all", "save_interval": "1", "overhead_budget": "none"},
        "CollectionConfigurations": [{"CollectionName": name} for name in ("weights", "gradients")],
    }
    return TorchHook(HookRecording(parse_config(content), HookContext(send_event=lambda kind, payload: print(payload))))


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(torch.randn(4, 6)), torch.ones(4, 2)).backward()
        optimizer.step()


dist.init_process_group(
    "gloo", init_method=f"file://{sys.argv[1]}/meeting", rank=int(os.environ["RANK"]), world_size=2
)
torch.manual_seed(0)
hook = watch(f"{sys.argv[1]}/ddp")
train(nn.parallel.DistributedDataParallel(Net()))
hook.close()

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.manual_seed(0)
model = Net()
whole = model.hidden.weight.detach().clone()
hook = watch(f"{sys.argv[1]}/fsdp")
mesh = init_device_mesh("cpu", (2,))
fully_shard(model.hidden, mesh=mesh)
fully_shard(model, mesh=mesh)
train(model)
hook.close()
torch.save(whole, f"{sys.argv[1]}/whole-{dist.get_rank()}.pt")
dist.destroy_process_group()
# With or without a hook, threads of torch 2.13 abort about one process in a hundred that has used fully_shard on a CPU
# when its interpreter ends. All of the test is over by now.
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks that train first with replicas and then with shards of the model."""
    folder = tmp_path_factory.mktemp("ranks")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(folder)],
            env=os.environ | {"RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=180)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(outputs)
    return folder


def test_replicas_have_the_same_gradients_and_losses_of_their_own(trained: Path) -> None:
    trial = create_trial(str(trained / "ddp"))
    assert trial.workers() == ["worker_0", "worker_1"]
    assert trial.steps() == [0, 1, 2]
    gradient, loss = trial.tensor("gradient/Net_hidden.weight"), trial.tensor("loss_output_0")
    for step in trial.steps():
        assert (gradient.value(step, worker="worker_0") == gradient.value(step, worker="worker_1")).all()
        assert loss.value(step, worker="worker_0") != loss.value(step, worker="worker_1")


def test_parts_are_named_as_the_whole_and_put_together_give_it(trained: Path) -> None:
    trial = create_trial(str(trained / "fsdp"))
    assert trial.workers() == ["worker_0", "worker_1"]
    weight = trial.tensor("Net_hidden.weight")
    parts = [weight.value(0, worker=worker) for worker in trial.workers()]
    assert [part.shape for part in parts] == [(2, 6), (2, 6)]
    whole = torch.load(trained / "whole-0.pt").numpy()
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    gradients = [trial.tensor("gradient/Net_out.weight").value(2, worker=worker) for worker in trial.workers()]
    assert [gradient.shape for gradient in gradients] == [(1, 4), (1, 4)]
