import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.instance.agent.samples import SPEC, open_context
from trainyard.formats.profiles.step_times import HEADER, TRAIN, StepRow, encode_row
from trainyard.instance.agent.watch.step_times import StepTimesCopy
from trainyard.link.folders import InstanceFolder
from trainyard.link.spool import SpoolWriter

ROW = encode_row(StepRow(0, 1, TRAIN, 0, 1000, [0] * 8))


class Instance:
    """An instance whose program writes step times into `written`, and the copies of these."""

    def __init__(self, root: Path) -> None:
        self.folder = InstanceFolder(root / "algo-1")
        self.written = self.folder.ml / ".trainyard" / "steps"
        self.written.mkdir(parents=True)
        self._spool = SpoolWriter(self.folder.spool)
        context = open_context(self.folder, SPEC, self._spool)
        self._output = context.output
        self.copy = StepTimesCopy(context)

    def copies(self) -> dict[str, bytes]:
        self.copy.copy()
        folder = self.folder.steps
        return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}

    def close(self) -> None:
        self._output.close()
        self._spool.close()


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path)
    yield made
    made.close()


def test_what_is_appended_is_appended_to_the_copy(instance: Instance) -> None:
    file = instance.written / "worker_0.steps"
    file.write_bytes(HEADER + ROW)
    assert instance.copies() == {"worker_0.steps": HEADER + ROW}
    with file.open("ab") as writer:
        writer.write(ROW * 20_000)
    assert instance.copies() == {"worker_0.steps": HEADER + ROW * 20_001}


def test_the_facts_are_replaced_when_they_change(instance: Instance) -> None:
    file = instance.written / "worker_1.json"
    file.write_text('{"device": "cpu"}')
    assert instance.copies() == {"worker_1.json": b'{"device": "cpu"}'}
    file.with_suffix(".part").write_text('{"device": "cuda"}')
    file.with_suffix(".part").replace(file)
    assert instance.copies() == {"worker_1.json": b'{"device": "cuda"}'}


def test_copies_are_made_every_two_seconds(instance: Instance) -> None:
    file = instance.written / "worker_0.steps"
    file.write_bytes(HEADER)
    instance.copy.poll(100.0)
    file.write_bytes(HEADER + ROW)
    instance.copy.poll(101.0)
    assert (instance.folder.steps / "worker_0.steps").read_bytes() == HEADER
    instance.copy.poll(102.0)
    assert (instance.folder.steps / "worker_0.steps").read_bytes() == HEADER + ROW


def test_links_pipes_folders_and_foreign_names_are_not_copied(instance: Instance, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the yard")
    (instance.written / "worker_0.steps").symlink_to(secret)
    os.link(secret, instance.written / "notes.json")
    os.mkfifo(instance.written / "worker_1.steps")
    (instance.written / "worker_2.json").mkdir()
    assert instance.copies() == {}


def test_a_folder_that_is_a_link_is_not_followed(instance: Instance, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "worker_0.steps").write_bytes(HEADER)
    instance.written.rmdir()
    instance.written.symlink_to(elsewhere)
    assert instance.copies() == {}


def test_no_file_grows_beyond_its_limit(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard.instance.agent.watch.step_times.MAX_BYTES", 1000)
    monkeypatch.setattr("trainyard.instance.agent.watch.step_times.MAX_FACTS_BYTES", 1000)
    (instance.written / "worker_0.steps").write_bytes(bytes(5000))
    (instance.written / "worker_0.json").write_bytes(bytes(5000))
    assert instance.copies() == {"worker_0.steps": bytes(1000)}


def test_only_some_of_very_many_files_are_copied(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard.instance.agent.watch.step_times._MAX_FILES", 4)
    for number in range(100):
        (instance.written / f"worker_{number}.steps").write_bytes(HEADER)
    assert len(instance.copies()) == 8
