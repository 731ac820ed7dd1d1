import os
from pathlib import Path

import pytest

from trainyard.foundation.files import remove_tree, replace_file


def test_a_file_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "secret"

    replace_file(file, b"one")

    assert file.read_bytes() == b"one"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_replaced_file_takes_the_mode_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "public"
    file.write_bytes(b"old")
    file.chmod(0o600)

    replace_file(file, b"new", mode=0o644)

    assert file.read_bytes() == b"new"
    assert file.stat().st_mode & 0o777 == 0o644


def test_what_a_crash_left_behind_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "file.new").write_bytes(b"half")

    replace_file(tmp_path / "file", b"whole")

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"whole"}


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()

    with pytest.raises(IsADirectoryError):
        replace_file(target, b"bytes")

    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_tree_deeper_than_any_path_is_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    descriptor = os.open(tree, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deeper", dir_fd=descriptor)
        inner = os.open("deeper", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)
    remove_tree(tree)
    assert not tree.exists()


def test_a_tree_of_many_folders_and_files_is_removed_and_what_it_links_to_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.foundation.files._MOST_NAMES", 3)
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.mkdir(mode=0o755)
    (outside / "kept").write_text("kept")
    for number in range(10):
        (tree / f"folder-{number}" / "inner").mkdir(parents=True)
        (tree / f"folder-{number}" / "file").touch(mode=0o000)
    (tree / "link").symlink_to(outside)
    (tree / "folder-0/file-link").symlink_to(outside / "kept")
    (tree / "folder-1/inner").chmod(0)
    (tree / "folder-1").chmod(0)
    remove_tree(tree)
    remove_tree(tree)
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (outside.stat().st_mode & 0o777, (outside / "kept").read_text()) == (0o755, "kept")
