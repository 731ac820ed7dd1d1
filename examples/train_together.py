"""A PyTorch training script whose processes train one model together. A single process trains the same model.

The launcher sets the rank of each process and the address of the first one. `distributed.py` runs it on three
instances.
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORLD, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
# Over all processes.
BATCH = 48


def main() -> None:
    # The same data and initial weights in every process.
    torch.manual_seed(0)
    torch.set_num_threads(1)
    inputs = torch.randn(480, 8)
    targets = inputs @ torch.randn(8, 1)
    model: nn.Module = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    if WORLD > 1:
        # Use "nccl" for a model on GPUs.
        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(1, 6):
        for batch in range(0, len(inputs), BATCH):
            # The part of the batch for this process.
            mine = torch.arange(batch + RANK, batch + BATCH, WORLD)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs[mine]), targets[mine]).backward()
            optimizer.step()
        with torch.no_grad():
            loss = nn.functional.mse_loss(model(inputs), targets).item()
        print(f"rank {RANK} of {WORLD} epoch {epoch} loss={loss:.6f}")
    if RANK == 0 and (folder := os.environ.get("SM_MODEL_DIR")):
        torch.save(model.state_dict(), Path(folder) / "model.pt")
    if WORLD > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
