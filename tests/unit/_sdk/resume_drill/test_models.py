import io
import tarfile
from pathlib import Path

import pytest
import torch

from trainyard._sdk.resume_drill.models import ModelComparison, compare_models
from trainyard._sdk.resume_drill.tensors import Distance
from trainyard.foundation.disk import Reserve
from trainyard.foundation.errors import Corrupt


def archive(path: Path, **files: bytes) -> Path:
    with tarfile.open(path, "w:gz") as opened:
        for name, data in files.items():
            entry = tarfile.TarInfo(name.replace("__", "/") + ".pt")
            entry.size, entry.mtime = len(data), len(str(path))
            opened.addfile(entry, io.BytesIO(data))
    return path


def tensor(*values: float) -> bytes:
    buffer = io.BytesIO()
    torch.save({"weight": torch.tensor(values)}, buffer)
    return buffer.getvalue()


def compared(folder: Path, first: dict[str, bytes], second: dict[str, bytes]) -> ModelComparison:
    return compare_models(archive(folder / "1.tar.gz", **first), archive(folder / "02.tar.gz", **second))


def test_models_of_the_same_bytes_are_equal_however_they_were_packed(tmp_path: Path) -> None:
    files = {"model": tensor(1.0), "deep__other": b"text"}
    found = compared(tmp_path, files, files)
    assert (found.is_equal, found.files) == (True, 2)


def test_tensors_tell_how_far_models_are_apart(tmp_path: Path) -> None:
    found = compared(tmp_path, {"model": tensor(1.0, 2.0)}, {"model": tensor(1.0, 2.5)})
    assert found == ModelComparison(1, Distance(0.5, "model.pt: weight"))
    assert not found.is_equal
    assert (found.is_within(0.4), found.is_within(0.5)) == (False, True)


def test_other_files_are_named_and_no_tolerance_covers_them(tmp_path: Path) -> None:
    found = compared(tmp_path, {"a": b"one", "only": b"x"}, {"a": b"two"})
    assert found == ModelComparison(2, others=("a.pt", "only.pt"))
    assert not found.is_within(1e9)


def test_a_file_that_is_not_an_archive_says_so(tmp_path: Path) -> None:
    (tmp_path / "model.tar.gz").write_bytes(b"nothing")
    with pytest.raises(Corrupt, match=r"model\.tar\.gz cannot be unpacked"):
        compare_models(tmp_path / "model.tar.gz", tmp_path / "model.tar.gz")


def hostile_archive(path: Path, *entries: tuple[str, bytes, str]) -> Path:
    """Write an archive of entries: their names, their types, and the targets of links or the content of files."""
    with tarfile.open(path, "w:gz") as opened:
        for name, kind, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            data = content.encode() if kind == tarfile.REGTYPE else b""
            entry.size, entry.linkname = len(data), content if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            opened.addfile(entry, io.BytesIO(data))
    return path


def test_an_archive_that_leads_out_of_its_folder_writes_and_reads_nothing_there(tmp_path: Path) -> None:
    """Not even with a chain of links that is too long to resolve, which `tarfile` of some Python versions follows."""
    outside, secret = tmp_path / "outside", tmp_path / "secret"
    secret.write_text("secret")
    long, entries, above = "d" * 247, [], ""
    for letter in "abcdefghijklmnop":
        entries += [(f"{above}{long}", tarfile.DIRTYPE, ""), (f"{above}{letter}", tarfile.SYMTYPE, long)]
        above += f"{long}/"
    end = "/".join("abcdefghijklmnop") + "/" + "l" * 254
    entries += [(end, tarfile.SYMTYPE, "../" * 16), ("escape", tarfile.SYMTYPE, f"{end}{'/..' * 8}{tmp_path}")]
    entries += [("escape/outside", tarfile.REGTYPE, "written"), (f"{tmp_path}/outside", tarfile.REGTYPE, "written")]
    entries += [("../../outside", tarfile.REGTYPE, "written"), ("leak.txt", tarfile.SYMTYPE, str(secret))]
    first = hostile_archive(tmp_path / "1.tar.gz", *entries)
    second = hostile_archive(tmp_path / "2.tar.gz", ("leak.txt", tarfile.REGTYPE, "secret"))
    found = compare_models(first, second)
    assert not outside.exists()
    assert "leak.txt" in found.others


def test_an_archive_that_holds_more_than_there_is_room_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = hostile_archive(tmp_path / "1.tar.gz", ("large.bin", tarfile.REGTYPE, "x" * 1000))
    monkeypatch.setattr("trainyard._sdk.resume_drill.models.reserve_of", lambda _: Reserve(100, 0, 1000, 0))
    with pytest.raises(Corrupt, match="has no room for it"):
        compare_models(archive, archive)
