import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainyard.instance.agent.disk import DiskWatch, reserve_of

MIB = 1 << 20


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets how much there is of the disk. A mock, because no other can be had without a file system of one's own."""

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


def test_on_a_full_disk_only_who_holds_more_than_the_reserve_must_go(tmp_path: Path, disk: Callable[..., None]) -> None:
    watch = DiskWatch([tmp_path / "one", tmp_path / "two"])
    for name in ("one", "two"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep/file").write_bytes(os.urandom(2 * MIB))
    disk(size=100 * MIB, free=MIB)
    assert watch.look(now=1.0) == ""
    (tmp_path / "two/more").write_bytes(os.urandom(2 * MIB))
    assert "filled the disk" in watch.look(now=100.0)


def test_a_disk_with_room_is_nobodys_fault_and_looks_are_rare(tmp_path: Path, disk: Callable[..., None]) -> None:
    watch = DiskWatch([tmp_path])
    (tmp_path / "file").write_bytes(os.urandom(8 * MIB))
    disk(size=100 * MIB, free=50 * MIB)
    assert watch.look(now=1.0) == ""
    disk(size=100 * MIB, free=0)
    assert watch.look(now=1.1) == ""
    assert watch.look(now=2.0) != ""


def test_a_link_counts_as_itself_and_is_not_followed(tmp_path: Path, disk: Callable[..., None]) -> None:
    (tmp_path / "outside").write_bytes(os.urandom(8 * MIB))
    (tmp_path / "own").mkdir()
    (tmp_path / "own/link").symlink_to(tmp_path)
    disk(size=100 * MIB, free=0)
    assert DiskWatch([tmp_path / "own"]).look(now=1.0) == ""
