"""What needs no privilege of how a view is built. The rest is in tests/system/test_sandbox.py, in real sandboxes."""

import errno
import os
from pathlib import Path

import pytest

from trainyard.instance.sandbox import mounts


def test_a_folder_of_the_host_that_is_gone_since_the_view_was_planned_is_left_out(tmp_path: Path) -> None:
    place = str(tmp_path / "gone")
    assert mounts.open_sources([("bind", "read_only", place, place)]) == [()]


def test_what_a_program_needs_elsewhere_is_missed_when_it_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        mounts.open_sources([("bind", "read_only", str(tmp_path / "gone"), "/shown")])


@pytest.mark.parametrize("path", ["link", "link/below", "folder/link"])
def test_no_source_is_reached_through_a_symbolic_link(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder/below").mkdir(parents=True)
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "folder/link").symlink_to("below")
    with pytest.raises(OSError, match=path) as raised:
        mounts.open_sources([("bind", "writable", str(tmp_path / path), "/shown")])
    assert raised.value.errno == errno.ELOOP


@pytest.mark.parametrize("path", ["link", "link/new", "link/new/deeper"])
def test_no_place_is_reached_or_made_through_a_symbolic_link(tmp_path: Path, path: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "link").symlink_to("outside")
    for is_folder in (True, False):
        with pytest.raises(OSError, match="is a symbolic link"):
            mounts.open_mount_point(str(tmp_path / path), is_folder=is_folder)
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_place_that_is_missing_is_made_with_all_folders_above_it(tmp_path: Path) -> None:
    for name, is_folder in (("folder", True), ("file", False)):
        place = mounts.open_mount_point(str(tmp_path / "a/b" / name), is_folder=is_folder)
        assert Path(f"/proc/self/fd/{place}").resolve() == tmp_path / "a/b" / name
        os.close(place)
    assert (tmp_path / "a/b/folder").is_dir()
    assert (tmp_path / "a/b/file").read_bytes() == b""


def test_a_file_in_the_place_of_a_folder_is_refused_by_the_name_of_the_place(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in ("file", "file/below"):
        with pytest.raises(NotADirectoryError, match=path):
            mounts.open_mount_point(str(tmp_path / path), is_folder=True)
