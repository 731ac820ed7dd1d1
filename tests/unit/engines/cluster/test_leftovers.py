"""What nobody will ask for any more."""

import os
import time
from pathlib import Path

import pytest

from trainyard.engines.cluster.leftovers import sweep_leftovers
from trainyard.engines.local import LocalEngine
from trainyard.link.folders import AttemptRef, InstanceFolder
from trainyard.link.lease import Lease, stamp


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    return tmp_path / "jobs"


def sweep(jobs: Path, *, kept_s: float = 0.0, look_s: float = 0.0) -> None:
    sweep_leftovers(jobs, LocalEngine(jobs, jobs / "agents", forks=False), retention_s=kept_s, interval_s=look_s)


def leave(jobs: Path, job: str, *, left_s: float | None) -> InstanceFolder:
    """An instance with so much of its lease left, or without one."""
    folder = InstanceFolder(AttemptRef(job, 1).folder(jobs) / "algo-1")
    folder.root.mkdir(parents=True)
    folder.spec.write_text("{}")
    if left_s is not None:
        Lease.of(folder).renew(stamp(), 60)
        os.utime(folder.lease, (time.clock_gettime(time.CLOCK_BOOTTIME) + left_s,) * 2)
    os.utime(folder.root.parent, (0, 0))
    return folder


def test_an_attempt_whose_lease_ran_out_goes(jobs: Path) -> None:
    gone = leave(jobs, "gone", left_s=-10)
    kept = [leave(jobs, "leased", left_s=10), leave(jobs, "unleased", left_s=None)]

    sweep(jobs)

    assert not gone.root.parents[1].exists()
    assert all(folder.spec.exists() for folder in kept)


def test_it_is_kept_for_a_while(jobs: Path) -> None:
    folder = leave(jobs, "late", left_s=-10)

    sweep(jobs, kept_s=60)

    assert folder.spec.exists()


def test_forgotten_folders_are_removed_in_the_end(jobs: Path) -> None:
    attempt = AttemptRef("done", 1).folder(jobs)
    attempt.mkdir(parents=True)
    (attempt / "ended").touch()
    os.utime(attempt, (0, 0))

    sweep(jobs)

    assert not attempt.parent.exists()


def test_nobody_looks_all_the_time(jobs: Path) -> None:
    sweep(jobs)
    folder = leave(jobs, "gone", left_s=-10)

    sweep(jobs, look_s=600)

    assert folder.spec.exists()
