"""The frames that workers and servers exchange: a JSON message, followed by tensors as raw bytes.

The message has the name, type and shape of each tensor. Nothing in a frame is ever executed or unpickled.
"""

import ctypes
import math
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from trainyard.foundation.errors import Corrupt
from trainyard.instance.parameter_server.connection import receive_bytes, receive_message, send_bytes, send_message

MAX_HEAD_BYTES = 16 << 20
MAX_BYTES = 64 << 30

_TYPES = {
    str(each).removeprefix("torch."): each
    for each in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8)
}


@dataclass(frozen=True, slots=True)
class TensorFrame:
    """A message with tensors."""

    message: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)


def send_frame(connection: socket.socket, frame: TensorFrame) -> None:
    """Send a frame; its tensors must be on the CPU and dense. Unavailable if the other side is gone."""
    headers = [[name, _type_name(each), list(each.shape)] for name, each in frame.tensors.items()]
    send_message(connection, frame.message, headers)
    for tensor in frame.tensors.values():
        send_bytes(connection, _memory(tensor))


def receive_frame(connection: socket.socket) -> TensorFrame:
    """Receive a frame. Unavailable if the other side is gone, Corrupt if the frame is invalid."""
    message, raw_headers = receive_message(connection, max_bytes=MAX_HEAD_BYTES)
    headers = _parse_headers(raw_headers)
    if sum(header.size_bytes for header in headers) > MAX_BYTES:
        raise Corrupt(f"The tensors of a frame exceed the maximum of {MAX_BYTES} bytes.")
    return TensorFrame(message, {header.name: _receive_tensor(connection, header) for header in headers})


@dataclass(frozen=True, slots=True)
class _TensorHeader:
    """Name, type and shape of a tensor that follows."""

    name: str
    type_name: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * int(_TYPES[self.type_name].itemsize)


def _parse_headers(values: Sequence[Any]) -> list[_TensorHeader]:
    try:
        headers = [_TensorHeader(str(name), str(kind), tuple(shape)) for name, kind, shape in values]
    except (ValueError, TypeError) as error:
        raise Corrupt("The head of a parameter server's frame is invalid.") from error
    for each in headers:
        if each.type_name not in _TYPES or any(type(n) is not int or n < 0 for n in each.shape):
            raise Corrupt(f'A frame has a tensor of type "{each.type_name}" and shape {each.shape}.')
    return headers


def _receive_tensor(connection: socket.socket, header: _TensorHeader) -> torch.Tensor:
    if not header.size_bytes:
        return torch.empty(header.shape, dtype=_TYPES[header.type_name])
    memory = receive_bytes(connection, header.size_bytes)
    return torch.frombuffer(memory, dtype=_TYPES[header.type_name]).view(header.shape)


def _type_name(tensor: torch.Tensor) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _TYPES:
        raise Corrupt(f"A parameter server does not support tensors of type {name}, only {', '.join(_TYPES)}.")
    return name


def _memory(tensor: torch.Tensor) -> memoryview:
    """Return a view of the bytes of a dense tensor, which must outlive it."""
    assert tensor.is_contiguous(), "only dense tensors can be sent"
    assert tensor.device.type == "cpu", "only tensors on the CPU can be sent"
    size = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B") if size else memoryview(b"")
