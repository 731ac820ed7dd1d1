"""A training script in PyTorch that may be interrupted at any moment: it keeps a checkpoint of each epoch, and goes on
from the last one that it finds.

As a job it keeps them in `/opt/ml/checkpoints`, which is kept in S3 when the job has a `checkpoint_s3_uri`; run by
itself it begins anew each time. `spot.py` makes a job of it that is interrupted.
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
    parser.add_argument("--pause", type=float, default=0.0, help="seconds by which an epoch takes longer")
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
    """Bring back all that training depends on, and tell the last epoch that is done."""
    if not file.exists():
        return 0
    kept = torch.load(file)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])  # its momentum, too
    return int(kept["epoch"])


def save(file: Path, model: Any, optimizer: Any, *, epoch: int) -> None:
    fresh = file.with_name("fresh.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, fresh)
    fresh.replace(file)  # whoever stops the script now leaves the old one or the new one, and never half of one


def train(model: Any, optimizer: Any, *, epoch: int) -> float:
    """One epoch, whose data depends on nothing but its number: so that a resumed run is the same as any other."""
    points = torch.randn(64, 2, generator=torch.Generator().manual_seed(epoch))
    optimizer.zero_grad()
    loss = (model(points).squeeze(1) - (3 * points[:, 0] - points[:, 1] + 1)).square().mean()
    loss.backward()
    optimizer.step()
    return float(loss.item())


if __name__ == "__main__":
    main()
