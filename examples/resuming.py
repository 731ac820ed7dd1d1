"""A PyTorch training script that can be interrupted at any time: it saves a checkpoint after each epoch and resumes
from the last one.

In a job, checkpoints are in `/opt/ml/checkpoints`, which is kept in S3 if the job has a `checkpoint_s3_uri`. Run by
itself, the script starts from the beginning each time. `spot.py` runs it as a job that is interrupted.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

CHECKPOINTS = Path("/opt/ml/checkpoints")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait after each epoch")
    options = parser.parse_args()
    torch.manual_seed(1)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    file = (CHECKPOINTS if CHECKPOINTS.is_dir() else Path(tempfile.mkdtemp())) / "last.pt"
    done = resume(file, model, optimizer)
    print(f"resumed after epoch {done}" if done else "began anew", flush=True)
    for epoch in range(done + 1, options.epochs + 1):
        print(f"epoch {epoch} loss={train(model, optimizer, epoch=epoch):.4f}", flush=True)
        save(file, model, optimizer, epoch=epoch)
        time.sleep(options.pause)
    torch.save(model.state_dict(), Path(os.environ.get("SM_MODEL_DIR") or tempfile.mkdtemp()) / "line.pt")


def resume(file: Path, model: Any, optimizer: Any) -> int:
    """Restore everything that training depends on, and return the last completed epoch."""
    if not file.exists():
        return 0
    kept = torch.load(file)
    model.load_state_dict(kept["model"])
    # Includes the momentum.
    optimizer.load_state_dict(kept["optimizer"])
    return int(kept["epoch"])


def save(file: Path, model: Any, optimizer: Any, *, epoch: int) -> None:
    fresh = file.with_name("fresh.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, fresh)
    # Atomic: an interruption leaves the old checkpoint or the new one, never half of one.
    fresh.replace(file)


def train(model: Any, optimizer: Any, *, epoch: int) -> float:
    """Train one epoch. Its data depends only on its number, so a resumed run equals an uninterrupted one."""
    points = torch.randn(64, 2, generator=torch.Generator().manual_seed(epoch))
    optimizer.zero_grad()
    loss = (model(points).squeeze(1) - (3 * points[:, 0] - points[:, 1] + 1)).square().mean()
    loss.backward()
    optimizer.step()
    return float(loss.item())


if __name__ == "__main__":
    main()
