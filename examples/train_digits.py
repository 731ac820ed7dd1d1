"""A PyTorch training script: a small network learns to read the handwritten digits of scikit-learn.

In a job it reads `digits.csv.gz` from the channel `data` and saves its weights in the model folder. Run by itself, it
reads the file from scikit-learn and saves nothing. `estimator.py` and `make demo` run it as a job.
"""

import argparse
import csv
import gzip
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

PIXELS = 64
# Every sixth digit is held out for the test.
TESTED = slice(0, None, 6)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.002)
    options = parser.parse_args()
    torch.manual_seed(1)
    # With a network this small, more threads only wait for each other.
    torch.set_num_threads(1)
    images, labels = load(digits_file())
    print(f"{len(images)} digits, {len(images[TESTED])} of them kept for the test")
    model = nn.Sequential(nn.Linear(PIXELS, 128), nn.ReLU(), nn.Linear(128, 10))
    train(model, images, labels, options=options)
    if folder := os.environ.get("SM_MODEL_DIR"):
        torch.save(model.state_dict(), Path(folder) / "digits.pt")


def digits_file() -> Path:
    channel = os.environ.get("SM_CHANNEL_DATA")
    if channel:
        return Path(channel) / "digits.csv.gz"
    import sklearn.datasets

    return Path(sklearn.datasets.__file__).parent / "data" / "digits.csv.gz"


def load(file: Path) -> tuple[Any, Any]:
    """Return images and their digits. Each line has the 64 grey values of an image, 0 to 16, and its digit."""
    with gzip.open(file, "rt") as lines:
        table = torch.tensor([[float(value) for value in row] for row in csv.reader(lines)])
    return table[:, :PIXELS] / 16, table[:, PIXELS].long()


def train(model: Any, images: Any, labels: Any, *, options: argparse.Namespace) -> None:
    learned = torch.tensor([place for place in range(len(images)) if place % TESTED.step])
    measure = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=options.rate)
    for epoch in range(1, options.epochs + 1):
        total = 0.0
        for batch in learned[torch.randperm(len(learned))].split(options.batch):
            optimizer.zero_grad()
            loss = measure(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        with torch.no_grad():
            right = (model(images[TESTED]).argmax(dim=1) == labels[TESTED]).float().mean().item()
        print(f"epoch {epoch:2} loss={total / len(learned):.4f} accuracy={right:.4f}", flush=True)


if __name__ == "__main__":
    main()
