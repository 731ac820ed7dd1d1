"""A short PyTorch training: one epoch over the digits of scikit-learn with a small network, a DataLoader and Adam."""

import os
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
digits = load_digits()
images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer, measure = torch.optim.Adam(model.parameters(), lr=0.01), nn.CrossEntropyLoss()
for batch, wanted in DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True):
    optimizer.zero_grad()
    loss = measure(model(batch), wanted)
    loss.backward()
    optimizer.step()
print(f"loss={loss.item():.4f};", flush=True)
torch.save(model.state_dict(), Path(os.environ.get("SM_MODEL_DIR", ".")) / "model.pt")
