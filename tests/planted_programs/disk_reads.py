"""Samples are read from the disk one by one, past the page cache, as from a data set that is larger than the memory."""

import argparse
import mmap
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=4)
parser.add_argument("--file", required=True)
parser.add_argument("--reads", type=int, default=24)
parser.add_argument("--workers", type=int, default=0)
options = parser.parse_args()
PIECE, PIECES = 1 << 16, 1024
if not os.path.exists(options.file):
    with open(options.file, "wb") as file:
        for _ in range(PIECES // 16):
            file.write(os.urandom(16 * PIECE))
        os.fsync(file.fileno())


class StoredSamples(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        descriptor = os.open(options.file, os.O_RDONLY | os.O_DIRECT)
        buffer = mmap.mmap(-1, PIECE)
        for read in range(options.reads):
            os.preadv(descriptor, [buffer], (index * 7919 + read * 613) % PIECES * PIECE)
        os.close(descriptor)
        return torch.frombuffer(bytearray(buffer[:1024]), dtype=torch.uint8).float() / 255, index % 10


model = nn.Sequential(nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
end = time.monotonic() + options.seconds
while time.monotonic() < end:
    for inputs, labels in DataLoader(StoredSamples(), batch_size=32, num_workers=options.workers):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.monotonic() > end:
            break
