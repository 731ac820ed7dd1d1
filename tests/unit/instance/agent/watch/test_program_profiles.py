"""The agent tells the hook in the program what to profile, and reports what the hook says."""

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.instance.agent.samples import SPEC, open_context
from trainyard.instance.agent.layout import ProgramUser, create_layout
from trainyard.instance.agent.watch.program_profiles import ProgramProfiles
from trainyard.link.contract import FrameKind, InstanceSpec, ProfilerSpec, SyncSpec
from trainyard.link.event_protocol import (
    PROFILE_WANTED,
    PROFILER_CONFIG,
    SOCKET,
    AgentEvent,
    AgentEventKind,
    encode_event,
)
from trainyard.link.folders import InstanceFolder
from trainyard.link.spool import SpoolWriter, read_frames

WINDOW = {"DetailedProfilingConfig": '{"StartStep": 5}'}


class Scene:
    """The folder of an instance, and what the agent does in it."""

    def __init__(self, root: Path) -> None:
        self.folder = InstanceFolder(root / "algo-1")
        self.folder.root.mkdir()
        output = SyncSpec("s3://yard/output/mnist-7/profiler-output", "/opt/ml/output/profiler")
        profiler = ProfilerSpec(output, parameters=WINDOW)
        spec: InstanceSpec = replace(SPEC, profiler=profiler)
        create_layout(self.folder, spec, ProgramUser(None))
        self.spool = SpoolWriter(self.folder.spool)
        self.context = open_context(self.folder, spec, self.spool)
        self.profiles = ProgramProfiles(self.context, profiler)

    def config(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder.ml / PROFILER_CONFIG).read_text())
        return found

    def request(self) -> dict[str, Any] | None:
        file = self.folder.ml / PROFILE_WANTED
        return json.loads(file.read_text()) if file.exists() else None

    def notes(self) -> list[str]:
        frames = read_frames(self.folder.spool, 0).frames
        return [frame.payload["text"] for frame in frames if frame.kind is FrameKind.NOTE]

    def send(self, *events: bytes) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.folder.ml / SOCKET))
            connection.sendall(b"".join(events))

    def close(self) -> None:
        self.profiles.stop()
        self.context.output.close()
        self.spool.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def note(text: str) -> bytes:
    return encode_event(AgentEvent(AgentEventKind.NOTE, {"text": text}))


def test_changed_parameters_replace_the_configuration(scene: Scene) -> None:
    assert scene.config()["ProfilingParameters"] == {**WINDOW, "LocalPath": "/opt/ml/output/profiler"}
    scene.profiles.change({"parameters": {"PythonProfilingConfig": "{}", "LocalPath": "/elsewhere"}})
    expected = {"PythonProfilingConfig": "{}", "LocalPath": "/opt/ml/output/profiler"}
    assert scene.config() == {"DisableProfiler": False, "ProfilingParameters": expected}
    scene.profiles.change({"is_enabled": False})
    assert scene.config() == {"DisableProfiler": True, "ProfilingParameters": expected}


def test_what_does_not_change_leaves_the_file_alone(scene: Scene) -> None:
    before = (scene.folder.ml / PROFILER_CONFIG).stat().st_ino
    scene.profiles.change({"parameters": WINDOW, "is_enabled": True, "interval_ms": 100})
    assert (scene.folder.ml / PROFILER_CONFIG).stat().st_ino == before


def test_requests_are_counted(scene: Scene) -> None:
    scene.profiles.start()
    assert scene.request() is None
    for steps in (5, 2):
        scene.profiles.change({"steps": steps})
    assert scene.request() == {"number": 2, "steps": 2}


def test_a_request_that_comes_before_the_program_waits_for_it(scene: Scene) -> None:
    scene.profiles.change({"steps": 3})
    assert scene.request() is None
    scene.profiles.start()
    assert scene.request() == {"number": 1, "steps": 3}


def test_the_hook_has_its_notes_reported_once(scene: Scene) -> None:
    scene.profiles.start()
    scene.send(note("cut"), note("cut"), b"garbage\n", note("x" * 5000))
    scene.profiles.poll()
    scene.send(note("late"))
    scene.profiles.stop()
    assert scene.notes() == ["cut", "x" * 1024, "late"]


def test_a_program_cannot_flood_its_job_with_notes(scene: Scene) -> None:
    scene.profiles.start()
    scene.send(*(note(str(number)) for number in range(100)))
    scene.profiles.stop()
    assert len(scene.notes()) == 20


def test_a_folder_that_the_program_replaced_by_a_link_is_not_followed(scene: Scene, tmp_path: Path) -> None:
    scene.profiles.start()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for folder in ((scene.folder.ml / PROFILER_CONFIG).parent, (scene.folder.ml / PROFILE_WANTED).parent):
        folder.rename(folder.with_name("moved"))
        folder.symlink_to(elsewhere)
    scene.profiles.change({"parameters": {}, "steps": 5})
    assert list(elsewhere.iterdir()) == []
    assert scene.notes()[0].startswith("The program could not be told what to profile")
