"""Datasets for training scripts: the records of a channel or of files, one after another.

    from trainyard.data import RecordIODataset

    for epoch in range(3):
        for record in RecordIODataset("train"):
            ...

For a Pipe channel, each iteration reads the next epoch. The number of the epoch is stored in /opt/ml/pipe_state, where
other readers of Pipe channels store it too, so that processes and readers can take turns. For a File or FastFile
channel, each iteration reads all files in the order of their paths. No framework is needed. With PyTorch,
`RecordIODataset("train").torch()` is an IterableDataset for a DataLoader: its workers share the files of a File
channel, but only the first worker reads a Pipe, which can have one reader.
"""

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
    """The records of a channel or of files.

    Args:
        channel: Name of a channel.
        files: Instead of a channel: paths of files, read in this order.
        data_dir: The folder of the channels. Default: `/opt/ml/input/data`.
        state_dir: The folder with the next epoch of each Pipe channel. Default: `/opt/ml/pipe_state`.

    Raises:
        InvalidRequest: Both a channel and files are given, or neither.
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
            raise InvalidRequest("A dataset reads either a channel or files; pass one of them.")
        root = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
        self._data = Path(data_dir) if data_dir is not None else root / "input" / "data"
        self._state = Path(state_dir) if state_dir is not None else root / "pipe_state"

    def __iter__(self) -> Iterator[T_co]:
        return self.part(0, of=1)

    def part(self, number: int, *, of: int) -> Iterator[T_co]:
        """Yield the records for one of several readers, which share the files. The first reader gets all of a Pipe.

        Args:
            number: Number of the reader, from 0.
            of: How many readers there are.
        """
        for path in self._paths(number, of):
            with path.open("rb", buffering=_BUFFER_BYTES) as stream:
                try:
                    yield from self._records(stream)
                except Corrupt as error:
                    raise Corrupt(f"{path} cannot be read by {type(self).__name__}: {error.message}") from error

    def torch(self) -> "IterableDataset[T_co]":
        """Return the dataset as an IterableDataset of PyTorch. This imports torch."""
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
            raise InvalidRequest(f'There is no channel "{self._channel}" in {self._data}; it has {there}.')
        return [self._data / f"{self._channel}_{next_epoch(self._channel, self._state)}"] if number == 0 else []

    def _channels(self) -> list[str]:
        """Return the existing channels. A Pipe channel has a FIFO for each of its next epochs."""
        if not self._data.is_dir():
            return []
        return sorted({path.name.rpartition("_")[0] if path.is_fifo() else path.name for path in self._data.iterdir()})


class RecordIODataset(Dataset[bytes]):
    """The records of RecordIO data.

    Args:
        channel: Name of a channel.
        files: Instead of a channel: paths of files, read in this order.
        data_dir: The folder of the channels. Default: `/opt/ml/input/data`.
        state_dir: The folder with the next epoch of each Pipe channel. Default: `/opt/ml/pipe_state`.
        joint: Bytes to put between the parts of a record that was split.
        max_record_bytes: The largest record that is read. A larger one raises Corrupt.
    """

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
    """The records of TFRecord data. Every checksum is verified; a wrong one raises Corrupt."""

    def _records(self, stream: BinaryIO) -> Iterator[bytes]:
        return read_tfrecord(stream)


class TextLineDataset(Dataset[str]):
    """The lines of UTF-8 text, without line ends.

    A Pipe joins the objects. If an object does not end with a newline, its last line continues in the next object.
    """

    def _records(self, stream: BinaryIO) -> Iterator[str]:
        for line in stream:
            yield line.removesuffix(b"\n").decode()


def next_epoch(channel: str, state_dir: AnyPath) -> int:
    """Return the next epoch of a Pipe channel that nobody reads yet, and mark it as being read.

    Args:
        channel: Name of the channel.
        state_dir: The folder with the state of the channels.
    """
    # Imported here: Windows lacks it, and has no Pipe channels.
    import fcntl

    state = Path(state_dir)
    state.mkdir(parents=True, exist_ok=True)
    with (state / f".{channel}-pipe_mode-lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file = state / f".{channel}-pipe_mode-state"
        epoch = int(file.read_text()) if file.exists() else 0
        file.write_text(str(epoch + 1))
    return epoch


def __getattr__(name: str) -> Any:
    """Create the PyTorch dataset class at the first use, in this module, where pickle finds it in other processes."""
    if name != "TorchDataset":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    if name in globals():
        return globals()[name]
    from torch.utils.data import IterableDataset, get_worker_info

    class TorchDataset(IterableDataset[Any]):  # type: ignore[misc]  # mypy does not read torch
        """The records of a dataset; with several DataLoader workers, those of one worker."""

        def __init__(self, dataset: Dataset[Any]) -> None:
            self.dataset = dataset

        def __iter__(self) -> Iterator[Any]:
            worker = get_worker_info()
            if worker is None:
                return iter(self.dataset)
            return self.dataset.part(worker.id, of=worker.num_workers)

    TorchDataset.__module__, TorchDataset.__qualname__ = __name__, "TorchDataset"
    return globals().setdefault(name, TorchDataset)
