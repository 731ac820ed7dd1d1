"""Two ranks share the work, but one of them has more of it."""

import argparse
import time

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--extra-ms", type=float, default=25)
parser.add_argument("--slow", type=int, default=1)
options = parser.parse_args()
torch.set_num_threads(1)
distributed.init_process_group("gloo")
rank = distributed.get_rank()
model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(options.steps):
    inputs, labels = torch.randn(64, 256), torch.arange(64) % 10
    if rank == options.slow:
        time.sleep(options.extra_ms / 1000)
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
distributed.destroy_process_group()
