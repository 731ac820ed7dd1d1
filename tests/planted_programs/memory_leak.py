"""The outputs of the hidden layers of each step are kept, to look at them later."""

import argparse
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=8)
parser.add_argument("--mended", action="store_true")
options = parser.parse_args()
hidden = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())
model = nn.Sequential(hidden, nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []
hidden.register_forward_hook(lambda module, inputs, outputs: kept.append(outputs.mean() if options.mended else outputs))
end = time.monotonic() + options.seconds
while time.monotonic() < end:
    loss = nn.functional.cross_entropy(model(torch.randn(128, 64)), torch.arange(128) % 10)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if options.mended:
        kept[-1] = kept[-1].item()
