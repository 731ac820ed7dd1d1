import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainyard.foundation.confined import remove_tree
from trainyard.foundation.disk import reserve_of
from trainyard.instance.agent.watch.disk import DiskWatch

MIB = 1 << 20


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set the free space of the disk. A mock, because a real one needs a file system of its own."""

    def have(*, size: int, free: int, files: int = 0, free_files: int = 0) -> None:
        told = SimpleNamespace(f_blocks=size, f_frsize=1, f_bavail=free, f_files=files, f_favail=free_files)
        monkeypatch.setattr(os, "statvfs", lambda _: told)

    return have


def test_a_twentieth_stays_free_and_never_more_than_a_gibibyte(tmp_path: Path, disk: Callable[..., None]) -> None:
    disk(size=100 * MIB, free=10 * MIB)
    assert (reserve_of(tmp_path).bytes, reserve_of(tmp_path).is_touched) == (5 * MIB, False)
    disk(size=10**15, free=2 << 30)
    assert (reserve_of(tmp_path).bytes, reserve_of(tmp_path).is_touched) == (1 << 30, False)
    disk(size=10**15, free=1 << 29)
    assert reserve_of(tmp_path).is_touched


def test_files_are_counted_where_the_disk_counts_them(tmp_path: Path, disk: Callable[..., None]) -> None:
    disk(size=100 * MIB, free=50 * MIB, files=1000, free_files=49)
    assert (reserve_of(tmp_path).files, reserve_of(tmp_path).is_touched) == (50, True)


def test_on_a_full_disk_only_a_program_that_holds_more_than_the_reserve_is_stopped(
    tmp_path: Path, disk: Callable[..., None]
) -> None:
    watch = DiskWatch([tmp_path / "one", tmp_path / "two"])
    for name in ("one", "two"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep/file").write_bytes(os.urandom(2 * MIB))
    disk(size=1000 * MIB, free=30 * MIB)
    assert watch.poll(now=1.0) == ""
    (tmp_path / "two/more").write_bytes(os.urandom(28 * MIB))
    assert "filled the disk" in watch.poll(now=100.0)


def test_the_less_is_free_the_less_a_program_may_hold(tmp_path: Path, disk: Callable[..., None]) -> None:
    watch = DiskWatch([tmp_path])
    (tmp_path / "file").write_bytes(os.urandom(20 * MIB))
    disk(size=1000 * MIB, free=40 * MIB)
    assert watch.poll(now=1.0) == ""
    disk(size=1000 * MIB, free=19 * MIB)
    assert "filled the disk" in watch.poll(now=2.0)
    (tmp_path / "file").write_bytes(os.urandom(10 * MIB))
    disk(size=1000 * MIB, free=0)
    assert watch.poll(now=3.0) == "", "so little that it cannot be the cause"


def test_the_reserve_can_be_set(tmp_path: Path, disk: Callable[..., None]) -> None:
    (tmp_path / "file").write_bytes(os.urandom(20 * MIB))
    disk(size=1000 * MIB, free=18 * MIB)
    assert DiskWatch([tmp_path], reserve_bytes=10 * MIB).poll(now=1.0) == ""
    assert DiskWatch([tmp_path], reserve_bytes=30 * MIB).poll(now=1.0) != ""


def test_a_poll_takes_a_moment_however_many_files_there_are(
    tmp_path: Path, disk: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.instance.agent.watch.disk._MAX_POLL_S", 0.0)
    for number in range(2000):
        (tmp_path / f"{number:04}").touch()
    disk(size=1000 * MIB, free=0, files=100_000, free_files=10)
    watch = DiskWatch([tmp_path])
    looks = 1
    while not watch.poll(now=float(looks)):
        looks += 1
    assert looks > 10


def test_a_disk_with_room_stops_nobody_and_is_checked_rarely(tmp_path: Path, disk: Callable[..., None]) -> None:
    watch = DiskWatch([tmp_path])
    (tmp_path / "file").write_bytes(os.urandom(20 * MIB))
    disk(size=100 * MIB, free=50 * MIB)
    assert watch.poll(now=1.0) == ""
    disk(size=100 * MIB, free=0)
    assert watch.poll(now=1.1) == ""
    assert watch.poll(now=2.0) != ""


def test_files_deeper_than_the_longest_path_count_too(tmp_path: Path, disk: Callable[..., None]) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deep", dir_fd=descriptor)
        inner = os.open("deep", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    with os.fdopen(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor), "wb") as file:
        file.write(os.urandom(20 * MIB))
    os.close(descriptor)
    disk(size=100 * MIB, free=0)
    watch = DiskWatch([tmp_path])
    try:
        # On a busy machine one poll may not reach the end; the next one continues.
        assert any("filled the disk" in watch.poll(now=float(second)) for second in range(100))
    finally:
        remove_tree(tmp_path / "deep")


def test_a_link_counts_as_itself_and_is_not_followed(tmp_path: Path, disk: Callable[..., None]) -> None:
    (tmp_path / "outside").write_bytes(os.urandom(20 * MIB))
    (tmp_path / "own").mkdir()
    (tmp_path / "own/link").symlink_to(tmp_path)
    disk(size=100 * MIB, free=0)
    assert DiskWatch([tmp_path / "own"]).poll(now=1.0) == ""


HOLD = """
import os, sys, time
with open(sys.argv[1], "wb") as file:
    file.write(os.urandom(20 << 20))
    os.unlink(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("is_memory", [False, True])
def test_a_removed_file_that_is_still_open_counts_unless_it_is_in_memory(
    tmp_path: Path, disk: Callable[..., None], is_memory: bool
) -> None:
    (tmp_path / "own").mkdir()
    with (
        tempfile.NamedTemporaryFile(dir="/dev/shm" if is_memory else "/var/tmp", delete=False) as place,
        subprocess.Popen(
            [sys.executable, "-c", HOLD, place.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as program,
    ):
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        disk(size=100 * MIB, free=0)
        why = DiskWatch([tmp_path / "own"]).poll(now=1.0, root=os.getpid())
        program.communicate("", timeout=30)
    assert ("filled the disk" in why) is not is_memory
