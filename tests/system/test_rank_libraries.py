"""The stand-ins for horovod and smdistributed, in three ranks of this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from trainyard.instance.compat import compat_path

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "ranks"
RUNS = ("horovod_program.py:3", "horovod_script.py:3", "horovod_script.py:1", "smddp_program.py:3")

Found = list[dict[str, Any]]  # by rank


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What all programs have left behind, in a folder for each."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = os.environ | {"PYTHONPATH": compat_path("not in a sandbox"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(PROGRAMS / "starter.py"), str(folder), *(str(PROGRAMS / each) for each in RUNS)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert run.returncode == 0, run.stderr
    return folder


@pytest.fixture(scope="module")
def horovod(outcomes: Path) -> Found:
    return found_in(outcomes / "horovod_program-3")


@pytest.fixture(scope="module")
def smddp(outcomes: Path) -> Found:
    return found_in(outcomes / "smddp_program-3")


def found_in(folder: Path) -> Found:
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(3)]


def test_a_script_leaves_the_model_that_one_process_makes_of_the_same_batches(outcomes: Path) -> None:
    three = torch.load(outcomes / "horovod_script-3" / "net.pth")
    one = torch.load(outcomes / "horovod_script-1" / "net.pth")
    assert three.keys() == one.keys()
    for name, value in one.items():
        torch.testing.assert_close(three[name], value)


@pytest.mark.flow
def test_ranks_know_their_place(horovod: Found) -> None:
    assert [found["place"] for found in horovod] == [
        {"rank": rank, "size": 3, "local_rank": rank, "local_size": 3, "cross_rank": 0, "cross_size": 1}
        for rank in range(3)
    ]
    assert [found["is_initialized_after_shutdown"] for found in horovod] == [False] * 3


@pytest.mark.parametrize(
    ("by_ranks", "by_one"),
    [
        ("trained", "trained by one"),
        ("with Adam", "with Adam by one"),
        ("predivided", "with Adam by one"),
        ("accumulated", "with Adam by one"),
        ("with a closure", "with Adam by one"),
        ("clipped", "clipped by one"),
        ("sparse as dense", "sparse by one"),
    ],
)
def test_training_equals_that_of_one_process_with_the_same_global_batch(
    horovod: Found, by_ranks: str, by_one: str
) -> None:
    for found in horovod:
        assert found[by_ranks] == pytest.approx(found[by_one], rel=1e-5, abs=1e-6)
    assert horovod[0][by_ranks] == horovod[1][by_ranks] == horovod[2][by_ranks]


def test_compressed_gradients_are_near_and_equal_on_all_ranks(horovod: Found) -> None:
    exact, compressed = horovod[0]["with Adam by one"], horovod[0]["compressed"]
    assert compressed == pytest.approx(exact, abs=1e-3)
    assert compressed != pytest.approx(exact, abs=1e-6)
    assert compressed == horovod[1]["compressed"] == horovod[2]["compressed"]


@pytest.mark.parametrize("part", ["shared", "seldom", "never"])
def test_parameters_that_some_ranks_or_all_do_not_use_are_as_in_one_process(horovod: Found, part: str) -> None:
    for found in horovod:
        assert found["with unused"][part] == pytest.approx(found["with unused by one"][part], rel=1e-5, abs=1e-6)


def test_a_sparse_gradient_is_refused_with_what_to_do(horovod: Found) -> None:
    for found in horovod:
        assert "create the layer with sparse=False, or pass sparse_as_dense=True" in found["sparse"]


def test_misuse_of_an_optimizer_is_reported(horovod: Found) -> None:
    for found in horovod:
        told = found["misused"]
        assert (
            "zero_grad() was called after loss.backward() but before optimizer.step()"
            in told["zero_grad after backward"]
        )
        assert "more than backward_passes_per_step times" in told["a second backward"]
        assert "skip_synchronize" in told["step after synchronize"]


def test_ranks_that_run_out_of_data_join_the_others_with_zeros(horovod: Found) -> None:
    for found in horovod:
        assert found["joined"]["lasts"] == [2, 2]
        assert found["joined"]["weights"] == pytest.approx(found["joined by one"], rel=1e-5, abs=1e-6)


def test_collectives_give_what_their_names_say(horovod: Found) -> None:
    for found in horovod:
        assert {
            name: value for name, value in found["collectives"].items() if name not in ("even", "uneven", "scattered")
        } == {
            "average": [2.0, 2.0],
            "average of integers": [1, 5],
            "maximum": [3.0, 3.0],
            "scaled": [12.0, 12.0],
            "half": [2.0, 2.0],
            "in place": [6.0, 6.0],
            "is done": True,
            "grouped": [[2.0, 2.0], [4.0, 4.0]],
            "ragged": [[1, 1], [2, 2], [2, 2]],
            "booleans": [False, True, False],
            "broadcast": [3.0, 3.0],
            "transposed": [[0.0, 2.0], [1.0, 3.0]],
            "objects": [{"rank": rank, "text": "x" * rank} for rank in range(3)],
            "object": ["of", 1],
        }


def test_each_rank_gets_its_own_part_of_what_is_divided(horovod: Found) -> None:
    parts = [found["collectives"] for found in horovod]
    assert [part["even"] for part in parts] == [[0, 10, 20], [1, 11, 21], [2, 12, 22]]
    assert [part["uneven"] for part in parts] == [
        [[], [0, 0, 0]],
        [[0, 10, 20], [1, 1, 1]],
        [[1, 2, 11, 12, 21, 22], [2, 2, 2]],
    ]
    assert [part["scattered"] for part in parts] == [[0, 3], [6], [9]]


def test_gradients_flow_through_collectives(horovod: Found) -> None:
    found = [each["gradients"] for each in horovod]
    assert [each["allreduce"] for each in found] == [[6.0] * 3] * 3
    assert [each["allgather"] for each in found] == [[0.0, 0.0, 0.0], [1.0, 2.0, 0.0], [3.0, 4.0, 5.0]]
    assert [each["broadcast"] for each in found] == [[0.0] * 3, [1.0, 2.0, 3.0], [0.0] * 3]
    assert [each["alltoall"] for each in found] == [[1.0] * 3, [2.0] * 3, [3.0] * 3]
    assert [each["reducescatter"] for each in found] == [[1.0, 2.0, 3.0]] * 3


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("Adasum", "op=hvd.Adasum is not supported; use hvd.Average or hvd.Sum"),
        ("rows that differ", "differ in more than their first dimension"),
        ("ProcessSet", "torch.distributed.new_group"),
        ("elastic", "resume from checkpoints"),
        ("names twice", "must be unique; duplicates: weight"),
        ("predivide", "it needs op=hvd.Average"),
    ],
)
def test_unsupported_calls_are_refused_by_name_on_every_rank(horovod: Found, what: str, told: str) -> None:
    for found in horovod:
        assert told in found["refusals"][what]


def test_smddp_is_a_back_end_of_torch_distributed(smddp: Found) -> None:
    for found in smddp:
        assert found["backend"] == {"name": "smddp", "gradient": [1.0, 1.0], "everyone": [0, 1, 2]}


def test_the_older_interface_of_smddp_works_too(smddp: Found) -> None:
    for rank, found in enumerate(smddp):
        assert found["older"] == {
            "is available": True,
            "place": [rank, 3, rank, 3],
            "total": 6.0,
            "from last": 2,
            "gradient": [1.0, 1.0],
        }
