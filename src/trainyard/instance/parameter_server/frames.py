"""The frames that workers and servers exchange: words as JSON, tensors as the bytes they are.

A frame is its words and then the tensors one after another, of which the words have name, type and shape. Nothing in a
frame is ever run or unpickled.
"""

import ctypes
import math
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from trainyard.foundation.errors import Corrupt
from trainyard.instance.parameter_server.words import receive_bytes, receive_words, send_bytes, send_words

MAX_HEAD_BYTES = 16 << 20
MAX_BYTES = 64 << 30

_TYPES = {
    str(each).removeprefix("torch."): each
    for each in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8)
}


@dataclass(frozen=True, slots=True)
class Frame:
    """What one side says to the other."""

    words: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)


def send_frame(connection: socket.socket, frame: Frame) -> None:
    """Send a frame whole; its tensors must be on the CPU and dense. Unavailable when the other side is gone."""
    kinds = [[name, _type_name(each), list(each.shape)] for name, each in frame.tensors.items()]
    send_words(connection, frame.words, kinds)
    for tensor in frame.tensors.values():
        send_bytes(connection, _memory(tensor))


def receive_frame(connection: socket.socket) -> Frame:
    """The next frame. Unavailable when the other side is gone, Corrupt when what it says makes no sense."""
    words, told = receive_words(connection, max_bytes=MAX_HEAD_BYTES)
    kinds = _kinds(told)
    if sum(kind.size_bytes for kind in kinds) > MAX_BYTES:
        raise Corrupt(f"The tensors of a frame would have more than the {MAX_BYTES} bytes that are accepted.")
    return Frame(words, {kind.name: _tensor(connection, kind) for kind in kinds})


@dataclass(frozen=True, slots=True)
class _Kind:
    """A tensor to come."""

    name: str
    type_name: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * int(_TYPES[self.type_name].itemsize)


def _kinds(told: Sequence[Any]) -> list[_Kind]:
    try:
        kinds = [_Kind(str(name), str(kind), tuple(shape)) for name, kind, shape in told]
    except (ValueError, TypeError) as error:
        raise Corrupt("The head of a frame is not what frames of a parameter server have.") from error
    for each in kinds:
        if each.type_name not in _TYPES or any(type(n) is not int or n < 0 for n in each.shape):
            raise Corrupt(f'A frame has a tensor of type "{each.type_name}" and shape {each.shape}.')
    return kinds


def _tensor(connection: socket.socket, kind: _Kind) -> torch.Tensor:
    if not kind.size_bytes:
        return torch.empty(kind.shape, dtype=_TYPES[kind.type_name])
    memory = receive_bytes(connection, kind.size_bytes)
    return torch.frombuffer(memory, dtype=_TYPES[kind.type_name]).view(kind.shape)


def _type_name(tensor: torch.Tensor) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _TYPES:
        raise Corrupt(f"A parameter server does not keep tensors of type {name}; it keeps {', '.join(_TYPES)}.")
    return name


def _memory(tensor: torch.Tensor) -> memoryview:
    """The bytes of a dense tensor where they lie; the tensor must outlive them."""
    assert tensor.is_contiguous(), "only dense tensors can be sent"
    assert tensor.device.type == "cpu", "only tensors of the CPU can be sent"
    size = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B") if size else memoryview(b"")
