"""A rank ends right after a collective while the gloo thread that ran it lags behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.instance.compat import compat_path

# The gloo threads get the processor only when it is otherwise idle, so that the collective is over while its thread
# still holds the tensor. That thread then takes the GIL just before the interpreter ends.
SCRIPT = """
import atexit, ctypes, os, torch, torch.distributed as dist
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meeting", rank=0, world_size=1)
for task in os.listdir("/proc/self/task"):
    with open(f"/proc/self/task/{task}/comm") as name:
        if "gloo_run" in name.read():
            os.sched_setscheduler(int(task), os.SCHED_IDLE, os.sched_param(0))
dist.all_reduce(torch.ones(1_000_000))
"""
HOLD_THE_LOCK = "atexit.register(ctypes.PyDLL(None).usleep, 300_000)\n"


def ended(script: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PYTHONPATH": compat_path("not in a sandbox"), "OMP_NUM_THREADS": "1"},
        timeout=120,
    )


@pytest.mark.parametrize(
    "last",
    ["print('trained')", "held = dist.group.WORLD\ndist.destroy_process_group()\nprint('trained')"],
    ids=["without destroying its group", "with its group held by something else"],
)
def test_a_rank_ends_well_right_after_a_collective(last: str, tmp_path: Path) -> None:
    end = ended(SCRIPT + HOLD_THE_LOCK + last, tmp_path)
    assert (end.returncode, end.stdout, end.stderr) == (0, "trained\n", "")


def test_a_rank_that_fails_right_after_a_collective_fails_of_its_own_error(tmp_path: Path) -> None:
    end = ended(SCRIPT + HOLD_THE_LOCK + "raise ValueError('no such optimizer')", tmp_path)
    assert end.returncode == 1
    assert end.stderr.endswith("ValueError: no such optimizer\n")
