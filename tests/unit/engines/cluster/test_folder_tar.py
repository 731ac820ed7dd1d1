"""Folders on their way from node to node."""

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainyard.engines.cluster import folder_tar
from trainyard.engines.cluster.folder_tar import FolderTar, unpack_folder
from trainyard.foundation.confined import remove_tree
from trainyard.foundation.errors import Corrupt
from trainyard.instance.agent.results import merged_tree


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


def tar_of(folder: Path) -> FolderTar:
    return FolderTar(folder.parent, folder.name)


@pytest.mark.parametrize("size", [100, 512, 4096, 1 << 20])
def test_what_is_unpacked_is_what_was_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(folder_tar, "PART_BYTES", size)

    unpack_folder(
        lambda offset: tar_of(folder).read(offset), tmp_path / "there"
    )  # made anew each time, as after a crash

    assert seen(tmp_path / "there") == seen(folder)


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    unpack_folder(tar_of(tmp_path / "none").read, tmp_path / "there")

    assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.parametrize("size", [0, 700, 1024, 5000, -1024, -512])
def test_a_truncated_archive_is_corrupt(folder: Path, tmp_path: Path, size: int) -> None:
    cut = tar_of(folder).read(0)[:size]

    with pytest.raises(Corrupt):
        unpack_folder(lambda offset: cut[offset:], tmp_path / "there")


def test_a_damaged_archive_is_corrupt(folder: Path, tmp_path: Path) -> None:
    whole = tar_of(folder).read(0).replace(b"weights.bin", b"weighty.bin")

    with pytest.raises(Corrupt):
        unpack_folder(lambda offset: whole[offset:], tmp_path / "there")


def test_nothing_is_written_outside_of_the_folder(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("../escaped")
    whole = entry.tobuf() + bytes(1024)

    with pytest.raises(Corrupt, match="escaped"):
        unpack_folder(lambda offset: whole[offset:], tmp_path / "there")

    assert not (tmp_path / "escaped").exists()


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A folder that is none of the job's."""
    folder = tmp_path / "canary"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "secret").write_text("secret")
    return folder


@pytest.mark.parametrize("replaced", ["ml/model", "ml/output", "ml/output/data"])
def test_a_folder_that_the_program_replaced_by_a_link_is_empty(tmp_path: Path, canary: Path, replaced: str) -> None:
    link = tmp_path / "instance" / replaced
    link.parent.mkdir(parents=True)
    link.symlink_to(canary)

    for path in ("ml/model", "ml/output/data"):
        unpack_folder(FolderTar(tmp_path / "instance", path).read, tmp_path / "there")

    assert list((tmp_path / "there").iterdir()) == []


def test_a_folder_that_becomes_a_link_after_it_was_listed_is_not_read(tmp_path: Path, canary: Path) -> None:
    model = tmp_path / "ml" / "model"
    (model / "data").mkdir(parents=True)
    (model / "data" / "secret").write_text("own!!!")
    archive = FolderTar(tmp_path, "ml/model")
    model.rename(tmp_path / "aside")
    model.symlink_to(canary)

    with pytest.raises(NotADirectoryError):
        archive.read(0)


def test_what_has_no_permissions_is_copied_as_well(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "shut").mkdir(parents=True)
    (model / "shut" / "file").write_text("shut")
    (model / "shut" / "file").chmod(0)
    (model / "shut").chmod(0)

    unpack_folder(tar_of(model).read, tmp_path / "there")

    (tmp_path / "there" / "shut" / "file").chmod(0o600)
    assert (tmp_path / "there" / "shut" / "file").read_text() == "shut"


@pytest.fixture
def nested(tmp_path: Path) -> Iterator[Path]:
    """Folders in folders, which go with the test: whoever clears up after all of them cannot get so deep."""
    for folder in (tmp_path / "model", tmp_path / "there"):
        folder.mkdir()
    nest(tmp_path / "model", 2500)
    yield tmp_path / "model"
    for folder in (tmp_path / "model", tmp_path / "there"):
        remove_tree(folder)


def test_endlessly_nested_folders_are_copied_deeper_than_they_are_packed(nested: Path, tmp_path: Path) -> None:
    unpack_folder(tar_of(nested).read, tmp_path / "there")

    assert merged_tree._MAX_DEPTH < depth_of(tmp_path / "there") < 2500


def nest(folder: Path, levels: int) -> None:
    """Folders in folders, with names that together are longer than a path can be."""
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("deeper" * 10, dir_fd=descriptor)
        inner = os.open("deeper" * 10, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)


def depth_of(folder: Path) -> int:
    return max(parent.count("/") for parent, *_ in os.fwalk(".", dir_fd=os.open(folder, os.O_RDONLY)))


def test_a_file_of_nothing_but_holes_is_copied_as_its_size(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "holes").touch()
    os.truncate(model / "holes", 1 << 42)

    archive = tar_of(model)
    unpack_folder(archive.read, tmp_path / "there")

    assert len(archive.read(0)) < folder_tar.PART_BYTES
    found = (tmp_path / "there" / "holes").stat()
    assert found.st_size == 1 << 42
    assert found.st_blocks == 0


def test_holes_that_are_packed_are_copied_and_take_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_tar, "PART_BYTES", 1 << 16)
    model = tmp_path / "model"
    model.mkdir()
    with (model / "weights").open("wb") as file:
        file.write(b"begin")
        file.seek(1 << 24)
        file.write(b"end")

    unpack_folder(tar_of(model).read, tmp_path / "there")

    assert (tmp_path / "there" / "weights").read_bytes() == (model / "weights").read_bytes()
    assert (tmp_path / "there" / "weights").stat().st_blocks * 512 < 1 << 20


def test_packing_refuses_the_same_holes() -> None:
    assert folder_tar.MAX_HOLE_BYTES == merged_tree._MAX_HOLE_BYTES
    assert folder_tar.MAX_ENTRIES == merged_tree._MAX_ENTRIES


def test_nothing_is_unpacked_through_a_link(tmp_path: Path, canary: Path) -> None:
    link, through = tarfile.TarInfo("link"), tarfile.TarInfo("link/forged")
    link.type, link.linkname = tarfile.SYMTYPE, str(canary)
    whole = link.tobuf() + through.tobuf() + bytes(1024)

    with pytest.raises(Corrupt, match="forged"):
        unpack_folder(lambda offset: whole[offset:], tmp_path / "there")

    assert not (canary / "forged").exists()
