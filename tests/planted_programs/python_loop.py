"""A metric is computed sample by sample in Python."""

import argparse
import math
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=4)
parser.add_argument("--where", choices=("loop", "forward", "nowhere"), default="loop")
options = parser.parse_args()


def entropy(rows):
    total = 0.0
    for row in rows:
        for value in row:
            total += value * math.log(abs(value) + 1e-9)
    return total


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
        self.entropy = 0.0

    def forward(self, inputs):
        if options.where == "forward":
            self.entropy = entropy(inputs.tolist())
        return self.layers(inputs)


model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
end = time.monotonic() + options.seconds
while time.monotonic() < end:
    inputs = torch.randn(128, 256)
    loss = nn.functional.cross_entropy(model(inputs), torch.arange(128) % 10)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if options.where == "loop":
        print(f"loss={loss.item():.4f} entropy={entropy(inputs.tolist()):.2f}")
