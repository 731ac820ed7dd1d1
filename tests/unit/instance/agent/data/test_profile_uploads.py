"""Profiles and traces of a program get to S3, and nothing else does."""

import gzip
import json
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.instance.agent.samples import BUCKET, SPEC, make_bucket, open_context, read_object
from trainyard.formats.profiles.contract import PARTS_FOLDER
from trainyard.foundation.clock import boottime
from trainyard.instance.agent.data import profile_uploads
from trainyard.instance.agent.data.profile_uploads import ProfileUploads
from trainyard.instance.agent.layout import ProgramUser, create_layout
from trainyard.link.contract import CommandKind, FrameKind, InstanceSpec, ObjectsSpec, ProfilerSpec, SyncSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.mailbox import Mailbox
from trainyard.link.spool import SpoolWriter, read_frames
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.eventually import eventually

PREFIX = "output/mnist-7/profiler-output/"
TRACE = json.dumps({"schemaVersion": 1, "traceEvents": []}).encode()


class Scene:
    """An instance whose program writes files, and what the agent stores of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = InstanceFolder(root / "algo-1")
        self.folder.root.mkdir()
        profiler = ProfilerSpec(SyncSpec(f"s3://yard/{PREFIX}", "/opt/ml/output/profiler"))
        objects = ObjectsSpec(str(root / "objects"))
        spec: InstanceSpec = replace(SPEC, profiler=profiler, objects=objects)
        with closing(FilesystemObjects(root / "objects")) as store:
            make_bucket(store)
        create_layout(self.folder, spec, ProgramUser(None))
        self.spool = SpoolWriter(self.folder.spool)
        self.context = open_context(self.folder, spec, self.spool)
        self.uploads = ProfileUploads(self.context, profiler)

    def write(self, path: str, data: bytes = TRACE) -> None:
        file = self.folder.ml / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def stored(self) -> dict[str, bytes]:
        with closing(FilesystemObjects(self.root / "objects")) as store:
            page = store.list_objects(BUCKET, prefix="")
            return {each.key.removeprefix(PREFIX): read_object(store, each.key) for each in page.objects}

    def command(self, **payload: object) -> None:
        """Leave a command, and read it as the agent does."""
        number = Mailbox(self.folder.mailbox).put(CommandKind.PROFILE, payload).number

        def read() -> bool:
            self.context.commands.poll()
            return any(command.number == number for command in self.context.commands.take_profiling())

        eventually(read)

    def finish(self) -> list[str]:
        """Store what is left, and return the names of all that is stored."""
        self.uploads.finish(lambda: None)
        return sorted(self.stored())

    def notes(self) -> list[str]:
        frames = read_frames(self.folder.spool, 0).frames
        return [frame.payload["text"] for frame in frames if frame.kind is FrameKind.NOTE]

    def close(self) -> None:
        self.uploads.close()
        self.context.output.close()
        self.spool.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def test_profiles_are_stored_while_the_program_runs(scene: Scene) -> None:
    scene.uploads.poll(boottime())
    scene.write("output/profiler/framework/pevents/1.json", b"[]")
    scene.uploads.poll(boottime() + 10)
    eventually(lambda: scene.stored() == {"framework/pevents/1.json": b"[]"})


def test_what_is_not_complete_is_not_stored(scene: Scene) -> None:
    scene.write(f"output/profiler/{PARTS_FOLDER}/12/trace.json", b"torn")
    assert scene.finish() == []
    scene.write("output/profiler/framework/pevents/1.json", b"[]")
    assert scene.finish() == ["framework/pevents/1.json"]


def test_traces_are_found_by_their_names_or_their_content(scene: Scene) -> None:
    scene.write("output/data/runs/host_7.1.pt.trace.json")
    scene.write("model/traces/rank0_trace.json.gz", gzip.compress(TRACE))
    scene.write("output/tensorboard/plugins/profile/now/host.trace.json.gz", gzip.compress(TRACE))
    scene.write("output/data/trace.json", b'{"loss": [1, 2]}')
    scene.write("output/data/other.json")
    scene.write("output/data/trace.json.gz", b"\x1f\x8bnot really compressed")
    assert scene.finish() == [
        "framework/pytorch/user/algo-1/data/runs/host_7.1.pt.trace.json",
        "framework/pytorch/user/algo-1/model/traces/rank0_trace.json.gz",
        "framework/tensorflow/user/algo-1/tensorboard/plugins/profile/now/host.trace.json.gz",
    ]


def test_a_trace_that_a_program_writes_while_it_runs_is_stored_when_it_is_complete(scene: Scene) -> None:
    scene.uploads.poll(boottime())
    name = "framework/pytorch/user/algo-1/data/my_trace.json"
    scene.write("output/data/my_trace.json", TRACE[:3])
    scene.uploads.poll(boottime() + 3600)
    assert scene.stored() == {}
    scene.write("output/data/my_trace.json")
    scene.uploads.poll(boottime() + 7200)
    eventually(lambda: scene.stored() == {name: TRACE})


def test_links_of_the_program_are_not_followed(scene: Scene, tmp_path: Path) -> None:
    secret = tmp_path / "secret.pt.trace.json"
    secret.write_bytes(TRACE)
    (scene.folder.ml / "output/data/a.pt.trace.json").symlink_to(secret)
    (scene.folder.ml / "output/data/folder").symlink_to(tmp_path)
    os.mkfifo(scene.folder.ml / "output/data/b.pt.trace.json")
    (scene.folder.ml / "output/profiler").symlink_to(tmp_path)
    assert scene.finish() == []


def test_more_traces_than_can_be_stored_are_left_out_with_a_note(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_uploads, "_MAX_TRACES", 3)
    for number in range(6):
        scene.write(f"output/data/{number}.pt.trace.json")
    assert len(scene.finish()) == 3
    (note,) = scene.notes()
    assert note.startswith("The program wrote more than 3 traces")


def test_a_job_with_a_disabled_profiler_stores_no_profiles_or_traces(scene: Scene) -> None:
    scene.command(is_enabled=False)
    scene.write("output/profiler/framework/pevents/1.json", b"[]")
    scene.write("output/data/trace.json")
    scene.uploads.poll(boottime())
    scene.uploads.poll(boottime() + 100)
    assert scene.finish() == []
    scene.command(is_enabled=True)
    assert scene.finish() == ["framework/pevents/1.json", "framework/pytorch/user/algo-1/data/trace.json"]


def test_profiles_are_stored_where_a_command_says(scene: Scene) -> None:
    scene.command(uri="s3://yard/elsewhere")
    scene.write("output/profiler/framework/pevents/1.json", b"[]")
    assert scene.finish() == ["elsewhere/framework/pevents/1.json"]


def test_a_program_without_profiles_starts_nothing(scene: Scene) -> None:
    scene.write("output/data/result.csv", b"1")
    assert scene.finish() == []
    assert scene.uploads._all() == []
