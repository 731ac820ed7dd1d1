"""Folders on their way from node to node."""

import os
import tarfile
from pathlib import Path

import pytest

from trainyard.engines.cluster import parts
from trainyard.engines.cluster.parts import FolderTar, unpack
from trainyard.foundation.errors import Corrupt


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "model"
    (root / "sub" / "empty").mkdir(parents=True)
    (root / "weights.bin").write_bytes(os.urandom(10_000))
    (root / "sub" / ("long-" * 40)).write_text("a long name")
    (root / "nothing").touch()
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "latest").symlink_to("weights.bin")
    (root / "away").symlink_to("/nowhere/at/all")
    os.mkfifo(root / "pipe")
    return root


def seen(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = "folder"
        elif path.is_file():
            found[name] = (path.read_bytes(), path.stat().st_mode & 0o111)
    return found


@pytest.mark.parametrize("size", [100, 512, 4096, 1 << 20])
def test_what_is_unpacked_is_what_was_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", size)

    unpack(lambda offset: FolderTar(folder).read(offset), tmp_path / "there")  # made anew each time, as after a crash

    assert seen(tmp_path / "there") == seen(folder)


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    unpack(FolderTar(tmp_path / "none").read, tmp_path / "there")

    assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.parametrize("size", [0, 700, 1024, 5000, -1024, -512])
def test_an_archive_that_is_cut_short_is_told(folder: Path, tmp_path: Path, size: int) -> None:
    cut = FolderTar(folder).read(0)[:size]

    with pytest.raises(Corrupt):
        unpack(lambda offset: cut[offset:], tmp_path / "there")


def test_an_archive_that_is_damaged_is_told(folder: Path, tmp_path: Path) -> None:
    whole = FolderTar(folder).read(0).replace(b"weights.bin", b"weighty.bin")

    with pytest.raises(Corrupt):
        unpack(lambda offset: whole[offset:], tmp_path / "there")


def test_nothing_is_written_outside_of_the_folder(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("../escaped")
    whole = entry.tobuf() + bytes(1024)

    with pytest.raises(Corrupt, match="escaped"):
        unpack(lambda offset: whole[offset:], tmp_path / "there")

    assert not (tmp_path / "escaped").exists()
