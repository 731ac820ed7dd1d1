"""What it costs to sample the hardware of an instance: the agent's sampler, and psutil reading the same.

    python -m benchmarks.sampler [--rounds N] [--seconds S] [--interval-ms M] [--processes N]

Each samples the machine and a job of some processes in its own process, in turns. Figures are CPU time, user and
system, as a share of a core. psutil is measured as it is commonly used, with the tree of the job's processes looked up
at each sample, and with a tree that is looked up once in a second, as the agent's is. On a machine with GPUs of NVIDIA,
our sampler is measured a second time, with the GPUs; the difference is what NVML costs.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.measurement import in_turns, spread, write_results
from tests.conformance.environments import interpreter

# Of a core, at 100 ms.
GOAL = 0.003
LIBRARIES = {"trainyard": "our sampler", "psutil": "psutil", "psutil-slow": "psutil, tree once a second"}
WITH_GPUS = "trainyard-gpus"
if Path("/dev/nvidiactl").exists():
    LIBRARIES[WITH_GPUS] = "our sampler, with GPUs"

_SCRIPT = Path(__file__).parent / "scripts" / "sample_hardware.py"
_REPOSITORY = Path(__file__).parents[1]
# A process that starts others, which sleep, and ends with them.
_JOB = """
import subprocess, sys
below = [subprocess.Popen(["sleep", "86400"]) for _ in range(int(sys.argv[1]))]
print("ready", flush=True)
sys.stdin.read()
for process in below:
    process.kill()
    process.wait()
"""


def main() -> None:
    arguments = _arguments()
    pythons = {name: interpreter("psutil") if "psutil" in name else Path(sys.executable) for name in LIBRARIES}
    sizes: dict[str, int] = {}
    with _job(arguments.processes) as pid:

        def share_of(name: str) -> float:
            told = _run(pythons[name], name, pid, arguments)
            sizes[name] = int(told["values"])
            return told["cpu_s"] / float(arguments.seconds)

        shares = in_turns({name: partial(share_of, name) for name in LIBRARIES}, rounds=arguments.rounds)
    for name, label in LIBRARIES.items():
        print(f"{label:28} {100 * spread(shares[name]).median:6.2f} % of a core, {sizes[name]} values in a sample")
    ours = spread(shares["trainyard"]).median
    print(f"At {arguments.interval_ms} ms. The goal of our sampler is {GOAL:.1%} of a core; it takes {ours:.2%}.")
    told = {**vars(arguments), "shares": shares, "values": sizes, "goal": GOAL}
    print(f"Every round is in {write_results('sampler', told)}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure sampling the hardware beside psutil.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--interval-ms", type=int, default=100)
    parser.add_argument("--processes", type=int, default=8)
    return parser.parse_args()


@contextmanager
def _job(processes: int) -> Iterator[int]:
    command = [sys.executable, "-c", _JOB, str(processes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        job.stdout.readline()
        yield job.pid
        job.communicate()


def _run(python: Path, library: str, pid: int, arguments: argparse.Namespace) -> dict[str, float]:
    environment = os.environ | ({} if "psutil" in library else {"PYTHONPATH": str(_REPOSITORY / "src")})
    command = [str(python), str(_SCRIPT), library, str(pid), str(arguments.seconds), str(arguments.interval_ms / 1000)]
    told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return dict(json.loads(told))


if __name__ == "__main__":
    main()
