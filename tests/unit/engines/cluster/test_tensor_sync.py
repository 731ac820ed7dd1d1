"""The tensors of an instance, as another node gets them."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainyard.engines.cluster import tensor_sync
from trainyard.engines.cluster.tensor_sync import TENSORS, TensorCopy, TensorFiles
from trainyard.foundation.disk import Reserve
from trainyard.foundation.errors import InvalidRequest, Unavailable

SEGMENT = "steps/worker_1/0000000000001-000000000000.arrows"
MANIFEST = "worker_1.manifest.json"


class Nodes:
    """A folder of tensors on one node, and its copy on another."""

    def __init__(self, root: Path) -> None:
        self.ml = root / "ml"
        self.there = self.ml / "output" / "tensors"
        self.here = root / "here" / "tensors"
        self.files = TensorFiles(self.ml, "output/tensors")
        self.copy = TensorCopy(self.here, self.fetch)
        self.asked: list[str] = []
        self.before: Callable[[str], None] = lambda _: None

    def fetch(self, path: str, offset: int) -> bytes:
        self.asked.append(path)
        self.before(path)
        kind, _, wanted = path.partition("/")
        assert kind == TENSORS
        return self.files.read(wanted, offset) if wanted else self.files.list_changed(offset)

    def write(self, path: str, data: bytes) -> None:
        """As the hook does: segments grow, all else is renamed into its place."""
        place = self.there / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".arrows"):
            with place.open("ab") as file:
                file.write(data)
            return
        unfinished = place.with_name(place.name + ".tmp")
        unfinished.write_bytes(data)
        unfinished.replace(place)

    def bring(self) -> None:
        while not self.copy.sync(is_urgent=True):
            pass

    def copied(self) -> dict[str, bytes]:
        found = [path for path in self.here.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.here)): path.read_bytes() for path in found}


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


def values(step: int) -> str:
    return f"values/worker_1/{step:012}.safetensors"


def test_all_that_a_hook_writes_comes_as_it_is_written(nodes: Nodes) -> None:
    assert nodes.copy.sync()
    assert not nodes.here.exists()
    nodes.there.mkdir(parents=True)
    assert nodes.copy.sync(is_urgent=True)
    assert nodes.here.is_dir()

    written = {
        SEGMENT: b"one",
        values(0): b"raw",
        values(1): b"",
        MANIFEST: b"{}",
        "histograms/worker_1/1-0.arrows": b"bins",
    }
    for path, data in written.items():
        nodes.write(path, data)
    nodes.bring()
    assert nodes.copied() == written

    nodes.write(SEGMENT, b" and two")
    nodes.write(MANIFEST, b'{"last_step": 2}')
    nodes.write(values(0), b"repeated")
    nodes.write("ended.json", b"{}")
    nodes.bring()
    changed = {SEGMENT: b"one and two", MANIFEST: b'{"last_step": 2}', values(0): b"repeated", "ended.json": b"{}"}
    assert nodes.copied() == written | changed


def test_unfinished_and_foreign_files_are_not_copied(nodes: Nodes) -> None:
    nodes.write(MANIFEST, b"{}")
    for path in ("worker_2.manifest.json.tmp", "records/worker_1/record.json", "steps/worker_1/.arrows", "notes.txt"):
        (nodes.there / path).parent.mkdir(parents=True, exist_ok=True)
        (nodes.there / path).write_text("not for others")
    os.mkfifo(nodes.there / "pipe.manifest.json")
    nodes.bring()
    assert list(nodes.copied()) == [MANIFEST]


@pytest.mark.parametrize("path", ["spec.json", "0/../../spec.json", "0/values/../x.safetensors", "0/", "x/ended.json"])
def test_nothing_else_can_be_asked_for(nodes: Nodes, path: str) -> None:
    nodes.write(MANIFEST, b"{}")
    with pytest.raises(InvalidRequest):
        nodes.files.read(path, 0)


def test_links_lead_nowhere(nodes: Nodes, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    (secret / "worker_1").mkdir(parents=True)
    for name in ("ended.json", "worker_1/000000000001.safetensors"):
        (secret / name).write_text("secret")
    nodes.there.mkdir(parents=True)
    (nodes.there / "ended.json").symlink_to(secret / "ended.json")
    os.link(secret / "ended.json", nodes.there / MANIFEST)
    (nodes.there / "values").symlink_to(secret)
    (nodes.there / "steps").mkdir()
    (nodes.there / "steps" / "worker_1").symlink_to(secret / "worker_1")

    nodes.bring()

    assert nodes.copied() == {}
    for path in ("ended.json", MANIFEST, values(1)):
        assert nodes.files.read(f"0/{path}", 0) == b""
    nodes.there.rename(nodes.ml / "moved")
    nodes.there.symlink_to(secret)
    assert nodes.files.list_changed(0) == b"null"
    assert nodes.files.read("0/ended.json", 0) == b""


def test_a_manifest_is_never_ahead_of_the_data_nor_a_row_of_its_values(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each answer the worker goes on by a step: raw values, then a row, and then its manifest."""
    monkeypatch.setattr(tensor_sync, "_MAX_LISTED", 3)
    steps = 0

    def go_on(_: str) -> None:
        nonlocal steps
        if steps < 60:
            nodes.write(values(steps), b"raw")
            nodes.write(SEGMENT, b"r")
            nodes.write(MANIFEST, json.dumps(steps).encode())
            steps += 1
            time.sleep(0.005)  # the clock of files is coarse
        rows = len(nodes.copied().get(SEGMENT, b""))
        assert rows - 1 >= int(nodes.copied().get(MANIFEST, b"-1"))
        assert all((nodes.here / values(step)).exists() for step in range(rows))

    nodes.before = go_on
    nodes.bring()

    assert steps == 60
    assert nodes.copied() == {SEGMENT: b"r" * 60, MANIFEST: b"59"} | {values(step): b"raw" for step in range(60)}


