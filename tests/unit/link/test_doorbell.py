import os
import select
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from trainyard.link.doorbell import Doorbell, ring


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "doorbell"


@pytest.fixture
def doorbell(path: Path) -> Iterator[Doorbell]:
    with closing(Doorbell(path)) as opened:
        yield opened


def has_rung(doorbell: Doorbell) -> bool:
    return bool(select.select([doorbell.descriptor], [], [], 0)[0])


def test_a_listener_learns_which_jobs_were_rung_for(doorbell: Doorbell, path: Path) -> None:
    assert not has_rung(doorbell)

    for job_id in ("a", "b", "a"):
        ring(path, job_id)

    assert has_rung(doorbell)
    assert doorbell.read() == {"a", "b"}
    assert doorbell.read() == set()
    assert not has_rung(doorbell)


def test_ringing_where_nobody_listens_does_nothing(path: Path) -> None:
    ring(path, "early")
    Doorbell(path).close()
    ring(path, "late")

    with closing(Doorbell(path)) as anew:
        assert anew.read() == set()


def test_ringing_more_than_there_is_room_for_does_not_wait(doorbell: Doorbell, path: Path) -> None:
    for _ in range(10_000):
        ring(path, "0123456789abcdef")

    assert doorbell.read() == {"0123456789abcdef"}


def test_only_the_owner_may_ring(doorbell: Doorbell, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_something_else_in_its_place_makes_way(path: Path) -> None:
    path.write_text("a file that a restore brought")

    with closing(Doorbell(path)):
        assert path.is_fifo()


def test_no_child_of_the_yard_gets_hold_of_it(doorbell: Doorbell) -> None:
    assert not os.get_inheritable(doorbell.descriptor)
