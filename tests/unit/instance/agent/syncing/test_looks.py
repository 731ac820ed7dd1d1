"""A look at a folder that a program, perhaps a hostile one, has filled."""

import os
from pathlib import Path

import pytest

from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.syncing import looks
from trainyard.instance.agent.syncing.looks import DEEPEST, NO_FILES, NO_KEYS, TOO_DEEP, Look, Scan, scan_folder


def scan(folder: Path, *, key_bytes: int = 1024) -> Scan:
    with ConfinedFolder.open(folder) as opened:
        return scan_folder(opened, key_bytes=key_bytes, on_folder=lambda _: None)


def test_all_files_of_all_folders_are_found(tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    for name in ("a", "deep/b", "deep/er/été.pt"):
        (tmp_path / name).write_text(name)
    found = scan(tmp_path)
    assert found.files == {name: Look.of((tmp_path / name).stat()) for name in ("a", "deep/b", "deep/er/été.pt")}
    assert found.is_whole
    assert found.skipped == {}


def test_every_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    told: list[int] = []
    with ConfinedFolder.open(tmp_path) as opened:
        scan_folder(opened, key_bytes=1024, on_folder=lambda folder: told.append(os.fstat(folder).st_ino))
    assert told == [folder.stat().st_ino for folder in (tmp_path, tmp_path / "deep", tmp_path / "deep/er")]


def test_links_pipes_and_what_they_lead_to_are_passed_over(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "key").write_text("secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").symlink_to(secrets / "key")
    (folder / "folder").symlink_to(secrets)
    os.mkfifo(folder / "pipe")
    found = scan(folder)
    assert (found.files, found.is_whole) == ({}, True)
    assert found.skipped[NO_FILES] in ("file", "folder", "pipe")


def test_folders_are_not_followed_for_ever(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(DEEPEST + 10):
        deep /= "d"
        deep.mkdir()
    (deep / "file").write_text("too deep")
    (tmp_path / "d/near").write_text("near")
    found = scan(tmp_path)
    assert list(found.files) == ["d/near"]
    assert TOO_DEEP in found.skipped


def test_names_that_cannot_be_keys_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")).write_text("")
    (tmp_path / "ok").write_text("")
    found = scan(tmp_path, key_bytes=3)
    assert list(found.files) == ["ok"]
    assert NO_KEYS in found.skipped


def test_more_files_than_can_be_kept_in_step_are_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A hundred thousand files would take a test too long.
    monkeypatch.setattr(looks, "MOST_FILES", 2)
    for name in "abc":
        (tmp_path / name).write_text("")
    found = scan(tmp_path)
    assert (len(found.files), found.is_too_much, found.is_whole) == (2, True, False)
