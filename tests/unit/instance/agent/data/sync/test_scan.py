"""Scans of folders that a program, possibly a hostile one, has filled."""

import os
from pathlib import Path

import pytest

from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.data.sync import scan
from trainyard.instance.agent.data.sync.scan import (
    INVALID_KEYS,
    MAX_DEPTH,
    NOT_FILES,
    TOO_DEEP,
    FileStamp,
    FolderScan,
    scan_folder,
)


def scan_at(folder: Path, *, key_bytes: int = 1024) -> FolderScan:
    with ConfinedFolder.open(folder) as opened:
        return scan_folder(opened, key_bytes=key_bytes, on_folder=lambda _: None)


def test_all_files_of_all_folders_are_found(tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    for name in ("a", "deep/b", "deep/er/été.pt"):
        (tmp_path / name).write_text(name)
    found = scan_at(tmp_path)
    assert found.files == {name: FileStamp.of((tmp_path / name).stat()) for name in ("a", "deep/b", "deep/er/été.pt")}
    assert found.is_complete
    assert found.skipped == {}


def test_every_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    told: list[int] = []
    with ConfinedFolder.open(tmp_path) as opened:
        scan_folder(opened, key_bytes=1024, on_folder=lambda folder: told.append(os.fstat(folder).st_ino))
    assert told == [folder.stat().st_ino for folder in (tmp_path, tmp_path / "deep", tmp_path / "deep/er")]


def test_links_and_pipes_are_skipped_and_not_followed(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "key").write_text("secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").symlink_to(secrets / "key")
    (folder / "folder").symlink_to(secrets)
    os.mkfifo(folder / "pipe")
    found = scan_at(folder)
    assert (found.files, found.is_complete) == ({}, True)
    assert found.skipped[NOT_FILES] in ("file", "folder", "pipe")


def test_folders_are_not_followed_forever(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(MAX_DEPTH + 10):
        deep /= "d"
        deep.mkdir()
    (deep / "file").write_text("too deep")
    (tmp_path / "d/near").write_text("near")
    found = scan_at(tmp_path)
    assert list(found.files) == ["d/near"]
    assert TOO_DEEP in found.skipped


def test_names_that_cannot_be_keys_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")).write_text("")
    (tmp_path / "ok").write_text("")
    found = scan_at(tmp_path, key_bytes=3)
    assert list(found.files) == ["ok"]
    assert INVALID_KEYS in found.skipped


def test_too_many_files_to_sync_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Creating a hundred thousand files would take too long.
    monkeypatch.setattr(scan, "MAX_FILES", 2)
    for name in "abc":
        (tmp_path / name).write_text("")
    found = scan_at(tmp_path)
    assert (len(found.files), found.has_too_many_files, found.is_complete) == (2, True, False)


def test_only_selected_files_count_and_nothing_else_is_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "MAX_FILES", 1)
    (tmp_path / "deep").mkdir()
    for name in ("a", "b", "deep/wanted"):
        (tmp_path / name).write_text("")
    (tmp_path / "link").symlink_to("a")
    with ConfinedFolder.open(tmp_path) as opened:
        found = scan_folder(opened, key_bytes=1024, on_folder=lambda _: None, selects={"deep/wanted"}.__contains__)
    assert list(found.files) == ["deep/wanted"]
    assert (found.skipped, found.is_complete) == ({}, True)
