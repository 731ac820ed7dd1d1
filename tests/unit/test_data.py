"""Datasets for training scripts, over files and Pipe channels."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest

from trainyard.data import RecordIODataset, TextLineDataset, TFRecordDataset, next_epoch
from trainyard.formats.recordio import write_recordio
from trainyard.formats.tfrecord import write_tfrecord
from trainyard.foundation.errors import Corrupt, InvalidRequest

Write = Callable[[BinaryIO, bytes], None]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the channels."""
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
    data = tmp_path / "input" / "data"
    data.mkdir(parents=True)
    return data


def put(path: Path, records: Sequence[bytes], write: Write = write_recordio) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        for record in records:
            write(stream, record)
    return path


def feed(path: Path, records: Sequence[bytes], write: Write = write_recordio) -> "Future[Path]":
    """Create a FIFO and write to it as soon as it is read."""
    os.mkfifo(path)
    threads = ThreadPoolExecutor(1)
    feeding = threads.submit(put, path, records, write)
    threads.shutdown(wait=False)
    return feeding


def test_files_are_read_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    files = [put(tmp_path / "b", [b"1", b"2"]), put(tmp_path / "a", [b"3"])]
    dataset = RecordIODataset(files=files)
    assert list(dataset) == [b"1", b"2", b"3"]
    assert list(dataset) == [b"1", b"2", b"3"]


def test_a_file_channel_is_read_in_the_order_of_its_keys(job: Path) -> None:
    put(job / "train" / "b", [b"3"], write_tfrecord)
    put(job / "train" / "a" / "deep", [b"2"], write_tfrecord)
    put(job / "train" / "a-b", [b"1"], write_tfrecord)
    assert list(TFRecordDataset("train")) == [b"1", b"2", b"3"]


def test_each_iteration_over_a_pipe_is_the_next_epoch(job: Path) -> None:
    feeding = [feed(job / f"train_{epoch}", [b"epoch", str(epoch).encode()]) for epoch in range(3)]
    dataset = RecordIODataset("train")
    assert [list(dataset), list(dataset)] == [[b"epoch", b"0"], [b"epoch", b"1"]]
    # Another reader continues where the last one ended.
    assert list(RecordIODataset("train")) == [b"epoch", b"2"]
    assert all(each.result() for each in feeding)


def test_lines_have_no_ends_and_may_be_empty(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes("eins\n\nzwölf\r\nlast".encode())
    assert list(TextLineDataset(files=[path])) == ["eins", "", "zwölf\r", "last"]


def test_a_broken_checksum_ends_the_reading_after_the_good_records(tmp_path: Path) -> None:
    path = put(tmp_path / "records", [b"good", b"broken"], write_tfrecord)
    path.write_bytes(path.read_bytes().replace(b"broken", b"Broken"))
    reader = iter(TFRecordDataset(files=[path]))
    assert next(reader) == b"good"
    with pytest.raises(Corrupt, match=r"records cannot be read by TFRecordDataset: .*data of the TFRecord at byte 20"):
        next(reader)


def test_several_readers_share_files_but_not_a_pipe(job: Path, tmp_path: Path) -> None:
    files = [put(tmp_path / f"part-{number}", [str(number).encode()]) for number in range(5)]
    dataset = RecordIODataset(files=files)
    assert [list(dataset.part(number, of=2)) for number in range(2)] == [[b"0", b"2", b"4"], [b"1", b"3"]]
    feed(job / "train_0", [b"all"])
    assert list(RecordIODataset("train").part(1, of=2)) == []
    assert list(RecordIODataset("train").part(0, of=2)) == [b"all"]


def test_a_channel_that_is_not_there_is_said_so(job: Path) -> None:
    with pytest.raises(InvalidRequest, match=r'There is no channel "train" in .*; it has none\.'):
        list(RecordIODataset("train"))
    (job / "files").mkdir()
    os.mkfifo(job / "a_pipe_0")
    os.mkfifo(job / "a_pipe_1")
    with pytest.raises(InvalidRequest, match=r"; it has a_pipe, files\."):
        list(RecordIODataset("train"))


def test_a_dataset_needs_a_channel_or_files() -> None:
    with pytest.raises(InvalidRequest, match="either a channel or files"):
        RecordIODataset()
    with pytest.raises(InvalidRequest, match="either a channel or files"):
        TextLineDataset("train", files=["x"])


def test_the_epochs_of_channels_are_counted_apart(tmp_path: Path) -> None:
    assert [next_epoch(name, tmp_path / "state") for name in ("a", "a", "b", "a")] == [0, 1, 0, 2]
    # The file of the reader of AWS.
    assert (tmp_path / "state" / ".a-pipe_mode-state").read_text() == "3"


def test_importing_the_readers_imports_no_framework() -> None:
    script = (
        "import sys, trainyard.data; print([n for n in ('torch', 'tensorflow', 'numpy', 'awscrt') if n in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert printed.stdout == "[]\n"
