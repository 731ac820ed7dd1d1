"""Pipe channels as TensorFlow datasets, under the names of AWS's package."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import tensorflow as tf

from trainyard.data import Dataset, RecordIODataset, TFRecordDataset


class PipeModeDatasetException(Exception):
    """The channel does not exist, or is not in Pipe mode."""


class PipeModeDataset(tf.data.Dataset):  # type: ignore[misc]  # TensorFlow has no types
    """The records of a Pipe channel, as scalar byte strings. Each iterator reads the next epoch.

    `record_format` is RecordIO, TFRecord or TextLine. `benchmark` has no effect.
    """

    def __init__(
        self,
        channel: str,
        record_format: str = "RecordIO",
        state_dir: str = "/opt/ml/pipe_state",
        pipe_dir: str = "/opt/ml/input/data",
        config_dir: str = "/opt/ml/input/config",
        benchmark: bool = False,  # noqa: ARG002
    ) -> None:
        _require_pipe(channel, config_dir)
        if record_format not in _FORMATS:
            raise PipeModeDatasetException(f"{record_format} is not a record format; use one of {', '.join(_FORMATS)}.")
        records = _FORMATS[record_format](channel, data_dir=pipe_dir, state_dir=state_dir)
        self._records = tf.data.Dataset.from_generator(
            lambda: iter(records), output_signature=tf.TensorSpec((), tf.string)
        )
        super().__init__(self._records._variant_tensor)

    @property
    def element_spec(self) -> Any:
        return self._records.element_spec

    def _inputs(self) -> list[Any]:
        return [self._records]


class _LineDataset(Dataset[bytes]):
    """Lines as bytes."""

    def _records(self, stream: BinaryIO) -> Iterator[bytes]:
        return (line.removesuffix(b"\n") for line in stream)


_FORMATS: dict[str, type[Dataset[bytes]]] = {
    "RecordIO": RecordIODataset,
    "TFRecord": TFRecordDataset,
    "TextLine": _LineDataset,
}


def _require_pipe(channel: str, config_dir: str) -> None:
    channels = json.loads((Path(config_dir) / "inputdataconfig.json").read_text())
    if channel not in channels:
        raise PipeModeDatasetException(f"The job has no channel {channel}; it has {', '.join(channels) or 'none'}.")
    mode = channels[channel].get("TrainingInputMode")
    if mode != "Pipe":
        raise PipeModeDatasetException(f"The input mode of the channel {channel} is {mode}, not Pipe.")
