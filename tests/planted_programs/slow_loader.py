"""Samples come from a slow service, so that the program waits for each batch."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=4)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--latency-ms", type=float, default=3)
options = parser.parse_args()


class RemoteSamples(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(options.latency_ms / 1000)
        return torch.full((256,), index / 4000), index % 10


model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
end = time.monotonic() + options.seconds
while time.monotonic() < end:
    for inputs, labels in DataLoader(RemoteSamples(), batch_size=32, num_workers=options.workers):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.monotonic() > end:
            break
