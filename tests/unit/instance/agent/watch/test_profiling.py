"""The agent samples its instance while the program runs, as its spec and the commands say."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.instance.agent.samples import BUCKET, SPEC, open_context
from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.formats.profiles.hardware_reader import HardwareTable, read_hardware
from trainyard.formats.profiles.hardware_segments import hardware_segments
from trainyard.foundation.clock import boottime, utc_now
from trainyard.foundation.locations import Location
from trainyard.instance.agent.watch.profiling import Profiling
from trainyard.link.contract import CommandKind, InstanceSpec, ObjectsSpec, ProfilerSpec, SyncSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.mailbox import Mailbox
from trainyard.link.spool import SpoolWriter
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.eventually import eventually

M = HardwareMetric


class Scene:
    """One instance with a real program, sampled by a real agent's parts."""

    def __init__(self, root: Path, profiler: ProfilerSpec | None) -> None:
        self.root = root
        self.folder = InstanceFolder(root / "algo-1")
        self.folder.root.mkdir()
        self.store = FilesystemObjects(root / "objects")
        self.store.create_bucket(BUCKET, region="us-west-2", now=utc_now())
        self.spool = SpoolWriter(self.folder.spool)
        spec: InstanceSpec = replace(SPEC, profiler=profiler, objects=ObjectsSpec(str(root / "objects")))
        self.context = open_context(self.folder, spec, self.spool)
        self.profiling = Profiling(self.context)
        self.program = subprocess.Popen([sys.executable, "-c", "while True: pass"])

    def start(self) -> None:
        self.profiling.start(self.program.pid)

    def command(self, **payload: Any) -> None:
        number = Mailbox(self.folder.mailbox).put(CommandKind.PROFILE, payload).number
        eventually(lambda: self.poll() >= number)

    def poll(self) -> int:
        """Do what the supervisor does, and return the number of the last command that was read."""
        self.context.commands.poll()
        self.profiling.poll(boottime())
        return self.context.commands._last

    @property
    def table(self) -> HardwareTable:
        return read_hardware(self.folder.hardware)

    def exported(self) -> list[dict[str, Any]]:
        lines: list[bytes] = []
        for each in self.store.list_objects(BUCKET, prefix="").objects:
            with self.store.open(Location(BUCKET, each.key)) as reader:
                lines += reader.read(0, each.size).splitlines()
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        self.profiling.stop()
        self.program.kill()
        self.program.wait()
        self.context.output.close()
        self.spool.close()
        self.store.close()


def profiler(**members: Any) -> ProfilerSpec:
    output = SyncSpec("s3://yard/output/mnist-7/profiler-output", "/opt/ml/output/profiler")
    return ProfilerSpec(output, **{"interval_ms": 100, **members})


@pytest.fixture
def scenes(tmp_path: Path) -> Iterator[Any]:
    opened: list[Scene] = []

    def make(given: ProfilerSpec | None) -> Scene:
        opened.append(Scene(tmp_path, given))
        return opened[-1]

    yield make
    for scene in opened:
        scene.close()


def test_the_hardware_is_sampled_while_the_program_runs(scenes: Any) -> None:
    scene = scenes(profiler())
    scene.start()
    eventually(lambda: len(scene.table) >= 3)
    scene.profiling.stop()

    table = scene.table

    used = {each.metric: values for each, values in table.series.items() if not each.device}
    assert used[M.JOB_PROCESSES].tolist() == [1.0] * len(table)
    assert used[M.JOB_CPU_PERCENT].max() > 0
    assert used[M.JOB_MEMORY_BYTES][-1] > 1_000_000
    assert len(scene.table) == len(table)


def test_without_a_profiler_nothing_is_sampled(scenes: Any) -> None:
    scene = scenes(None)
    scene.start()
    scene.profiling.stop()
    assert not scene.folder.hardware.exists()


def test_a_program_that_ends_at_once_leaves_nothing(scenes: Any) -> None:
    scene = scenes(profiler())
    scene.start()
    scene.profiling.stop()
    assert len(scene.table) == 0


def test_commands_change_the_interval_and_the_export(scenes: Any) -> None:
    scene = scenes(profiler(interval_ms=3_600_000))
    scene.command(is_exported=True)
    scene.start()
    scene.command(interval_ms=100)
    eventually(lambda: len(scene.table) >= 3)
    scene.profiling.stop()
    exported = scene.exported()
    assert {"CPUUtilization", "I/OWaitPercentage"} <= {line["Dimension"] for line in exported}
    assert {line["NodeId"] for line in exported} == {"algo-1"}


def test_commands_switch_the_profiler_off_and_on(scenes: Any) -> None:
    scene = scenes(profiler(is_exported=True))
    scene.start()
    eventually(lambda: len(scene.table) >= 3)
    scene.command(is_enabled=False)
    # Samples are stored when the sampling ends, after everything else of it.
    eventually(scene.exported)
    count = len(scene.table)
    scene.command(interval_ms=200)
    assert len(scene.table) == count
    scene.command(is_enabled=True)
    eventually(lambda: scene.poll() and len(scene.table) >= count + 3)
    headers = [segment.header for segment in hardware_segments(scene.folder.hardware)]
    assert [header.interval_us for header in headers if header is not None] == [100_000, 200_000]


def test_a_disabled_profiler_samples_nothing_until_a_command_enables_it(scenes: Any) -> None:
    scene = scenes(profiler(is_enabled=False))
    scene.start()
    scene.command(interval_ms=100)
    assert not scene.folder.hardware.exists()
    scene.command(is_enabled=True)
    eventually(lambda: len(scene.table) >= 2)


def test_a_command_says_where_samples_are_stored(scenes: Any) -> None:
    scene = scenes(profiler())
    scene.command(is_exported=True, uri="s3://yard/elsewhere/mnist-7/profiler-output")
    scene.start()
    eventually(lambda: len(scene.table) >= 2)
    scene.profiling.stop()
    keys = [each.key for each in scene.store.list_objects(BUCKET, prefix="").objects]
    assert keys
    assert all(key.startswith("elsewhere/mnist-7/profiler-output/system/incremental/") for key in keys)


def test_a_command_without_sense_changes_nothing(scenes: Any) -> None:
    scene = scenes(profiler())
    scene.start()
    scene.command(interval_ms="often", is_exported=1, steps=5)
    eventually(lambda: len(scene.table) >= 2)
    scene.profiling.stop()
    assert scene.exported() == []


def test_no_file_of_a_program_that_has_ended_stays_open(scenes: Any) -> None:
    scene = scenes(profiler())
    before = set(Path("/proc/self/fd").iterdir())
    scene.start()
    eventually(lambda: len(scene.table) >= 1)
    scene.profiling.stop()
    assert len(set(Path("/proc/self/fd").iterdir()) - before) == 0
