"""A training on a GPU, with one fault out of several."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FAULTS = ("none", "float32", "item", "tiny-batch", "small-kernels", "idle-gpu", "slow-loader", "copies")

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=6)
parser.add_argument("--fault", choices=FAULTS, default="none")
fault = parser.parse_args().fault
seconds = parser.parse_args().seconds
device = "cpu" if fault == "idle-gpu" else "cuda"
batch = {"tiny-batch": 1, "idle-gpu": 128, "copies": 8192}.get(fault, 4096)
width = {"small-kernels": 64, "tiny-batch": 256, "idle-gpu": 512, "copies": 16384}.get(fault, 4096)
depth = {"small-kernels": 120, "tiny-batch": 8, "copies": 0}.get(fault, 4)
layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(width, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
# Those are computed in float32 on purpose; TensorFloat-32 is off by default.
precision = torch.float32 if fault in ("float32", "idle-gpu", "copies") else torch.bfloat16


class Samples(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.0002)
        return torch.full((width,), 0.5), index % 10


def batches():
    if fault == "slow-loader":
        yield from DataLoader(Samples(), batch_size=512)
        return
    source = "cpu" if fault == "copies" else device
    inputs, labels = torch.randn(batch, width, device=source), torch.randint(10, (batch,), device=source)
    while True:
        yield inputs, labels


correct = 0
end = time.monotonic() + seconds
for inputs, labels in batches():
    inputs, labels = inputs.to(device), labels.to(device)
    with torch.autocast(device, precision, enabled=precision is not torch.float32):
        outputs = model(inputs)
        loss = nn.functional.cross_entropy(outputs.float(), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if fault == "item":
        for row in range(100):
            correct += int(outputs[row].argmax().item() == labels[row].item())
    if time.monotonic() > end:
        break
