"""Files of tensors: the safetensors library reads ours, we read its own, and no kind loses its values."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from safetensors.numpy import load, save
from safetensors.torch import load as load_torch
from safetensors.torch import save as save_torch

from trainyard.formats.tensors.encoding.safetensors import HEAD_BYTES, RawTensor, decode_header, encode, header_bytes
from trainyard.foundation.errors import Corrupt, InvalidRequest

kinds = st.sampled_from(["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"])
tensors = st.dictionaries(
    st.text(min_size=1, max_size=12).filter(lambda name: name != "__metadata__"),
    kinds.flatmap(lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0, min_side=0, max_side=4))),
    max_size=4,
)


def read(data: bytes) -> dict[str, NDArray[Any]]:
    header = data[HEAD_BYTES : HEAD_BYTES + header_bytes(data)]
    return {
        name: RawTensor(each.dtype, each.shape, data[each.start : each.end]).array()
        for name, each in decode_header(header).items()
    }


def written(values: dict[str, NDArray[Any]], **metadata: str) -> bytes:
    return b"".join(bytes(piece) for piece in encode({k: RawTensor.of(v) for k, v in values.items()}, metadata))


def same(left: dict[str, NDArray[Any]], right: dict[str, NDArray[Any]]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and left[name].tobytes() == right[name].tobytes() for name in left
    )


@given(tensors)
def test_the_library_reads_what_we_write(values: dict[str, NDArray[Any]]) -> None:
    assert same(load(written(values, step="7")), values)
    assert same(read(written(values)), values)


@given(tensors)
def test_we_read_what_the_library_writes(values: dict[str, NDArray[Any]]) -> None:
    assert same(read(save(values, {"format": "np"})), values)


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_kinds_that_numpy_lacks_are_widened_exactly(kind: str) -> None:
    width = torch.int16 if kind == "bfloat16" else torch.uint8
    bits = torch.arange(256 if width is torch.uint8 else 1 << 15, dtype=width)
    tensor = bits.view(getattr(torch, kind))
    found = read(save_torch({"x": tensor}))["x"]
    assert found.dtype == np.float32
    assert np.array_equal(found, tensor.float().numpy(), equal_nan=True)


def test_a_tensor_of_a_kind_that_numpy_lacks_comes_back_to_torch_as_it_was() -> None:
    tensor = torch.randn(3, 5).to(torch.bfloat16)
    raw = RawTensor("bfloat16", (3, 5), tensor.view(torch.uint8).numpy().tobytes())
    found = load_torch(b"".join(bytes(piece) for piece in encode({"w": raw})))["w"]
    assert torch.equal(found, tensor)


def test_an_array_that_is_not_in_order_is_put_in_order() -> None:
    array = np.arange(12, dtype=">f4").reshape(3, 4).T
    assert np.array_equal(load(written({"x": array}))["x"], array)


def test_a_kind_that_the_format_lacks_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match='The tensor "x" has the dtype complex128'):
        written({"x": np.zeros(2, complex)})


def test_a_file_cut_in_its_header_is_corrupt(tmp_path: Path) -> None:
    data = written({"x": np.zeros(3, np.float32)})
    for size in range(HEAD_BYTES):
        with pytest.raises(Corrupt):
            header_bytes(data[:size])
    for size in range(HEAD_BYTES, HEAD_BYTES + header_bytes(data) - 8):
        with pytest.raises(Corrupt):
            decode_header(data[HEAD_BYTES:size])
    with pytest.raises(Corrupt, match="cannot have"):
        header_bytes(b"\xff" * 8)
