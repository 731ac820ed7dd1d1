"""Training on several instances with estimators: every form of `distribution`, instance groups, and isolation.

Its arguments are the package of the estimators, sagemaker or trainyard, and the port of the yard. Each job computes
something that must be the same on every rank, and reports where it ran.
"""

import importlib
import sys
import tempfile
from typing import Any

estimating: Any = importlib.import_module("estimating")

TELL = """
import json, os, pathlib

def tell(rank, **told):
    told |= {"rank": rank, "host": os.environ["SM_CURRENT_HOST"], "master": os.environ["MASTER_ADDR"]}
    pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], f"{rank:02}.json").write_text(json.dumps(told))
"""
# The sum of the squares of all ranks.
SUM = f"""{TELL}
IMPORTS
import torch
import torch.distributed as dist

dist.init_process_group("BACKEND")
total = torch.tensor([float(dist.get_rank() ** 2)])
dist.all_reduce(total)
tell(dist.get_rank(), size=dist.get_world_size(), total=total.item(), **MORE)
dist.destroy_process_group()
"""
HOROVOD = f"""{TELL}
import horovod.torch as hvd
import torch

hvd.init()
total = hvd.allreduce(torch.tensor([float(hvd.rank() ** 2)]), op=hvd.Sum)
debug = os.environ["NCCL_DEBUG"]
tell(hvd.rank(), size=hvd.size(), total=total.item(), local=hvd.local_rank(), debug=debug)
"""
# All workers fit the same line on the servers.
SERVED = f"""{TELL}
import torch
from trainyard.parameter_server import Worker

torch.manual_seed(0)
inputs = torch.randn(64, 2)
model = torch.nn.Linear(2, 1)
with Worker(model.named_parameters(), optimizer="SGD", lr=0.1) as server:
    for _ in range(80):
        server.pull()
        model.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), inputs @ torch.tensor([[2.0], [-1.0]]) + 3).backward()
        server.push()
    server.finish()
    found = [round(float(value), 2) for each in model.parameters() for value in each.detach().flatten()]
    tell(server.rank, size=server.size, found=found)
"""
# One group trains together; the other instances run alone, but know the group.
GROUPED = f"""{TELL}
import torch
import torch.distributed as dist

group, world = os.environ["SM_CURRENT_INSTANCE_GROUP"], json.loads(os.environ["SM_DISTRIBUTION_INSTANCE_GROUPS"])
channels, hosts = json.loads(os.environ["SM_CHANNELS"]), json.loads(os.environ["SM_HOSTS"])
if group not in world:
    tell(-1, channels=channels, ranked="RANK" in os.environ, group=group, world=world, hosts=hosts)
else:
    dist.init_process_group("gloo")
    total = torch.tensor([float(dist.get_rank() ** 2)])
    dist.all_reduce(total)
    tell(dist.get_rank(), channels=channels, size=dist.get_world_size(), total=total.item())
    dist.destroy_process_group()
"""
REACHING = """
import socket

def reaches_yard(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True
"""
IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.3.0-cpu-py311"
GPUS = {"instance_type": "ml.p3.16xlarge", "framework_version": "1.12.0", "py_version": "py38"}


