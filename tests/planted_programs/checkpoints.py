"""The program saves a checkpoint every few steps."""

import argparse
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=4)
parser.add_argument("--file", required=True)
parser.add_argument("--every", type=int, default=10)
options = parser.parse_args()
model = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
optimizer = torch.optim.Adam(model.parameters())
end = time.monotonic() + options.seconds
step = 0
while time.monotonic() < end:
    loss = nn.functional.cross_entropy(model(torch.randn(32, 256)), torch.arange(32) % 10)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % options.every == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, options.file)
