"""Training with a real mpirun, installed from the job's requirements, on three instances with two ranks each.

Its argument is the package of the estimators, sagemaker or trainyard. Each rank sums with mpi4py and with torch, and
must find all others with both.
"""

import importlib
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

estimating: Any = importlib.import_module("estimating")

SCRIPT = """
import argparse, json, os, pathlib

import torch
import torch.distributed as dist
from mpi4py import MPI

parser = argparse.ArgumentParser()
parser.add_argument("--failing", type=int, default=-1)
failing = parser.parse_args().failing
world = MPI.COMM_WORLD
rank = world.Get_rank()
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() ** 2)])
dist.all_reduce(total)
told = {
    "rank": rank,
    "size": world.Get_size(),
    "host": os.environ["SM_CURRENT_HOST"],
    "by_mpi": world.allreduce(rank**2),
    "torch_rank": dist.get_rank(),
    "by_torch": total.item(),
    "debug": os.environ["NCCL_DEBUG"],
    "library": MPI.Get_library_version(),
}
pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], f"{rank}.json").write_text(json.dumps(told))
if rank == failing:
    raise ValueError("no such optimizer")
world.barrier()
dist.destroy_process_group()
"""
OPTIONS = "--NCCL_DEBUG INFO -mca btl_base_verbose 0 --tag-output"
VERSIONS = ("5.0.11", "4.1.8")
RANKS = range(6)


def main(package: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kit = estimating.kit_of(package, folder)
        for version in VERSIONS:
            # An isolated job can install nothing, but finds what another job has installed.
            for is_isolated in (False, True):
                finds_all_ranks(kit, version, is_isolated=is_isolated)
        names_the_rank_that_fails(kit, VERSIONS[0])


def finds_all_ranks(kit: Any, version: str, *, is_isolated: bool) -> None:
    job = estimator(kit, version, enable_network_isolation=is_isolated)
    job.fit(logs=False)
    told = kit.told(job)
    squares = sum(rank**2 for rank in RANKS)
    assert [(each["rank"], each["torch_rank"], each["size"]) for each in told] == [(rank, rank, 6) for rank in RANKS]
    assert [each["host"] for each in told] == [f"algo-{rank // 2 + 1}" for rank in RANKS]
    assert {(each["by_mpi"], each["by_torch"], each["debug"]) for each in told} == {(squares, squares, "INFO")}, told
    assert all(f"Open MPI v{version}" in each["library"] for each in told), told


def names_the_rank_that_fails(kit: Any, version: str) -> None:
    job = estimator(kit, version, hyperparameters={"failing": 3})
    job.fit(wait=False)
    # Each package has its own error.
    with suppress(Exception):
        job.latest_training_job.wait(logs=False)
    described = kit.session.describe_training_job(job.latest_training_job.name)
    assert described["TrainingJobStatus"] == "Failed", described
    assert "rank 3 on algo-2" in described["FailureReason"], described["FailureReason"]
    assert "ValueError: no such optimizer" in described["FailureReason"], described["FailureReason"]


def estimator(kit: Any, version: str, **options: Any) -> Any:
    requirements = Path(kit.folder, version, "requirements.txt")
    requirements.parent.mkdir(exist_ok=True)
    requirements.write_text(f"openmpi=={version}\nmpi4py==4.1.2\n")
    mpi = {"enabled": True, "processes_per_host": 2, "custom_mpi_options": OPTIONS}
    return kit.estimator(
        SCRIPT, instance_count=3, distribution={"mpi": mpi}, dependencies=[str(requirements)], **options
    )


main(*sys.argv[1:])
