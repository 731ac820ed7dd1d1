"""Two ranks average all gradients of a large model one by one, after each small batch."""

import argparse

import torch
from torch import distributed, nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--every", type=int, default=1)
options = parser.parse_args()
torch.set_num_threads(1)
distributed.init_process_group("gloo")
model = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(options.steps):
    loss = nn.functional.cross_entropy(model(torch.randn(8, 256)), torch.arange(8) % 10)
    optimizer.zero_grad()
    loss.backward()
    if step % options.every == 0:
        for parameter in model.parameters():
            distributed.all_reduce(parameter.grad)
    optimizer.step()
distributed.destroy_process_group()
