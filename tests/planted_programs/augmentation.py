"""Images are augmented sample by sample with more computing than the model needs."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=4)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--rounds", type=int, default=12)
parser.add_argument("--size", type=int, default=64)
parser.add_argument("--epoch", type=int, default=2000)
options = parser.parse_args()
kernel = torch.ones(3, 1, 5, 5) / 25


class AugmentedImages(Dataset):
    def __len__(self):
        return options.epoch

    def __getitem__(self, index):
        image = torch.rand(1, 3, options.size, options.size)
        for _ in range(options.rounds):
            image = nn.functional.conv2d(image, kernel, padding=2, groups=3).flip(-1)
        return image[0, :, :32, :32], index % 10


model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
end = time.monotonic() + options.seconds
while time.monotonic() < end:
    for images, labels in DataLoader(AugmentedImages(), batch_size=16, num_workers=options.workers):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.monotonic() > end:
            break
