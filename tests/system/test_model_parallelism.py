"""Models in parts: the stand-in for smdistributed.modelparallel in four ranks, and in jobs of a real yard."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system.fuzz.world import User
from tests.system.trainees import Trainee
from trainyard.instance.compat import compat_path

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "ranks"

Found = list[dict[str, Any]]  # by rank


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What four ranks of this machine found; they run once, for all processes that share the tests."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "parts"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "smp_program-4").exists():
            _run_ranks(folder)
    return [json.loads((folder / "smp_program-4" / f"{rank}.json").read_text()) for rank in range(4)]


def _run_ranks(folder: Path) -> None:
    environment = os.environ | {"PYTHONPATH": compat_path("not in a sandbox"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(PROGRAMS / "starter.py"), str(folder), f"{PROGRAMS / 'smp_program.py'}:4"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert run.returncode == 0, run.stderr


PIPELINED = ["interleaved", "simple", "spread", "four stages", "fewer microbatches than stages", "by marks", "tied"]
SPLIT = ["split layers", "split with one batch", "split and pipelined"]


@pytest.mark.parametrize("way", [*PIPELINED, *SPLIT])
def test_training_in_parts_equals_that_of_one_process_with_the_same_global_batch(found: Found, way: str) -> None:
    for rank in found:
        trained, alone = rank[way]["weights"], rank[way]["alone"]["weights"]
        assert trained.keys() == alone.keys()
        for name, values in alone.items():
            assert trained[name] == pytest.approx(values, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("way", ["interleaved", "simple", "spread"])
def test_all_ranks_of_a_pipeline_have_its_loss_and_replicas_that_of_their_part(found: Found, way: str) -> None:
    losses = [rank[way]["losses"] for rank in found]
    mates = ((0, 1), (2, 3)) if way != "spread" else ((0, 2), (1, 3))
    for first, second in mates:
        assert losses[first] == losses[second]
    means = [sum(pair) / 2 for pair in zip(losses[0], losses[3], strict=True)]
    assert means == pytest.approx(found[0][way]["alone"]["losses"], rel=1e-5)


@pytest.mark.parametrize("way", ["interleaved", "simple", "spread", "four stages", "by marks", "split and pipelined"])
def test_a_rank_has_the_memory_of_its_own_parameters_alone(found: Found, way: str) -> None:
    whole = found[0][way]["alone"]["size"]
    for rank in found:
        assert rank[way]["held"] == rank[way]["own"] < 0.6 * whole
    if way == "four stages":
        assert sum(rank[way]["held"] for rank in found) == whole


def test_weights_that_two_stages_share_stay_the_same_on_both(found: Found) -> None:
    assert found[0]["tied"]["own"] == 80
    weights = found[0]["tied"]["weights"]
    assert weights["embedding.weight"] == weights["head.weight"]


@pytest.mark.flow
def test_ranks_know_their_place_in_every_group(found: Found) -> None:
    for number, rank in enumerate(found):
        ranks = {"rank": number, "local_rank": number, "mp_rank": number, "pp_rank": number // 2, "tp_rank": number % 2}
        sizes = {"size": 4, "mp_size": 4, "pp_size": 2, "tp_size": 2, "dp_size": 2, "rdp_size": 1}
        assert rank["places"] == ranks | sizes | {"dp_rank": number % 2, "rdp_rank": 0}


def test_evaluation_and_other_arguments_go_through_the_same_stages(found: Found) -> None:
    for rank in found:
        modes = rank["modes"]
        assert modes["output"] == [pytest.approx(row, abs=1e-6) for row in modes["output by one"]]
        assert modes["masked"] == [pytest.approx(row, abs=1e-6) for row in modes["masked by one"]]
        assert modes["dropped"] == 16
        assert len(modes["correct"]) == 2
        assert modes["batches"] == 2, "one for each microbatch, and none for finding out what stages send"


@pytest.mark.parametrize("how", ["parts", "whole", "resumed", "by one"])
def test_training_resumes_from_what_was_saved(found: Found, how: str) -> None:
    for rank in found:
        assert rank["saved"][how] == pytest.approx(rank["saved"]["expected"], rel=1e-4, abs=1e-6)
        assert rank["saved"]["content"] == {"at": 1}
    assert found[0]["saved"]["files"] == [*(f"parts.pt_{number}" for number in range(4)), "whole.pt"]


def test_objects_reach_whom_they_are_for(found: Found) -> None:
    objects = [rank["objects"] for rank in found]
    assert [each["group"] for each in objects] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert [each["gathered"] for each in objects] == [[{"from": at} for at in each["group"]] for each in objects]
    assert [each["told"] for each in objects] == [None, "to all", "to all", "to all"]
    assert [each["sent"] for each in objects] == [None, [1, 2], None, None]


@pytest.mark.parametrize(
    ("misuse", "told"),
    [
        ("backwards", '"late" is in partition 0, but its input comes from partition 1'),
        ("one partition", "No module is in partition 1 of 2; create some within smp.partition(1)"),
        ("deciding", "symbolically traced variables cannot be used as inputs to control flow"),
        ("too many", "The model cannot be split into 4 partitions: it has too few modules"),
        ("outside", "can only be called in a function that smp.step decorates"),
        ("uneven", "The argument data of a step has 4 examples, which cannot be split into 3 microbatches"),
        ("failing", "KeyError: 'no such thing'"),
        ("unknown", "Model parallelism has no parameter colour; it has auto_partition,"),
    ],
)
def test_an_impossible_configuration_is_reported_on_every_rank(found: Found, misuse: str, told: str) -> None:
    for rank in found:
        assert told in rank["errors"][misuse]


def test_gradients_add_up_over_steps_as_in_one_process(found: Found) -> None:
    for rank in found:
        for together, alone in rank["accumulated"]:
            assert together == pytest.approx(alone, rel=1e-4, abs=1e-5)


def test_all_stages_skip_a_step_in_which_one_has_a_gradient_that_is_not_finite(found: Found) -> None:
    for rank in found:
        assert rank["scaled"]["type"] == "torch.bfloat16"
        assert 0.03 < rank["scaled"]["moved"] < 0.06, "the rate of Adam in its first step"
        assert rank["scaled"]["skipped"]
        assert rank["scaled"]["scale"] == 512.0


def test_a_model_whose_initialization_is_delayed_is_nowhere_whole(found: Found) -> None:
    for rank in found:
        assert rank["delayed"]["before"] == ["meta"]
        assert rank["delayed"]["last"] < rank["delayed"]["first"]


# Parameters of 192 MiB; with gradients and the two states of Adam, 768 MiB. A rank may have 600 MiB more than it has
# when it has met the others.
BIG = """
import re, resource, sys
import smdistributed.modelparallel.torch as smp
import torch

