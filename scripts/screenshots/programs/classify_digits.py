"""Trains a convolutional network on the handwritten digits of scikit-learn, with a data loader and a validation set."""

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--learning-rate", type=float, default=0.002)
parser.add_argument("--dropout", type=float, default=0.1)
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--dataset-version", default="1")
options = parser.parse_args()

torch.manual_seed(7)
torch.set_num_threads(1)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
training, validation = random_split(TensorDataset(images, labels), [1400, len(images) - 1400])
batches = DataLoader(training, options.batch_size, shuffle=True)
held_out = DataLoader(validation, 256)
print(f"{len(training)} images to learn from, {len(validation)} to validate")

model = nn.Sequential(
    nn.Conv2d(1, options.width, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(options.width, 2 * options.width, 3, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Dropout(options.dropout),
    nn.Linear(32 * options.width, 10),
)
optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
measure = nn.CrossEntropyLoss()
for epoch in range(1, options.epochs + 1):
    model.train()
    for number, (pictures, wanted) in enumerate(batches):
        optimizer.zero_grad()
        loss = measure(model(pictures), wanted)
        loss.backward()
        optimizer.step()
        if number % 5 == 0:
            print(f"train_loss={loss.item():.5f}", flush=True)
        time.sleep(options.pause)
    model.eval()
    with torch.no_grad():
        found = [(model(pictures), wanted) for pictures, wanted in held_out]
    right = sum(int((outputs.argmax(1) == wanted).sum()) for outputs, wanted in found) / len(validation)
    total = sum(float(measure(outputs, wanted)) * len(wanted) for outputs, wanted in found) / len(validation)
    print(f"epoch {epoch}: val_loss={total:.5f} val_accuracy={right:.4f}", flush=True)
torch.save(model.state_dict(), "/opt/ml/model/digits.pt")