def test_a_large_file_comes_in_parts_and_appears_whole_after_any_fault(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_sync, "PART_BYTES", 10)
    nodes.write(values(3), b"0123456789" * 5)
    nodes.write(SEGMENT, b"abcdefghij" * 5)
    calls = 0

    def fail_now_and_then(_: str) -> None:
        nonlocal calls
        calls += 1
        assert nodes.copied().get(values(3)) in (None, b"0123456789" * 5)
        if calls % 3 == 0:
            raise Unavailable("The node does not answer.")

    nodes.before = fail_now_and_then
    for _ in range(20):
        nodes.copy = TensorCopy(nodes.here, nodes.fetch)  # as one does whose process was killed
        try:
            nodes.bring()
            break
        except Unavailable:
            continue
    assert nodes.copied() == {values(3): b"0123456789" * 5, SEGMENT: b"abcdefghij" * 5}
    assert sum("values" in path for path in nodes.asked) < 12  # each part once, but for those that failed


def test_parts_of_two_files_are_never_mixed(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_sync, "PART_BYTES", 4)
    nodes.write(values(3), b"old old old")
    reads = 0

    def replace_after_the_first_part(path: str) -> None:
        nonlocal reads
        reads += "values" in path
        if reads == 2 and "values" in path:
            time.sleep(0.01)
            nodes.write(values(3), b"new new new")
        assert nodes.copied().get(values(3)) in (None, b"new new new")

    nodes.before = replace_after_the_first_part
    nodes.bring()
    nodes.bring()
    assert nodes.copied()[values(3)] == b"new new new"


def test_only_changed_files_are_listed_and_values_are_not_scanned_if_none_were_added(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(50):
        nodes.write(values(step), b"raw")
    time.sleep(0.02)  # the clock of files is coarse
    nodes.write(SEGMENT, b"row")
    newest = max(path.stat().st_ctime_ns for path in nodes.there.rglob("*"))
    read: list[str] = []
    monkeypatch.setattr(os, "scandir", _noting(read))
    told = json.loads(nodes.files.list_changed(newest))
    assert [path for path, _, _ in told["files"]] == [SEGMENT]
    assert len(read) == 2  # the folder itself and that of the segments


def _noting(read: list[str], scandir: Callable[[int], object] = os.scandir) -> Callable[[int], object]:
    def noted(folder: int) -> object:
        read.append(str(folder))
        return scandir(folder)

    return noted


def test_the_slower_the_list_the_less_often_it_is_requested(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes.there.mkdir(parents=True)
    now = 100.0

    def take_long(_: str) -> None:
        nonlocal now
        now += 0.3

    clock = SimpleNamespace(monotonic=lambda: now, time_ns=time.time_ns)
    monkeypatch.setattr(tensor_sync, "time", clock)
    nodes.before = take_long
    nodes.copy.sync()
    now += 2.9
    nodes.copy.sync()
    assert len(nodes.asked) == 1
    now += 0.2
    nodes.copy.sync()
    assert len(nodes.asked) == 2
    nodes.copy.sync(is_urgent=True)
    assert len(nodes.asked) == 3


def test_a_clock_that_is_set_back_hides_nothing(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes.write(SEGMENT, b"row")
    nodes.bring()
    monkeypatch.setattr(nodes.copy, "_newest_ctime", time.time_ns() + 3600 * 10**9)
    nodes.write(SEGMENT, b" and row")
    with pytest.raises(Unavailable, match="clock"):
        nodes.bring()
    nodes.bring()
    assert nodes.copied() == {SEGMENT: b"row and row"}


def test_the_user_of_the_job_can_read_it_where_nobody_gets_by(nodes: Nodes) -> None:
    before = os.umask(0o077)
    try:
        for path in (SEGMENT, values(0), MANIFEST):
            nodes.write(path, b"data")
        nodes.bring()
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in (nodes.here, *nodes.here.rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o755}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o644}
    assert nodes.here.parent.stat().st_mode & 0o777 == 0o700


def test_holes_of_a_file_take_no_space_on_the_other_node(nodes: Nodes) -> None:
    nodes.write(values(1), b"begin")
    with (nodes.there / values(1)).open("r+b") as file:
        file.truncate(20 << 20)
    while not nodes.copy.sync(is_urgent=True):
        pass
    brought = (nodes.here / values(1)).stat()
    assert (brought.st_size, brought.st_blocks * 512 < 10 << 20) == (20 << 20, True)
    assert (nodes.here / values(1)).read_bytes() == b"begin".ljust(20 << 20, b"\0")


def test_files_without_room_on_the_disk_stay_where_they_are_and_nobody_waits_for_them(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.write(values(1), b"small")
    while not nodes.copy.sync(is_urgent=True):
        pass
    monkeypatch.setattr(tensor_sync, "reserve_of", lambda _: Reserve(1000, 0, 1500, 0))
    nodes.write(values(2), b"x" * 501)
    while not nodes.copy.sync(is_urgent=True):
        pass
    assert (nodes.here / values(1)).exists()
    assert not (nodes.here / values(2)).exists()
