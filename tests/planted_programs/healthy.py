"""Nothing is wrong: the model computes most of the time."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=4)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--item", action="store_true")
options = parser.parse_args()
model = nn.Sequential(
    *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()),
    nn.Linear(512, 10),
)
loader = DataLoader(
    TensorDataset(torch.randn(4096, 3, 32, 32), torch.arange(4096) % 10), batch_size=64, num_workers=options.workers
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
total = 0.0
end = time.monotonic() + options.seconds
while time.monotonic() < end:
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if options.item:
            total += loss.item()
        if time.monotonic() > end:
            break
