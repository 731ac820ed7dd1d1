"""Raw tensors of saved steps; a file is opened when one of its tensors is read."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from numpy.typing import NDArray

from trainyard.formats.tensors.encoding import safetensors
from trainyard.formats.tensors.encoding.safetensors import RawTensor, TensorLocation
from trainyard.formats.tensors.recordings import layout
from trainyard.foundation.errors import Corrupt, NotFound
from trainyard.foundation.sources import ByteSource

# Most headers are shorter, so one read gets them.
_FIRST_READ_BYTES = 64 << 10
_MAX_CACHED_HEADERS = 64


class RawValues:
    """The files of one worker. A file never changes, unless the training repeats its step."""

    def __init__(self, folder: str, source: ByteSource) -> None:
        self._folder, self._source = folder, source
        self._headers: OrderedDict[int, dict[str, TensorLocation]] = OrderedDict()

    def read(self, step: int, name: str) -> RawTensor | None:
        """Read a tensor of a step; None if it was not saved."""
        entry = self.entries(step).get(name)
        if entry is None:
            return None
        size = entry.end - entry.start
        data = self._source.read(self._name(step), start=entry.start, size=size) if size else b""
        if len(data) != size:
            raise Corrupt(f'The tensor "{name}" of step {step} in {self._source.place} is truncated.')
        return RawTensor(entry.dtype, entry.shape, data)

    def read_part(self, step: int, name: str, first: int, count: int) -> RawTensor | None:
        """Read some consecutive elements of a tensor, as a flat one; None if it was not saved."""
        entry = self.entries(step).get(name)
        if entry is None:
            return None
        size = prod(entry.shape)
        width = (entry.end - entry.start) // size if size else 0
        first = min(first, size)
        count = min(count, size - first)
        data = self._source.read(self._name(step), start=entry.start + first * width, size=count * width)
        if len(data) != count * width:
            raise Corrupt(f'The tensor "{name}" of step {step} in {self._source.place} is truncated.')
        return RawTensor(entry.dtype, (count,), data)

    def location(self, step: int, name: str) -> TensorLocation | None:
        """Return where a tensor is in the file of its step; None if it was not saved."""
        return self.entries(step).get(name)

    def values_of(self, step: int) -> Mapping[str, NDArray[Any]]:
        """Return the tensors of a step by name; each is read on access."""
        return _StepValues(self, step)

    def clear_cache(self) -> None:
        """Drop cached headers, because a training has gone back and saves steps again."""
        self._headers.clear()

    def entries(self, step: int) -> Mapping[str, TensorLocation]:
        """Return the locations of a step's tensors; empty if none was saved."""
        if step not in self._headers:
            try:
                header = self._read_header(self._name(step))
            # Not cached: the file may still come.
            except NotFound:
                return {}
            self._headers[step] = header
            if len(self._headers) > _MAX_CACHED_HEADERS:
                self._headers.popitem(last=False)
        return self._headers[step]

    def _read_header(self, name: str) -> dict[str, TensorLocation]:
        head = self._source.read(name, size=_FIRST_READ_BYTES)
        end = safetensors.HEAD_BYTES + safetensors.header_bytes(head)
        if end > len(head):
            head += self._source.read(name, start=len(head), size=end - len(head))
        return safetensors.decode_header(head[safetensors.HEAD_BYTES : end])

    def _name(self, step: int) -> str:
        return f"{self._folder}/{layout.values_name(step)}"


class _StepValues(Mapping[str, NDArray[Any]]):
    def __init__(self, values: RawValues, step: int) -> None:
        self._values, self._step = values, step

    def __getitem__(self, name: str) -> NDArray[Any]:
        raw = self._values.read(self._step, name)
        if raw is None:
            raise KeyError(name)
        return raw.array()

    def __iter__(self) -> Iterator[str]:
        return iter(self._values.entries(self._step))

    def __len__(self) -> int:
        return len(self._values.entries(self._step))
