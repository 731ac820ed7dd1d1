"""Datasets as IterableDatasets of PyTorch."""

import os
import pickle
import threading
from pathlib import Path

import pytest

from trainyard.data import RecordIODataset
from trainyard.formats.recordio import write_recordio

data = pytest.importorskip("torch.utils.data", reason="PyTorch is not installed (pip install trainyard[torch])")


def put(path: Path, *records: bytes) -> Path:
    with path.open("wb") as stream:
        for record in records:
            write_recordio(stream, record)
    return path


def test_a_dataset_is_an_iterable_dataset_of_pytorch(tmp_path: Path) -> None:
    dataset = RecordIODataset(files=[put(tmp_path / "a", b"1", b"2", b"3")]).torch()
    assert isinstance(dataset, data.IterableDataset)
    assert list(data.DataLoader(dataset, batch_size=2)) == [[b"1", b"2"], [b"3"]]
    assert list(pickle.loads(pickle.dumps(dataset))) == [b"1", b"2", b"3"]


def test_the_workers_of_a_loader_share_the_files(tmp_path: Path) -> None:
    files = [put(tmp_path / str(number), str(number).encode()) for number in range(5)]
    loader = data.DataLoader(RecordIODataset(files=files).torch(), batch_size=None, num_workers=2)
    assert sorted(loader) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_pipe_is_read_by_one_worker_an_epoch_for_each_iteration(tmp_path: Path) -> None:
    feeders = []
    for epoch in range(2):
        os.mkfifo(tmp_path / f"train_{epoch}")
        feeders.append(threading.Thread(target=put, args=(tmp_path / f"train_{epoch}", b"epoch", str(epoch).encode())))
        feeders[-1].start()
    dataset = RecordIODataset("train", data_dir=tmp_path, state_dir=tmp_path / "state").torch()
    loader = data.DataLoader(dataset, batch_size=None, num_workers=2)
    assert [list(loader), list(loader)] == [[b"epoch", b"0"], [b"epoch", b"1"]]
    for feeder in feeders:
        feeder.join()
