import argparse
import json
import os
from pathlib import Path

import emoji
import torch
from digits.data import load
from digits.model import build

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
config = json.loads(Path(parser.parse_args().config).read_text())

torch.manual_seed(0)
features, labels = load(Path(os.environ["SM_CHANNEL_TRAINING"], "digits.csv"))
model = build(config["hidden"])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(config["epochs"]):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(features), labels)
    loss.backward()
    optimizer.step()
accuracy = (model(features).argmax(1) == labels).float().mean().item()
print(emoji.emojize(":check_mark:"), f"accuracy={accuracy:.3f}")
torch.save(model.state_dict(), Path(os.environ["SM_MODEL_DIR"], "model.pt"))
