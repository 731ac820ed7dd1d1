"""Trains a network with far too much weight decay: its weights shrink until its gradients vanish."""

import time

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
layers: list[nn.Module] = [nn.Linear(32, 64), nn.Tanh()]
for _ in range(6):
    layers += [nn.Linear(64, 64), nn.Tanh()]
model = nn.Sequential(*layers, nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.12)
inputs = torch.randn(512, 32)
wanted = (inputs[:, :4]).argmax(dim=1)
for step in range(100_000):
    batch = torch.randint(0, 512, (64,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs[batch]), wanted[batch])
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"train_loss={loss.item():.5f}", flush=True)
    time.sleep(0.01)
