"""Jobs of several processes on several instances of a real yard."""

import io
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.system.fuzz.world import User
from tests.system.trainees import Trainee
from tests.system.watching import place_of
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard
from trainyard.wire.client import Client

THREE = {"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 3, "VolumeSizeInGB": 1}}
WARM = "The program was started warm: forked from an interpreter that was ready for it."

# Three ranks with a third of each batch get the same weights as one process with whole batches, up to rounding.
DDP = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WORLD, RANK = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
torch.manual_seed(7)
torch.set_num_threads(1)
data, target = torch.randn(48, 8), torch.randn(48, 1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
if WORLD > 1:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    batch = torch.arange(24) + 24 * (step % 2)
    mine = batch[RANK::WORLD]
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(data[mine]), target[mine]).backward()
    optimizer.step()
weights = torch.cat([each.detach().flatten() for each in model.parameters()])
print("rank", RANK, "of", WORLD, "on", os.environ["SM_CURRENT_HOST"], "master", os.environ["MASTER_ADDR"])
print("weights", " ".join(f"{float(value):.6f}" for value in weights))
if WORLD > 1:
    dist.destroy_process_group()
"""


NAMELESS = "[c10d] The hostname of the client socket cannot be retrieved"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    """Run a yard with slots for two jobs of three instances."""
    slots = {"TRAINYARD_SERVER_SLOTS": "6"}
    with running_yard(tmp_path_factory.mktemp("distributed") / "yard", environment=slots) as running:
        yield running


@pytest.fixture(scope="module")
def anna(administrator: User) -> Trainee:
    return Trainee(administrator).prepare()


def launched(anna: Trainee, name: str, script: str, **hyperparameters: str) -> dict[str, Any]:
    """Return the request for a job of three instances that is launched as these hyperparameters say."""
    request = anna.request(name, script, **THREE)
    request["HyperParameters"] |= hyperparameters
    return request


def run(anna: Trainee, request: dict[str, Any]) -> dict[str, Any]:
    anna.sagemaker.create_training_job(**request)
    return anna.reach(request["TrainingJobName"], "Completed", "Failed", "Stopped")


def notes(anna: Trainee, name: str) -> list[str]:
    user = anna.user
    with closing(Client(user.endpoint, user.access_key_id, user.secret_access_key, user.region)) as client:
        found: list[str] = client.call("trainyard", "DescribeJob", TrainingJobName=name)["Notes"]
        return found


def printed(anna: Trainee, name: str, instance: int) -> list[str]:
    """Return the output of a program, without torch's warning on machines without a name service."""
    return [line for line in anna.printed(name, instance=instance) if NAMELESS not in line]


def weights(anna: Trainee, name: str, *, instance: int = 0) -> list[float]:
    (line,) = [line for line in anna.printed(name, instance=instance) if line.startswith("weights ")]
    return [float(word) for word in line.split()[1:]]


TORCHRUN = {"sagemaker_torch_distributed_enabled": "true", "sagemaker_instance_type": '"ml.m5.large"'}


def test_three_ranks_train_as_one_process_does_with_the_same_batches_cold_and_warm(anna: Trainee) -> None:
    cold = run(anna, launched(anna, "cold", DDP, **TORCHRUN))
    assert cold["TrainingJobStatus"] == "Completed", (cold, anna.lines("cold"))
    alone = anna.run("alone", DDP)
    assert alone["TrainingJobStatus"] == "Completed"
    warm = run(anna, launched(anna, "warm", DDP, **TORCHRUN))
    assert warm["TrainingJobStatus"] == "Completed", (warm, anna.lines("warm"))

    assert [WARM in notes(anna, name) for name in ("cold", "warm")] == [False, True]
    expected = pytest.approx(weights(anna, "alone"), abs=1e-5)
    for name in ("cold", "warm"):
        for number in range(3):
            assert printed(anna, name, number)[0] == f"rank {number} of 3 on algo-{number + 1} master algo-1"
            assert weights(anna, name, instance=number) == expected


# How scripts for SageMaker find their rank without a launcher.
BY_HOSTS = """
import json, os
import torch
import torch.distributed as dist
hosts = json.loads(os.environ["SM_HOSTS"])
os.environ["WORLD_SIZE"], os.environ["RANK"] = str(len(hosts)), str(hosts.index(os.environ["SM_CURRENT_HOST"]))
dist.init_process_group("gloo")
value = torch.tensor([10.0 ** dist.get_rank()])
dist.all_reduce(value)
print("sum", value.item())
dist.destroy_process_group()
"""


@pytest.mark.flow
def test_a_script_that_nothing_launches_meets_the_others_at_the_master(anna: Trainee) -> None:
    told = run(anna, launched(anna, "unlaunched", BY_HOSTS))
    assert told["TrainingJobStatus"] == "Completed", (told, anna.lines("unlaunched"))
    assert [printed(anna, "unlaunched", number) for number in range(3)] == [["sum 111.0"]] * 3


MPI = {
    "sagemaker_mpi_enabled": "true",
    "sagemaker_mpi_num_of_processes_per_host": "2",
    "sagemaker_mpi_custom_mpi_options": '"--NCCL_DEBUG INFO -x SHAPE=round"',
}
TELL = """
import os
import torch
print("i am", *(os.environ[f"OMPI_COMM_WORLD_{name}"] for name in ("RANK", "LOCAL_RANK", "SIZE", "LOCAL_SIZE")))
print(os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["NCCL_DEBUG"], os.environ["SHAPE"], torch.rand(1).item())
"""


@pytest.mark.slow
def test_each_rank_of_a_job_by_mpi_knows_its_place_cold_and_warm(anna: Trainee) -> None:
    anna.run("has-a-worker-made", "import torch")
    for name, environment in (("mpi-cold", {"PYTHONHASHSEED": "1"}), ("mpi-warm", {})):
        told = run(anna, launched(anna, name, TELL, **MPI) | {"Environment": environment})
        assert told["TrainingJobStatus"] == "Completed", (told, anna.lines(name))
        assert (WARM in notes(anna, name)) == (name == "mpi-warm")
        for number in range(3):
            lines = anna.printed(name, instance=number)
            for local in (0, 1):
                rank = 2 * number + local
                tag = f"[1,mpirank:{rank},algo-{number + 1}]<stdout>:"
                mine = [line.removeprefix(tag) for line in lines if line.startswith(tag)]
                assert mine[0] == f"i am {rank} {local} 6 2"
                assert mine[1].startswith(f"{rank} 6 INFO round ")
            numbers = [line.split()[-1] for line in lines if " INFO round " in line]
            assert len(set(numbers)) == 2


HOROVOD = (Path(__file__).parent / "ranks" / "horovod_script.py").read_text()


@pytest.mark.slow
def test_a_script_for_horovod_on_three_instances_leaves_the_model_of_one_process(anna: Trainee) -> None:
    """The batches are the same: those of one process are as large as those of all three together."""
    models = {}
    for name, count in (("horovod", 3), ("horovod-alone", 1)):
        request = launched(anna, name, HOROVOD, sagemaker_mpi_enabled="true")
        request["ResourceConfig"] = THREE["ResourceConfig"] | {"InstanceCount": count}
        told = run(anna, request)
        assert told["TrainingJobStatus"] == "Completed", (told, anna.lines(name))
        saved = anna.archive(f"out/{name}/output/model.tar.gz")["net.pth"]
        assert saved is not None
        models[name] = torch.load(io.BytesIO(saved))

    for name, value in models["horovod-alone"].items():
        torch.testing.assert_close(models["horovod"][name], value)


# Rank 3 raises while all others wait for it, and ends later than they notice.
ONE_FAILS = """
import os, time
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 3:
    raise ValueError("no such optimizer")
dist.barrier()
"""
KILLED = """
import os, signal, time
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 2:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
"""


def test_the_rank_that_failed_first_is_named_though_others_fail_because_of_it(anna: Trainee) -> None:
    raised = run(anna, launched(anna, "raised", ONE_FAILS, **MPI))
    killed = run(anna, launched(anna, "killed", KILLED, **TORCHRUN))

    assert raised["TrainingJobStatus"] == "Failed"
    assert "rank 3 on algo-2: ValueError: no such optimizer (/opt/ml/code/train.py, line 7)" in raised["FailureReason"]
    assert "rank 2 on algo-3: The program was killed by SIGKILL." in killed["FailureReason"]


HANGS = """
import os, time
import torch.distributed as dist

def wait_for_ever():
    time.sleep(3600)

dist.init_process_group("gloo")
if dist.get_rank() == 2:
    wait_for_ever()
dist.barrier()
"""


def test_a_hang_shows_where_every_rank_is(anna: Trainee) -> None:
    request = launched(anna, "hanging", HANGS, **TORCHRUN) | {"Environment": {"TRAINYARD_HANG_AFTER_SECONDS": "2"}}
    anna.sagemaker.create_training_job(**request)

    def hung() -> list[str]:
        told = [note for note in notes(anna, "hanging") if "seems to hang" in note]
        return told if len(told) == 3 else []

    told = " ".join(eventually(hung, within=timedelta(seconds=60)))
    lines = [anna.lines("hanging", instance=number) for number in range(3)]
    anna.sagemaker.stop_training_job(TrainingJobName="hanging")
    assert "rank 2 is at /opt/ml/code/train.py, line 6, in wait_for_ever" in told
    assert '[trainyard]     File "/opt/ml/code/train.py", line 10 in <module>' in lines[2]
    assert any('"/opt/ml/code/train.py", line 11 in <module>' in line for line in lines[0])
    assert anna.reach("hanging", "Stopped")["TrainingJobStatus"] == "Stopped"


# The ranks meet repeatedly until the test lets rank 0 finish, which tells the others.
MEET = """
import os, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
step, is_over = 0, False
while not is_over:
    may_finish = dist.get_rank() == 0 and os.path.exists("/opt/ml/finish")
    value = torch.tensor([float(dist.get_rank() + step), float(may_finish)])
    dist.all_reduce(value)
    assert value[0].item() == 3 + 3 * step, value
    if step == 0:
        print("met", flush=True)
    step, is_over = step + 1, bool(value[1])
    time.sleep(0.05)
print("port", os.environ["MASTER_PORT"])
dist.destroy_process_group()
"""


def test_two_jobs_of_three_instances_run_at_once_on_ports_of_their_own(anna: Trainee, yard: RunningYard) -> None:
    for name in ("left", "right"):
        anna.sagemaker.create_training_job(**launched(anna, name, MEET, **TORCHRUN))
    for name in ("left", "right"):
        anna.await_line(name, "met")
    for name in ("left", "right"):
        (place_of(yard, name).ml / "finish").touch()
    told = [anna.reach(name, "Completed", "Failed") for name in ("left", "right")]

    assert [each["TrainingJobStatus"] for each in told] == ["Completed", "Completed"], told
    assert max(each["TrainingStartTime"] for each in told) < min(each["TrainingEndTime"] for each in told)
    ports = {anna.printed(name, instance=number)[-1] for name in ("left", "right") for number in range(3)}
    assert len(ports) == 2


SERVED = """
import os, signal
import torch
from trainyard.parameter_server import Worker

torch.manual_seed(3)
data = torch.randn(64, 4)
target = data @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
model = torch.nn.Linear(4, 1)
loss = torch.nn.functional.mse_loss
restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
with Worker(model.named_parameters(), optimizer="SGD", lr=0.05) as server:
    for step in range(60):
        server.pull()
        model.zero_grad()
        mine = torch.arange(server.rank, 64, server.size)
        loss(model(data[mine]), target[mine]).backward()
        server.push()
        if server.rank == 1 and step == 20 and restarts == "0":
            os.kill(os.getpid(), signal.SIGKILL)
    server.finish()
    print("rank", server.rank, "of", server.size, "restarted", restarts, "loss", float(loss(model(data), target)))
"""
SERVER = {"sagemaker_parameter_server_enabled": "true"}


@pytest.mark.slow
def test_a_worker_of_parameter_servers_is_replaced_while_the_others_keep_training(anna: Trainee) -> None:
    told = run(anna, launched(anna, "served", SERVED, **SERVER))

    assert told["TrainingJobStatus"] == "Completed", (told, anna.lines("served", instance=1))
    for number in range(3):
        (line,) = [line for line in anna.printed("served", instance=number) if line.startswith("rank ")]
        assert line.startswith(f"rank {number} of 3 restarted {int(number == 1)} loss ")
        assert float(line.split()[-1]) < 0.01
    assert "[trainyard] rank 1 was killed by signal 9; restarting it, 1 of 3." in anna.lines("served", instance=1)


LEFT = """
import os, torch
from trainyard.parameter_server import Worker

if os.environ["RANK"] == "2":
    print("has nothing to do")
else:
    model = torch.nn.Linear(4, 1)
    server = Worker(model.named_parameters(), optimizer="SGD", lr=0.05)
    model(torch.ones(1, 4)).sum().backward()
    server.push()
    print("leaves without a word")
"""


@pytest.mark.slow
def test_servers_end_when_all_workers_have_ended_that_said_nothing(anna: Trainee) -> None:
    told = run(anna, launched(anna, "silent", LEFT, **SERVER))

    assert told["TrainingJobStatus"] == "Completed", (told, anna.lines("silent"))
    words = [line for number in range(3) for line in anna.printed("silent", instance=number)]
    assert words.count("leaves without a word") == 2
    assert words.count("has nothing to do") == 1
    logs = [line for number in range(3) for line in anna.lines("silent", instance=number)]
    ended = [line for line in logs if "all workers are done" in line]
    assert ended == ["parameter server: all workers are done after 2 steps"] * 3
