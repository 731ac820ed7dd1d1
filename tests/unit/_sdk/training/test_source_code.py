import io
import os
import tarfile
from pathlib import Path

import pytest

from trainyard._sdk.training.source_code import pack
from trainyard.foundation.errors import InvalidRequest


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    (folder / "package").mkdir(parents=True)
    (folder / "train.py").write_text("print('trains')")
    (folder / "package" / "model.py").write_text("layers = 3")
    (folder / "package" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "package" / "run.sh").chmod(0o700)
    return folder


def entries(archive: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {entry.name: entry for entry in opened}


def test_a_folder_is_packed_by_its_content(source: Path) -> None:
    code = pack("train.py", str(source))

    assert code.script == "train.py"
    assert list(entries(code.archive)) == ["package", "package/model.py", "package/run.sh", "train.py"]


def test_a_script_alone_is_packed_by_its_name(source: Path) -> None:
    code = pack(str(source / "package" / "model.py"), None)

    assert code.script == "model.py"
    with tarfile.open(fileobj=io.BytesIO(code.archive)) as opened:
        member = opened.extractfile("model.py")
        assert member is not None
        assert member.read() == b"layers = 3"


def test_dependencies_lie_beside_the_script(source: Path, tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "tools.py").write_text("")
    (tmp_path / "notes.txt").write_text("")

    code = pack("train.py", str(source), [str(tmp_path / "library"), str(tmp_path / "notes.txt")])

    assert {"train.py", "library/tools.py", "notes.txt"} <= set(entries(code.archive))


def test_the_same_files_make_the_same_bytes(source: Path) -> None:
    before = pack("train.py", str(source)).archive
    (source / "train.py").touch()
    os.utime(source / "package", (0, 0))
    (source / "package" / "__pycache__").mkdir()

    assert pack("train.py", str(source)).archive == before


def test_only_the_right_to_be_run_is_kept_of_the_modes(source: Path) -> None:
    found = entries(pack("train.py", str(source)).archive)

    assert (found["package/run.sh"].mode, found["train.py"].mode) == (0o755, 0o644)
    assert {(entry.uid, entry.gid, entry.mtime) for entry in found.values()} == {(0, 0, 0)}


def test_links_are_followed(source: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text("linked")
    (source / "linked.py").symlink_to(tmp_path / "elsewhere.py")

    assert entries(pack("train.py", str(source)).archive)["linked.py"].isreg()


def test_a_folder_that_leads_back_to_itself_is_refused(source: Path) -> None:
    (source / "package" / "again").symlink_to(source / "package")

    with pytest.raises(InvalidRequest, match="is a link to one of its parent folders"):
        pack("train.py", str(source))


@pytest.mark.parametrize(
    ("entry_point", "complaint"),
    [
        ("missing.py", 'There is no script "missing.py" in the source directory'),
        ("../src/train.py", "the script is a path in it"),
        ("package", 'There is no script "package"'),
    ],
)
def test_an_entry_point_must_be_a_file_of_the_folder(source: Path, entry_point: str, complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        pack(entry_point, str(source))


def test_a_missing_file_is_named(source: Path) -> None:
    with pytest.raises(InvalidRequest, match="is not a folder"):
        pack("train.py", str(source / "nothing"))
    with pytest.raises(InvalidRequest, match=r'no script "nothing\.py"'):
        pack("nothing.py", None)
    with pytest.raises(InvalidRequest, match='The dependency "nothing" does not exist'):
        pack("train.py", str(source), ["nothing"])
