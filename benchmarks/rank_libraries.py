"""A step of three ranks with our horovod.torch, compared with torch's DistributedDataParallel.

    python -m benchmarks.rank_libraries [--rounds N]

Both train the same convolutional network on CPUs over gloo, in the same three processes, in turns.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measurement import write_results

# As a multiple of a step of DDP.
GOAL = 1.03
WIDTHS = (1, 4, 12)
RANKS = 3

_SCRIPT = Path(__file__).parent / "scripts" / "data_parallel_steps.py"
_STAND_INS = Path(__file__).parents[1] / "src" / "trainyard" / "instance" / "compat"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a step with the stand-in for horovod beside torch's DDP.")
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    results = [_measure(width, rounds) for width in WIDTHS]
    print(f"{'parameters':>12}{'ddp ms':>10}{'horovod ms':>12}{'ratio':>8}   goal {GOAL}")
    for told in results:
        ddp, horovod = (1e3 * median(told[name]) for name in ("ddp", "horovod"))
        print(f"{told['parameters']:12,}{ddp:10.2f}{horovod:12.2f}{_ratio(told):8.3f}")
    print(f"\nAll of it is in {write_results('rank_libraries', {'rounds': rounds, 'seconds': results})}.")


def _ratio(told: dict[str, Any]) -> float:
    """Return the median of the ratios within pairs: a busy machine slows both members of a pair."""
    return float(median(ours / theirs for ours, theirs in zip(told["horovod"], told["ddp"], strict=True)))


def _measure(width: int, rounds: int) -> dict[str, Any]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ranks = [_start(rank, port, [str(width), str(rounds)]) for rank in range(RANKS)]
    printed = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit("A rank has failed; what it said is above.")
    return dict(json.loads(printed[0]))


def _start(rank: int, port: int, arguments: list[str]) -> "subprocess.Popen[bytes]":
    environment = os.environ | {
        "PYTHONPATH": str(_STAND_INS),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    return subprocess.Popen([sys.executable, str(_SCRIPT), *arguments], env=environment, stdout=subprocess.PIPE)


if __name__ == "__main__":
    main()
