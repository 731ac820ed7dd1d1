"""Raw tensors of the steps in which they were saved; each file is opened when a tensor of it is looked at."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from numpy.typing import NDArray

from trainyard.formats.tensors import layout, safetensors
from trainyard.formats.tensors.safetensors import Entry, RawTensor
from trainyard.foundation.errors import Corrupt, NotFound
from trainyard.foundation.sources import ByteSource

_FIRST_READ = 64 << 10  # most headers are shorter
_MOST_HEADERS = 64


class RawValues:
    """The files of one worker. A file never changes once it is there, but for steps that a training repeats."""

    def __init__(self, folder: str, source: ByteSource) -> None:
        self._folder, self._source = folder, source
        self._headers: OrderedDict[int, dict[str, Entry]] = OrderedDict()

    def read(self, step: int, name: str) -> RawTensor | None:
        """A tensor of a step; None where it was not saved."""
        entry = self.entries(step).get(name)
        if entry is None:
            return None
        size = entry.end - entry.start
        data = self._source.read(self._name(step), start=entry.start, size=size) if size else b""
        if len(data) != size:
            raise Corrupt(f'The tensor "{name}" of step {step} in {self._source.place} is cut off.')
        return RawTensor(entry.dtype, entry.shape, data)

    def of(self, step: int) -> Mapping[str, NDArray[Any]]:
        """The tensors of a step by their names."""
        return _StepValues(self, step)

    def forget(self) -> None:
        """Look at the files anew: a training has gone back, and saves steps again."""
        self._headers.clear()

    def entries(self, step: int) -> Mapping[str, Entry]:
        """Where the tensors of a step lie; none where none was saved."""
        if step not in self._headers:
            try:
                found = self._read_header(self._name(step))
            except NotFound:  # of which no note is kept: it may still come
                return {}
            self._headers[step] = found
            if len(self._headers) > _MOST_HEADERS:
                self._headers.popitem(last=False)
        return self._headers[step]

    def _read_header(self, name: str) -> dict[str, Entry]:
        head = self._source.read(name, size=_FIRST_READ)
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
