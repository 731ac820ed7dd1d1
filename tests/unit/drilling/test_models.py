import io
import tarfile
from pathlib import Path

import pytest
import torch

from trainyard.drilling.models import Comparison, compare_models
from trainyard.drilling.tensors import Distance
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


def compared(folder: Path, first: dict[str, bytes], second: dict[str, bytes]) -> Comparison:
    return compare_models(archive(folder / "1.tar.gz", **first), archive(folder / "02.tar.gz", **second))


def test_models_of_the_same_bytes_are_equal_however_they_were_packed(tmp_path: Path) -> None:
    files = {"model": tensor(1.0), "deep__other": b"text"}
    found = compared(tmp_path, files, files)
    assert (found.is_equal, found.files) == (True, 2)


def test_tensors_tell_how_far_models_are_apart(tmp_path: Path) -> None:
    found = compared(tmp_path, {"model": tensor(1.0, 2.0)}, {"model": tensor(1.0, 2.5)})
    assert found == Comparison(1, Distance(0.5, "model.pt: weight"))
    assert not found.is_equal
    assert (found.is_within(0.4), found.is_within(0.5)) == (False, True)


def test_other_files_are_named_and_no_tolerance_covers_them(tmp_path: Path) -> None:
    found = compared(tmp_path, {"a": b"one", "only": b"x"}, {"a": b"two"})
    assert found == Comparison(2, others=("a.pt", "only.pt"))
    assert not found.is_within(1e9)


def test_an_archive_that_is_none_says_so(tmp_path: Path) -> None:
    (tmp_path / "model.tar.gz").write_bytes(b"nothing")
    with pytest.raises(Corrupt, match=r"model\.tar\.gz cannot be unpacked"):
        compare_models(tmp_path / "model.tar.gz", tmp_path / "model.tar.gz")
