import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trainyard.foundation.errors import AlreadyExists, Corrupt, Unavailable
from trainyard.server.upkeep.archive import MANIFEST, new_archive, open_archive

FILES = {"a.txt": b"alpha", "deep/er/b.bin": bytes(range(256)) * 5000, "empty": b""}


@pytest.fixture(params=["backup", "backup.tar"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / "kept" / str(request.param)


def write(target: Path, files: dict[str, bytes] = FILES) -> None:
    source = target.parent / "source"
    target.parent.mkdir(exist_ok=True)
    with new_archive(target) as archive:
        for name, content in files.items():
            source.write_bytes(content)
            with source.open("rb") as file:
                archive.add(name, file)
        archive.finish({"made_by": "test"})
    source.unlink()


def test_an_archive_returns_what_was_added(target: Path) -> None:
    write(target)

    archive = open_archive(target)

    assert {member.name: member.body.read() for member in archive.members()} == FILES
    assert archive.about["made_by"] == "test"


def test_only_the_owner_can_read_an_archive(target: Path) -> None:
    write(target)

    assert target.stat().st_mode & 0o077 == 0


def test_an_existing_file_is_not_overwritten(target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(b"precious")

    with pytest.raises(AlreadyExists):
        write(target)
    assert target.read_bytes() == b"precious"


def test_a_failure_half_way_leaves_nothing_behind(target: Path) -> None:
    def fail() -> None:
        with new_archive(target):
            raise OSError(28, "No space left on device")

    target.parent.mkdir()
    with pytest.raises(Unavailable, match="No space left"):
        fail()
    assert list(target.parent.iterdir()) == []


def test_leftovers_of_a_killed_attempt_do_no_harm(target: Path) -> None:
    target.parent.mkdir()
    target.with_name(f".{target.name}.partial").mkdir()

    write(target)

    assert open_archive(target).about["files"].keys() == FILES.keys()
    assert list(target.parent.iterdir()) == [target]


def rewrite(target: Path, change: Callable[[dict[str, bytes]], object]) -> None:
    """Change the files of an archive without changing its manifest."""
    if target.is_dir():
        contents = {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}
        change(contents)
        for path in [path for path in target.rglob("*") if path.is_file()]:
            path.unlink()
        for name, content in contents.items():
            (target / name).write_bytes(content)
        return
    with tarfile.open(target) as tar:
        contents = {header.name: body.read() for header in tar if (body := tar.extractfile(header))}
    change(contents)
    with tarfile.open(target, "w") as tar:
        for name, content in contents.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content))


def test_a_changed_file_is_found(target: Path) -> None:
    write(target)
    rewrite(target, lambda files: files.update({"a.txt": b"alphA"}))

    with pytest.raises(Corrupt, match=r"a\.txt does not match the manifest"):
        open_archive(target)


def test_a_lost_file_is_found(target: Path) -> None:
    write(target)
    rewrite(target, lambda files: files.pop("a.txt"))

    with pytest.raises(Corrupt, match=r"a\.txt is missing"):
        open_archive(target)


def test_a_file_that_the_manifest_does_not_name_is_ignored(target: Path) -> None:
    write(target)
    rewrite(target, lambda files: files.update({"intruder": b"x"}))

    assert {member.name for member in open_archive(target).members()} == FILES.keys()


def test_an_archive_without_a_manifest_is_not_a_backup(target: Path) -> None:
    write(target)
    rewrite(target, lambda files: files.pop(MANIFEST))

    with pytest.raises(Corrupt, match="not a backup of a yard"):
        open_archive(target)


@pytest.mark.parametrize("manifest", [b"{", b"[]", b"{}", b'{"files": 3}'])
def test_a_damaged_manifest_is_reported(target: Path, manifest: bytes) -> None:
    write(target)
    rewrite(target, lambda files: files.update({MANIFEST: manifest}))

    with pytest.raises(Corrupt, match="manifest"):
        open_archive(target)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "deep/../../outside"])
def test_a_manifest_that_points_outside_is_refused(target: Path, name: str) -> None:
    write(target)
    rewrite(target, lambda files: files.update({MANIFEST: json.dumps({"files": {name: [0, ""]}}).encode()}))

    with pytest.raises(Corrupt, match="outside"):
        open_archive(target)


def test_a_truncated_tar_file_is_reported(tmp_path: Path) -> None:
    target = tmp_path / "kept" / "backup.tar"
    write(target)
    target.write_bytes(target.read_bytes()[:600_000])

    with pytest.raises(Corrupt):
        open_archive(target)


def test_a_file_that_is_not_a_tar_is_reported(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8 not a tar" * 100)

    with pytest.raises(Corrupt, match="cannot be read as a backup"):
        open_archive(tmp_path / "photo.jpg")
