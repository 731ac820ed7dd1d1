"""Readers for training scripts: the records of a channel, or of files, one after another.

    from trainyard.data import RecordIODataset

    for epoch in range(3):
        for record in RecordIODataset("train"):
            ...

Of a Pipe channel, each iteration is the next epoch: the state lies in /opt/ml/pipe_state, where other readers of Pipe
channels have it too, so that processes and readers can take turns. Of a File or FastFile channel, each iteration reads
all files, in the order of their paths. No framework is needed; with PyTorch, `RecordIODataset("train").torch()` is an
IterableDataset for a DataLoader. Of its workers, those of a File channel share the files, while a Pipe is read by the
first alone: it has one reader.
"""

import fcntl
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar

from trainyard.formats.recordio import MAX_RECORD_BYTES, read_recordio
from trainyard.formats.tfrecord import read_tfrecord
from trainyard.foundation.errors import Corrupt, InvalidRequest

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset

__all__ = ["Dataset", "RecordIODataset", "TFRecordDataset", "TextLineDataset", "next_epoch"]

T_co = TypeVar("T_co", covariant=True)
AnyPath = str | os.PathLike[str]

_BUFFER_BYTES = 1 << 20


class Dataset(ABC, Generic[T_co]):
    """The records of a channel, or of files.

    `channel` is the name of a channel, or `files` are paths, read in their order. `data_dir` and `state_dir` are where
    the channels lie and where it is kept which epoch of a Pipe comes next; by default, where they are in a job.
    """

    def __init__(
        self,
        channel: str = "",
        *,
        files: Iterable[AnyPath] = (),
        data_dir: AnyPath | None = None,
        state_dir: AnyPath | None = None,
    ) -> None:
        self._channel = channel
        self._files = tuple(Path(each) for each in files)
        if bool(channel) == bool(self._files):
            raise InvalidRequest("A dataset reads either a channel or files; name one of them.")
        root = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
        self._data = Path(data_dir) if data_dir is not None else root / "input" / "data"
        self._state = Path(state_dir) if state_dir is not None else root / "pipe_state"

    def __iter__(self) -> Iterator[T_co]:
        return self.part(0, of=1)

    def part(self, number: int, *, of: int) -> Iterator[T_co]:
        """What one of several readers gets: every so manyth file; of a Pipe the first gets all, the others nothing."""
        for path in self._paths(number, of):
            with path.open("rb", buffering=_BUFFER_BYTES) as stream:
                try:
                    yield from self._records(stream)
                except Corrupt as error:
                    raise Corrupt(f"{path} cannot be read by {type(self).__name__}: {error.message}") from error

    def torch(self) -> "IterableDataset[T_co]":
        """The same as a dataset of PyTorch, which is imported by this."""
        dataset: IterableDataset[T_co] = __getattr__("TorchDataset")(self)
        return dataset

    @abstractmethod
    def _records(self, stream: BinaryIO) -> Iterator[T_co]: ...

    def _paths(self, number: int, of: int) -> Sequence[Path]:
        if self._files:
            return self._files[number::of]
        folder = self._data / self._channel
        if folder.is_dir():
            files = (path for path in folder.rglob("*") if path.is_file())
            return sorted(files, key=lambda path: os.fsencode(path.relative_to(folder)))[number::of]
        if not any(self._data.glob(f"{self._channel}_*")):
            there = ", ".join(self._channels()) or "none"
            raise InvalidRequest(f'There is no channel "{self._channel}" in {self._data}; there is {there}.')
        return [self._data / f"{self._channel}_{next_epoch(self._channel, self._state)}"] if number == 0 else []

    def _channels(self) -> list[str]:
        """The channels that are there; of a Pipe channel, there are the FIFOs of its next epochs."""
        if not self._data.is_dir():
            return []
        return sorted({path.name.rpartition("_")[0] if path.is_fifo() else path.name for path in self._data.iterdir()})


class RecordIODataset(Dataset[bytes]):
    """Records of RecordIO data. `joint` is what a record in parts is put together with; see `read_recordio`."""

    def __init__(
        self,
        channel: str = "",
        *,
        files: Iterable[AnyPath] = (),
        data_dir: AnyPath | None = None,
        state_dir: AnyPath | None = None,
        joint: bytes = b"",
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        super().__init__(channel, files=files, data_dir=data_dir, state_dir=state_dir)
        self._joint = joint
        self._max_record_bytes = max_record_bytes

    def _records(self, stream: BinaryIO) -> Iterator[bytes]:
        return read_recordio(stream, joint=self._joint, max_record_bytes=self._max_record_bytes)


class TFRecordDataset(Dataset[bytes]):
    """Records of TFRecord data, of which every checksum is verified; Corrupt where one is wrong."""

    def _records(self, stream: BinaryIO) -> Iterator[bytes]:
        return read_tfrecord(stream)


class TextLineDataset(Dataset[str]):
    """Lines of text in UTF-8, without their ends.

    A Pipe has the objects one after another: where one does not end with a line, its last line goes on in the next.
    """

    def _records(self, stream: BinaryIO) -> Iterator[str]:
        for line in stream:
            yield line.removesuffix(b"\n").decode()


def next_epoch(channel: str, state_dir: AnyPath) -> int:
    """The epoch of a Pipe channel that nobody has begun to read, which counts as begun from now on."""
    state = Path(state_dir)
    state.mkdir(parents=True, exist_ok=True)
    with (state / f".{channel}-pipe_mode-lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file = state / f".{channel}-pipe_mode-state"
        epoch = int(file.read_text()) if file.exists() else 0
        file.write_text(str(epoch + 1))
    return epoch


def __getattr__(name: str) -> Any:
    """Make the dataset of PyTorch when it is first asked for, here, where pickle finds it in another process too."""
    if name != "TorchDataset":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    if name in globals():
        return globals()[name]
    from torch.utils.data import IterableDataset, get_worker_info

    class TorchDataset(IterableDataset[Any]):  # type: ignore[misc]  # mypy does not read torch
        """The records of a dataset, those of one worker where a DataLoader has several."""

        def __init__(self, dataset: Dataset[Any]) -> None:
            self.dataset = dataset

        def __iter__(self) -> Iterator[Any]:
            worker = get_worker_info()
            if worker is None:
                return iter(self.dataset)
            return self.dataset.part(worker.id, of=worker.num_workers)

    TorchDataset.__module__, TorchDataset.__qualname__ = __name__, "TorchDataset"
    return globals().setdefault(name, TorchDataset)
