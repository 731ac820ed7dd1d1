"""Paths that clash, and disks without enough space."""

import os
from pathlib import Path

import pytest

from trainyard.instance.agent.data.downloads import FileTree, require_space
from trainyard.instance.agent.results.failure import CannotRun, FailureKind


@pytest.mark.parametrize(
    ("paths", "can_be"),
    [
        (["a", "b/c", "b/d"], [True, True, True]),
        (["a", "a"], [True, False]),
        (["a", "a/b"], [True, False]),
        (["a/b/c", "a/b"], [True, False]),
        (["a/b", "a/b/c/d"], [True, False]),
        (["a/", "a/b", "a/"], [True, True, True]),
        (["a/", "a"], [True, False]),
        (["a", "a/"], [True, False]),
    ],
)
def test_a_path_is_a_file_or_a_folder_and_no_two_files(paths: list[str], can_be: list[bool]) -> None:
    tree = FileTree()
    assert [tree.reserve_path(path) for path in paths] == can_be


def test_what_is_larger_than_the_free_space_is_refused_with_both_sizes(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    with pytest.raises(CannotRun) as refused:
        require_space(tmp_path, disk.f_blocks * disk.f_frsize + 1, what="the data of channel train")
    assert refused.value.kind is FailureKind.DISK_FULL
    whole = f"{disk.f_blocks * disk.f_frsize / 1024**3:.1f} GiB"
    assert f"the data of channel train needs {whole} of space, " in refused.value.message
    assert " are free, of which " in refused.value.message


def test_what_fits_is_allowed(tmp_path: Path) -> None:
    require_space(tmp_path, 1, what="the data of channel train")
