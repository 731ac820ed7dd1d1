"""Tables are kept by what a trace contains, and a cache is never believed."""

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.recorded_traces import complete, document, kernel, record_training, step
from trainyard.formats.profiles.traces import cache
from trainyard.formats.profiles.traces.cache import TraceCache, trace_key
from trainyard.formats.profiles.traces.contract import Trace


def read(folder: Path, path: Path) -> Trace:
    with path.open("rb") as file:
        return TraceCache(folder).read(file)


def assert_equal(one: Any, other: Any) -> None:
    for each in fields(one):
        left, right = getattr(one, each.name), getattr(other, each.name)
        if isinstance(left, np.ndarray):
            np.testing.assert_array_equal(left, right)
            assert left.dtype == right.dtype
        elif each.name in ("events", "launches", "memory", "collectives", "steps"):
            assert_equal(left, right)
        else:
            assert left == right, each.name


def test_a_kept_trace_is_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    record_training(path, steps=2)
    first = read(tmp_path / "cache", path)
    monkeypatch.setattr(cache, "read_trace", None)
    assert_equal(read(tmp_path / "cache", path), first)
    assert len(first.memory) > 0
    assert first.inputs


def test_facts_and_notes_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    facts = {"deviceProperties": [{"id": 0, "name": "H200"}], "distributedInfo": {"backend": "nccl", "rank": 1}}
    path.write_bytes(document([kernel("k", 1, 2, 3), step(4, 0, 9), complete("x", "y", 1e300, 0)], **facts))
    first, second = read(tmp_path / "cache", path), read(tmp_path / "cache", path)
    assert_equal(first, second)
    assert second.notes
    assert second.gpus[0].name == "H200"


def test_another_content_is_parsed_anew(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(document([step(1, 0, 9)]))
    assert read(tmp_path / "cache", path).steps.numbers.tolist() == [1]
    status = path.stat()
    path.write_bytes(document([step(2, 0, 9)]))
    # As large, and as old.
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert read(tmp_path / "cache", path).steps.numbers.tolist() == [2]
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_kept_file_that_was_changed_anywhere_is_not_believed(tmp_path: Path) -> None:
    path, folder = tmp_path / "trace.json", tmp_path / "cache"
    path.write_bytes(document([step(1, 0, 9), kernel("k", 1, 2, 3)]))
    with path.open("rb") as file:
        key = trace_key(file)
    first = read(folder, path)
    (kept,) = folder.iterdir()
    whole = kept.read_bytes()
    for place in range(0, len(whole), 7):
        kept.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        assert TraceCache(folder).load(key) is None
        kept.write_bytes(whole[:place])
        assert TraceCache(folder).load(key) is None
    kept.write_bytes(whole + b"more")
    assert_equal(read(folder, path), first)
    assert kept.read_bytes() == whole


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(document([step(1, 0, 9)]))
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert read(blocked / "cache", path).steps.numbers.tolist() == [1]
