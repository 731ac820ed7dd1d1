"""A short PyTorch training for tuning: a few epochs over the digits of scikit-learn with a small network."""

import argparse
import os
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--hidden", type=int, required=True)
parser.add_argument("--epochs", type=int, default=10)
given, _ = parser.parse_known_args()

torch.manual_seed(1)
torch.set_num_threads(1)  # as many as a slot has
digits = load_digits()
images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
data = DataLoader(TensorDataset(images[:1500], labels[:1500]), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, given.hidden), nn.ReLU(), nn.Linear(given.hidden, 10))
optimizer, measure = torch.optim.Adam(model.parameters(), lr=given.lr), nn.CrossEntropyLoss()
for _epoch in range(given.epochs):
    for batch, wanted in data:
        optimizer.zero_grad()
        measure(model(batch), wanted).backward()
        optimizer.step()
    with torch.no_grad():
        print(f"loss={measure(model(images[1500:]), labels[1500:]).item():.4f};", flush=True)
torch.save(model.state_dict(), Path(os.environ.get("SM_MODEL_DIR", ".")) / "model.pt")