def main(package: str, port: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kit = estimating.kit_of(package, folder)
        is_launched_by_mpi(kit)
        is_launched_as_torchrun_does(kit)
        is_data_parallel(kit)
        is_served(kit)
        is_of_groups(kit)
        is_isolated(kit, int(port))


def is_launched_by_mpi(kit: Any) -> None:
    mpi = {"enabled": True, "processes_per_host": 2, "custom_mpi_options": "--NCCL_DEBUG INFO"}
    told = ran(kit, HOROVOD, instance_count=2, distribution={"mpi": mpi})
    assert [each["host"] for each in told] == ["algo-1", "algo-1", "algo-2", "algo-2"]
    assert [each["local"] for each in told] == [0, 1, 0, 1]
    assert {each["debug"] for each in told} == {"INFO"}
    require_sums(told, 4)


def is_launched_as_torchrun_does(kit: Any) -> None:
    """The SDK refuses instance types without GPUs unless an image is named."""
    told = ran(
        kit,
        summing(more="{'run': os.environ['TORCHELASTIC_RUN_ID']}"),
        instance_count=3,
        image_uri=IMAGE,
        framework_version=None,
        py_version=None,
        distribution={"torch_distributed": {"enabled": True}},
    )
    assert [each["host"] for each in told] == ["algo-1", "algo-2", "algo-3"]
    assert len({each["run"] for each in told}) == 1
    require_sums(told, 3)


def is_data_parallel(kit: Any) -> None:
    """With either spelling, on instances whose GPUs this machine may lack."""
    smddp = summing("smddp", imports="import smdistributed.dataparallel.torch.torch_smddp")
    for distribution, script in (
        ({"pytorchddp": {"enabled": True}}, summing()),
        ({"smdistributed": {"dataparallel": {"enabled": True}}}, smddp),
    ):
        told = ran(kit, script, instance_count=2, distribution=distribution, **GPUS)
        require_sums(told, len(told))
        assert {each["host"] for each in told} == {"algo-1", "algo-2"}


def is_served(kit: Any) -> None:
    told = ran(kit, SERVED, instance_count=2, distribution={"parameter_server": {"enabled": True}})
    assert [(each["rank"], each["size"]) for each in told] == [(0, 2), (1, 2)]
    assert {tuple(each["found"]) for each in told} == {(2.0, -1.0, 3.0)}


def is_of_groups(kit: Any) -> None:
    """Two trainers communicate by MPI; the feeder also runs the script, alone, and has its own channel."""
    group, make = kit.of("instance_group", "InstanceGroup"), kit.of("inputs", "TrainingInput")
    feeders, trainers = group("feeders", "ml.c5.xlarge", 1), group("trainers", "ml.m5.large", 2)
    location = kit.put({"a.csv": b"1,2"})
    job = kit.estimator(
        GROUPED,
        instance_count=None,
        instance_type=None,
        instance_groups=[feeders, trainers],
        distribution={"mpi": {"enabled": True, "processes_per_host": 1}, "instance_groups": [trainers]},
    )
    job.fit({"raw": make(location, instance_groups=["feeders"]), "train": location}, logs=False)
    alone, *together = kit.told(job)
    assert (alone["group"], alone["world"], alone["ranked"]) == ("feeders", ["trainers"], False)
    assert (alone["channels"], alone["hosts"]) == (["raw", "train"], ["algo-1", "algo-2", "algo-3"])
    assert [(each["host"], each["master"]) for each in together] == [("algo-2", "algo-2"), ("algo-3", "algo-2")]
    assert [each["channels"] for each in together] == [["train"], ["train"]]
    require_sums(together, 2)
    described = job.latest_training_job.describe()["ResourceConfig"]
    assert [each["InstanceGroupName"] for each in described["InstanceGroups"]] == ["feeders", "trainers"]


def is_isolated(kit: Any, port: int) -> None:
    """Two instances reach each other, but not the yard, which other jobs can reach."""
    script = summing(imports=REACHING, more=f"{{'reaches_yard': reaches_yard({port})}}")
    for is_isolated in (True, False):
        told = ran(
            kit,
            script,
            instance_count=2,
            image_uri=IMAGE,
            framework_version=None,
            py_version=None,
            distribution={"torch_distributed": {"enabled": True}},
            enable_network_isolation=is_isolated,
        )
        assert [each["reaches_yard"] for each in told] == [not is_isolated] * 2
        require_sums(told, 2)


def summing(backend: str = "gloo", *, imports: str = "", more: str = "{}") -> str:
    return SUM.replace("BACKEND", backend).replace("IMPORTS", imports).replace("MORE", more)


def ran(kit: Any, script: str, **options: Any) -> list[Any]:
    """Return the output of each rank of a completed job, in order."""
    job = kit.estimator(script, **options)
    job.fit(logs=False)
    told: list[Any] = kit.told(job)
    return told


def require_sums(told: list[Any], size: int) -> None:
    expected = float(sum(rank**2 for rank in range(size)))
    assert [(each["rank"], each["size"], each["total"]) for each in told] == [
        (rank, size, expected) for rank in range(size)
    ], told


main(*sys.argv[1:])
