import io
import pickle
import zipfile
from typing import Any

import pytest
import torch

from trainyard.server.dashboard.pages.files.torch_files import pickle_start, torch_tensors
from trainyard.server.services.contract import Shape


def read(value: Any) -> Shape:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    file = buffer.getvalue()
    start = pickle_start(file)
    assert start is not None
    found = torch_tensors(file[start:])
    assert found is not None
    return found


def test_the_tensors_and_values_of_a_checkpoint_are_named() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    found = read({"model": model.state_dict(), "epoch": 3, "rate": 0.1, "half": torch.zeros(4, dtype=torch.bfloat16)})
    tensors = {each["name"]: (each["dtype"], each["shape"], each["bytes"]) for each in found["tensors"]}
    assert tensors["model.0.weight"] == ("float", [3, 2], 24)
    assert tensors["model.1.num_batches_tracked"] == ("long", [], 8)
    assert tensors["half"] == ("bfloat16", [4], 8)
    assert found["total"] == 8
    assert found["metadata"] == {"epoch": "3", "rate": "0.1"}


def test_a_whole_model_is_read_without_its_classes() -> None:
    names = {each["name"] for each in read(torch.nn.Sequential(torch.nn.Linear(2, 3)))["tensors"]}
    assert names == {"_modules.0._parameters.weight", "_modules.0._parameters.bias"}


class Dangerous:
    def __reduce__(self) -> Any:
        return pytest.fail, ("the pickle was loaded",)


def test_nothing_that_a_pickle_names_is_called() -> None:
    assert read({"weight": torch.zeros(2), "danger": Dangerous()})["total"] == 1


def test_a_checkpoint_that_contains_itself_is_read() -> None:
    loop: list[Any] = [torch.zeros(1)]
    loop.append(loop)
    assert read(loop)["total"] <= 12


def test_parts_that_occur_again_and_again_are_read_within_limits() -> None:
    value: Any = [1]
    for _ in range(40):
        value = [value, value, value]
    assert len(read(value)["metadata"]) <= 30


@pytest.mark.parametrize("data", [b"", b"\x80\x02", pickle.dumps({1: 2}, 0), b"\x80\x02].", b"\x80\x02}(q", b"R."])
def test_a_damaged_pickle_has_no_tensors(data: bytes) -> None:
    found = torch_tensors(data)
    assert found is None or found["total"] == 0


def test_other_archives_are_no_checkpoints() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("readme.txt", "text")
    assert pickle_start(buffer.getvalue()) is None
    assert pickle_start(b"PK\x03\x04") is None
