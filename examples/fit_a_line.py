"""A training script in plain Python: fits a line to a few points and saves its two numbers as the model.

`trainyard run examples/fit_a_line.py -- --epochs 50` runs it as a job. Run by itself, it writes to a temporary folder.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

POINTS = [(x / 10, 3 * x / 10 + 1) for x in range(-10, 11)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.3)
    options = parser.parse_args()
    slope = offset = 0.0
    for epoch in range(1, options.epochs + 1):
        errors = [(x, slope * x + offset - y) for x, y in POINTS]
        slope -= options.rate * sum(error * x for x, error in errors) / len(POINTS)
        offset -= options.rate * sum(error for _, error in errors) / len(POINTS)
        print(f"epoch {epoch} loss={sum(error**2 for _, error in errors) / len(POINTS):.4f}")
    folder = Path(os.environ.get("SM_MODEL_DIR") or tempfile.mkdtemp())
    (folder / "line.json").write_text(json.dumps({"slope": slope, "offset": offset}))


if __name__ == "__main__":
    main()
