from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import As, open_accounts
from tests.unit.server.services.sagemaker.requests import create, prepare
from tests.unit.server.services.sagemaker.training.test_description import load, remember
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.transitions import advance
from trainyard.server.jobs.training import KIND
from trainyard.server.records.contract import ResourceKey
from trainyard.server.upkeep.garbage import Garbage
from trainyard.server.upkeep.retention import EXPIRED_FILES, remove_expired_files

DAY = timedelta(days=1)
END = seconds(10)


@pytest.fixture
def anna(tmp_path: Path) -> Iterator[As]:
    with open_accounts(tmp_path) as accounts:
        yield prepare(accounts.anna)


def folder_of(user: As, name: str) -> Path:
    resource = user.yard.records.load(ResourceKey(user.account, KIND, name))
    return user.yard.compute.jobs / resource.id


def write(user: As, name: str) -> Path:
    """Create a job with a log of 100 bytes and return its folder."""
    create(user, TrainingJobName=name)
    folder = folder_of(user, name)
    (folder / "1" / "algo-1").mkdir(parents=True)
    (folder / "1" / "algo-1" / "log").write_bytes(b"x" * 100)
    return folder


def end(user: As, name: str) -> None:
    stopping = advance(load(user, name), SecondaryStatus.STOPPING, at=END)
    remember(user, advance(stopping, SecondaryStatus.STOPPED, at=END))


def removed(user: As, *, kept: timedelta, days: float, dry_run: bool = False) -> tuple[int, int]:
    compute, now = user.yard.compute, END + DAY * days
    found = remove_expired_files(compute.jobs, user.yard.records, kept=kept, now=now, dry_run=dry_run)
    assert found == Garbage(EXPIRED_FILES, found.count, found.bytes)
    return found.count, found.bytes


def test_the_files_of_a_job_are_removed_some_time_after_its_end(anna: As) -> None:
    ended, running = write(anna, "ended"), write(anna, "running")
    end(anna, "ended")

    assert removed(anna, kept=30 * DAY, days=29) == (0, 0)
    assert removed(anna, kept=30 * DAY, days=31, dry_run=True) == (1, 100)
    assert ended.exists()
    assert not any("removed" in note for note in load(anna, "ended").notes)
    assert removed(anna, kept=30 * DAY, days=31) == (1, 100)

    assert (ended.exists(), running.exists()) == (False, True)
    assert "removed" in load(anna, "ended").notes[-1]
    assert "30 days after the end" in load(anna, "ended").notes[-1]
    assert removed(anna, kept=30 * DAY, days=31) == (0, 0)


def test_without_a_limit_files_stay(anna: As) -> None:
    folder = write(anna, "ended")
    end(anna, "ended")
    assert removed(anna, kept=timedelta(0), days=1000) == (0, 0)
    assert folder.exists()


def test_folders_of_deleted_jobs_are_left_to_the_sweep(anna: As) -> None:
    (anna.yard.compute.jobs / "00000000-0000-7000-8000-000000000000").mkdir(parents=True)
    assert removed(anna, kept=DAY, days=2) == (0, 0)
