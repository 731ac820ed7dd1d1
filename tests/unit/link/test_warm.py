import json
import os
from pathlib import Path

import pytest

from trainyard.foundation.home import process_start
from trainyard.link.warm import (
    WorkerFolder,
    dead_folders,
    dismiss_worker,
    dismiss_workers,
    hold_worker,
    is_worker_running,
    read_worker,
    sweep_dead_workers,
    warm_workers,
)


def make_worker(warm: Path, account: str, key: str, *, pid: int = 0, used: float = 1.0) -> WorkerFolder:
    """The folder of a worker that serves; this process plays it unless another is named."""
    folder = WorkerFolder(warm / account / key)
    folder.root.mkdir(parents=True)
    pid = pid or os.getpid()
    facts = {"pid": pid, "started": process_start(pid) or "gone", "python": "/usr/bin/python3"}
    folder.description.write_text(json.dumps(facts))
    os.utime(folder.description, (used, used))
    return folder


def test_workers_that_live_are_listed_the_last_used_first(tmp_path: Path) -> None:
    make_worker(tmp_path, "111", "a", used=1)
    make_worker(tmp_path, "222", "b", used=3)
    make_worker(tmp_path, "111", "c", used=2)
    make_worker(tmp_path, "111", "killed", pid=2**22 - 1)
    listed = warm_workers(tmp_path)
    assert [(worker.account, worker.folder.root.name) for worker in listed] == [
        ("222", "b"),
        ("111", "c"),
        ("111", "a"),
    ]
    assert [worker.pid for worker in listed] == [os.getpid()] * 3
    assert listed[0].memory_bytes > 0
    assert listed[0].last_used.timestamp() == 3


def test_where_nothing_was_ever_warm_nothing_is_listed_or_swept(tmp_path: Path) -> None:
    assert warm_workers(tmp_path / "absent") == []
    assert dead_folders(tmp_path / "absent") == []
    dismiss_workers(tmp_path / "absent")
    sweep_dead_workers(tmp_path / "absent")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', "null"])
def test_a_description_that_cannot_be_read_is_no_worker(tmp_path: Path, text: str) -> None:
    folder = make_worker(tmp_path, "111", "a")
    folder.description.write_text(text)
    assert read_worker(folder) is None


def test_a_folder_is_held_by_one_and_swept_when_by_none(tmp_path: Path) -> None:
    folder = make_worker(tmp_path, "111", "a")
    descriptor = hold_worker(folder)
    assert descriptor is not None
    assert is_worker_running(folder)
    assert hold_worker(folder) is None
    sweep_dead_workers(tmp_path)
    assert folder.description.exists()
    os.close(descriptor)
    assert not is_worker_running(folder)
    assert dead_folders(tmp_path) == [folder.root]
    sweep_dead_workers(tmp_path)
    assert not folder.root.exists()
    assert hold_worker(folder) is None


def test_a_worker_that_does_not_serve_yet_finds_that_it_was_dismissed(tmp_path: Path) -> None:
    folder, other = make_worker(tmp_path, "111", "a"), make_worker(tmp_path, "222", "b")
    descriptors = [hold_worker(each) for each in (folder, other)]
    dismiss_workers(tmp_path, account="111")
    assert (folder.leave.exists(), other.leave.exists()) == (True, False)
    for descriptor in descriptors:
        assert descriptor is not None
        os.close(descriptor)


def test_without_a_worker_none_is_dismissed(tmp_path: Path) -> None:
    folder = make_worker(tmp_path, "111", "a")
    dismiss_worker(folder)
    assert not folder.leave.exists()
