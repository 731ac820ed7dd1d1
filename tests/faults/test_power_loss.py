"""A power cut at a random moment: acknowledged data is there and complete, and nothing is partial."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.power_writers import KINDS
from trainyard.foundation.errors import TrainyardError

CUTS = 12
UNSYNCED_CUTS = 8
MOST_ACKNOWLEDGED = 150  # before the power is cut


def obstacle() -> str:
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "only root can mount a disk that forgets, and only where there is /dev/fuse"
    if shutil.which("unshare") is None:
        return "without unshare the disk would be mounted for everybody"
    allowed = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return "" if allowed.returncode == 0 else f"mounts of its own are not allowed here: {allowed.stderr.decode()}"


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(obstacle()), reason=obstacle())]


@pytest.mark.parametrize("kind", KINDS)
def test_acknowledged_writes_survive_a_power_cut(kind: str, tmp_path: Path) -> None:
    for seed in range(CUTS):
        acknowledged, left = cut_power(kind, "synced", seed, tmp_path)
        found = KINDS[kind].check(left)
        assert set(range(acknowledged)) <= set(found), f"seed {seed}: acknowledged {acknowledged}"
        assert len(set(found)) == len(found), f"seed {seed}: something is stored twice"


@pytest.mark.parametrize("kind", KINDS)
def test_the_disk_forgets_what_is_not_synced(kind: str, tmp_path: Path) -> None:
    """Otherwise the other test would prove nothing."""
    assert any(is_harmed(kind, seed, tmp_path) for seed in range(UNSYNCED_CUTS))


def is_harmed(kind: str, seed: int, folder: Path) -> bool:
    acknowledged, left = cut_power(kind, "unsynced", seed, folder)
    try:
        found = KINDS[kind].check(left)
    except (AssertionError, TrainyardError, OSError, ValueError, sqlite3.Error):
        return True
    return not set(range(acknowledged)) <= set(found)


def cut_power(kind: str, how: str, seed: int, folder: Path) -> tuple[int, Path]:
    """Cut the power of a writer's disk. Return how many writes were acknowledged as durable, and what is left."""
    dice, place, left = random.Random(seed), folder / f"mount-{how}-{seed}", folder / f"left-{how}-{seed}"
    place.mkdir()
    writer = [sys.executable, "-m", "tests.faults.power_writers", kind, how]
    disk = [sys.executable, "-m", "tests.faults.forgetful_disk", str(place), str(left), str(seed), *writer]
    with subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", *disk], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        wanted = dice.randrange(1, MOST_ACKNOWLEDGED)
        acknowledged = [int(running.stdout.readline()) for _ in range(wanted)]
        running.stdin.close()
        running.stdout.read()
        assert running.wait(60) == 0
    assert acknowledged == list(range(wanted))
    return wanted, left
