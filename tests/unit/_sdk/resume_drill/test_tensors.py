import json
import math
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from trainyard._sdk.resume_drill.tensors import Distance, tensor_distance


def saved(path: Path, value: Any) -> Path:
    torch.save(value, path)
    return path


def apart(folder: Path, first: Any, second: Any) -> Distance | None:
    return tensor_distance(saved(folder / "first.pt", first), saved(folder / "second.pt", second))


def test_the_largest_difference_and_its_tensor_are_found(tmp_path: Path) -> None:
    first = {"layer": {"weight": torch.tensor([1.0, 2.0]), "bias": torch.tensor([0.5])}, "steps": [1, 2]}
    second = {"layer": {"weight": torch.tensor([1.0, 2.25]), "bias": torch.tensor([0.625])}, "steps": [1, 2]}
    assert apart(tmp_path, first, second) == Distance(0.25, "layer.weight")


def test_equal_tensors_are_not_apart_whatever_their_files_are(tmp_path: Path) -> None:
    value = {"weight": torch.arange(6.0), "empty": torch.empty(0), "name": "mnist"}
    assert apart(tmp_path, value, value) == Distance()


@pytest.mark.parametrize(
    "second",
    [
        {"weight": torch.zeros(3)},
        {"weight": torch.zeros(2, dtype=torch.float64)},
        {"weight": torch.zeros(2), "more": torch.zeros(2)},
        {"weight": "text"},
    ],
)
def test_tensors_of_different_kinds_have_no_distance(tmp_path: Path, second: Any) -> None:
    assert apart(tmp_path, {"weight": torch.zeros(2)}, second) is None


def test_no_number_is_infinitely_far_from_one(tmp_path: Path) -> None:
    assert apart(tmp_path, torch.tensor([math.nan]), torch.tensor([1.0])) == Distance(math.inf, "")


def test_arrays_of_numpy_are_compared(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "first.npz", a=numpy.ones(3), b=numpy.zeros(2))
    numpy.savez(tmp_path / "second.npz", a=numpy.ones(3) * 3, b=numpy.zeros(2))
    assert tensor_distance(tmp_path / "first.npz", tmp_path / "second.npz") == Distance(2.0, "a")
    numpy.save(tmp_path / "first.npy", numpy.ones(3))
    numpy.save(tmp_path / "second.npy", numpy.ones(3))
    assert tensor_distance(tmp_path / "first.npy", tmp_path / "second.npy") == Distance()


def safetensors(path: Path, dtype: str, data: bytes) -> Path:
    header = json.dumps({"__metadata__": {}, "w": {"dtype": dtype, "shape": [2], "data_offsets": [0, len(data)]}})
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + data)
    return path


def test_safetensors_are_compared_without_their_library(tmp_path: Path) -> None:
    first, second = (torch.tensor([1.0, value]).numpy().tobytes() for value in (2.0, 2.5))
    ours, theirs = safetensors(tmp_path / "a.safetensors", "F32", first), tmp_path / "b.safetensors"
    assert tensor_distance(ours, safetensors(theirs, "F32", second)) == Distance(0.5, "w")
    assert tensor_distance(ours, safetensors(theirs, "X9", second)) is None


def test_a_file_that_cannot_be_read_has_no_distance(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(b"no archive")
    (tmp_path / "a.txt").write_bytes(b"text")
    assert tensor_distance(tmp_path / "a.pt", tmp_path / "a.pt") is None
    assert tensor_distance(tmp_path / "a.txt", tmp_path / "a.txt") is None


def test_a_pickle_that_would_run_something_is_not_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"weight": Trap()}, tmp_path / "a.pt")
    assert tensor_distance(tmp_path / "a.pt", tmp_path / "a.pt") is None
    assert not (tmp_path / "ran").exists()
