"""Train a small model: it learns on which side of a line a point lies.

Replace the data, the model and the loop by your own. The script also runs without the yard: `python train.py`.
"""

import argparse
import json
import math
import os
import random
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    # Hyperparameters come as arguments.
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.1)
    options = parser.parse_args()

    # An input channel NAME is the folder in SM_CHANNEL_NAME; this script makes up its data instead.
    generator = random.Random(0)
    points = [(generator.uniform(-1, 1), generator.uniform(-1, 1)) for _ in range(1000)]
    labels = [1.0 if 2 * x - y > 0.3 else 0.0 for x, y in points]

    weights = [0.0, 0.0, 0.0]
    for epoch in range(1, options.epochs + 1):
        loss, correct = 0.0, 0
        for (x, y), label in zip(points, labels, strict=True):
            guess = 1 / (1 + math.exp(-(weights[0] * x + weights[1] * y + weights[2])))
            error = guess - label
            weights = [w - options.lr * error * value for w, value in zip(weights, (x, y, 1.0), strict=True)]
            loss -= math.log(guess if label else 1 - guess)
            correct += (guess > 0.5) == bool(label)
        # The table run.md of trainyard.toml says how to read metrics from this line.
        print(f"epoch {epoch} loss: {loss / len(points):.4f} accuracy: {correct / len(points):.4f}", flush=True)

    # What is saved in this folder becomes the model of the job.
    folder = Path(os.environ.get("SM_MODEL_DIR", "model"))
    folder.mkdir(exist_ok=True)
    (folder / "model.json").write_text(json.dumps({"weights": weights}))


if __name__ == "__main__":
    main()
