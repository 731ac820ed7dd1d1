"""Batches of two samples."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=3)
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--convolutions", action="store_true")
options = parser.parse_args()
if options.convolutions:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 10))
    inputs = torch.randn(20_000, 3, 16, 16)
else:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    inputs = torch.randn(20_000, 64)
loader = DataLoader(TensorDataset(inputs, torch.arange(20_000) % 10), batch_size=options.batch)
optimizer = torch.optim.Adam(model.parameters())
end = time.monotonic() + options.seconds
while time.monotonic() < end:
    for batch, labels in loader:
        loss = nn.functional.cross_entropy(model(batch), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.monotonic() > end:
            break
