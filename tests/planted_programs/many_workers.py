"""More data workers than cores decode images."""

import argparse
import hashlib
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=5)
parser.add_argument("--workers", type=int, default=8)
parser.add_argument("--epoch", type=int, default=640)
parser.add_argument("--decoding", type=int, default=60)
options = parser.parse_args()


class EncodedImages(Dataset):
    def __len__(self):
        return options.epoch

    def __getitem__(self, index):
        data = index.to_bytes(8, "little")
        for _ in range(options.decoding):
            data = hashlib.blake2b(data * 64).digest()
        return torch.frombuffer(bytearray(data * 48), dtype=torch.uint8).float().reshape(3, 32, 32) / 255, index % 10


model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
end = time.monotonic() + options.seconds
while time.monotonic() < end:
    for images, labels in DataLoader(EncodedImages(), batch_size=16, num_workers=options.workers):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.monotonic() > end:
            break