MIB = 1024 * 1024
smp.init()
now = int(re.search(r"VmData:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (now + 600 * MIB, now + 600 * MIB))
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(12)))
print("whole model:", sum(each.numel() for each in model.parameters()) * 4 // MIB, "MiB")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False)
model = smp.DistributedModel(model)
optimizer = smp.DistributedOptimizer(optimizer)
print("rank", smp.rank(), "holds", sum(each.numel() for each in model.parameters()) * 4 // MIB, "MiB")

@smp.step
def train_step(model, data):
    loss = (model(data) - data).square().mean()
    model.backward(loss)
    return loss

data = torch.randn(8, 2048)
losses = []
for step in range(3):
    optimizer.zero_grad()
    losses.append(train_step(model, data).reduce_mean().item())
    optimizer.step()
assert losses[-1] < losses[0], losses
print("rank", smp.rank(), "of", smp.size(), "has trained")
"""
MPI = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "1"}
TWO = {"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}}


@pytest.fixture(scope="module")
def anna(administrator: User) -> Trainee:
    return Trainee(administrator).prepare()


def run(anna: Trainee, name: str, partitions: int, **changed: Any) -> dict[str, Any]:
    request = anna.request(name, BIG, **changed)
    parameters = {"partitions": partitions, "microbatches": 2, "ddp": True}
    request["HyperParameters"] |= MPI | {"mp_parameters": json.dumps(parameters)}
    # Otherwise glibc keeps some of the large blocks that are freed, now more and now less, up to 200 MiB.
    request["Environment"] = {"MALLOC_MMAP_THRESHOLD_": "1048576"}
    anna.sagemaker.create_training_job(**request)
    return anna.reach(name, "Completed", "Failed", "Stopped")


def test_a_model_too_big_for_the_memory_of_one_rank_trains_on_two(anna: Trainee) -> None:
    alone = run(anna, "big-on-one", 1)
    assert alone["TrainingJobStatus"] == "Failed"
    assert "can't allocate memory" in alone["FailureReason"]
    assert "[1,mpirank:0,algo-1]<stdout>:rank 0 holds 192 MiB" in anna.printed("big-on-one")

    together = run(anna, "big-on-two", 2, **TWO)
    assert together["TrainingJobStatus"] == "Completed", (together, anna.lines("big-on-two"))
    for number in range(2):
        tag = f"[1,mpirank:{number},algo-{number + 1}]<stdout>:"
        printed = [line.removeprefix(tag) for line in anna.printed("big-on-two", instance=number)]
        assert printed == [
            "whole model: 192 MiB",
            f"rank {number} holds 96 MiB",
            f"rank {number} of 2 has trained",
        ]
