import argparse
import os

import emoji
import numpy as np
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--learning-rate", type=float, default=0.01)
args = parser.parse_args()

table = np.loadtxt(os.path.join(os.environ["SM_CHANNEL_TRAIN"], "digits.csv"), delimiter=",", dtype=np.float32)
features, labels = torch.from_numpy(table[:, :-1] / 16), torch.from_numpy(table[:, -1]).long()
torch.manual_seed(0)
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
for _ in range(args.epochs):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(features), labels)
    loss.backward()
    optimizer.step()
print(emoji.emojize(":rocket:"), f"loss: {loss.item():.3f}")
assert loss.item() < 1
torch.save(model.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
