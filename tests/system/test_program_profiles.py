"""Profiles that a program takes of itself: a whole agent, a real sandbox, real trainings with torch."""

import gzip
import io
import json
import os
import pstats
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.system.test_agent import World, _world
from tests.unit.instance.agent.samples import BUCKET, read_object
from trainyard.formats.profiles.traces.reader import read_trace
from trainyard.link.contract import CommandKind, FrameKind, LaunchSpec, ProfilerSpec, SyncSpec
from trainyard.link.event_protocol import PROFILER_CONFIG
from trainyard.link.mailbox import Mailbox
from trainyard.testing.eventually import eventually

PREFIX = "profiles/mnist-7/profiler-output/"
OUTPUT = SyncSpec(f"s3://yard/{PREFIX.rstrip('/')}", "/opt/ml/output/profiler")
PARAMETERS = {
    "DetailedProfilingConfig": '{"StartStep": 3, "NumSteps": 2}',
    "PythonProfilingConfig": '{"StartStep": 6, "NumSteps": 1, "ProfilerName": "cprofile"}',
    "DataloaderProfilingConfig": '{"StartStep": 0, "NumSteps": 4, "MetricsRegex": ".*"}',
}

# Trains until a file says that it is enough, or for some steps.
SCRIPT = """
import os, pathlib, time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(400, 8)
loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=8)
steps, done = int(os.environ.get("STEPS", "0")), 0
print("training", flush=True)
while not steps or done < steps:
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        time.sleep(0.01)
        done += 1
"""


@pytest.fixture
def world() -> Iterator[World]:
    yield from _world(is_root=os.geteuid() == 0)


def profiler(parameters: Mapping[str, str] | None = None) -> ProfilerSpec:
    return ProfilerSpec(OUTPUT, parameters=parameters or {})


def stored(world: World) -> dict[str, bytes]:
    with world.store() as store:
        keys = [each.key for each in store.list_objects(BUCKET, prefix=PREFIX, limit=1000).objects]
        return {key.removeprefix(PREFIX): read_object(store, key) for key in keys}


def traces(world: World) -> list[str]:
    return [name for name in stored(world) if name.endswith(".trace.json.gz")]


def notes(world: World) -> list[str]:
    return [payload["text"] for payload in world.payloads(FrameKind.NOTE)]


def ask(world: World, **payload: Any) -> None:
    Mailbox(world.folder.mailbox).put(CommandKind.PROFILE, payload)


@pytest.mark.flow
def test_a_job_stores_the_profiles_that_its_configuration_asks_for(world: World, tmp_path: Path) -> None:
    environment = {"STEPS": "60", "OMP_NUM_THREADS": "1"}
    verdict = world.run(SCRIPT, profiler=profiler(PARAMETERS), environment=environment)
    assert verdict["outcome"] == "completed", verdict
    files = stored(world)
    (trace,) = traces(world)
    assert "/detailed_profiling/" in trace
    assert "/000000003/algo-1-worker_0." in trace
    assert read_trace(io.BytesIO(files[trace])).steps.numbers.tolist() == [3, 4]
    (stats,) = (name for name in files if name.endswith("/python_stats"))
    (tmp_path / "stats").write_bytes(files[stats])
    assert pstats.Stats(str(tmp_path / "stats")).total_calls > 0  # type: ignore[attr-defined]
    (timeline,) = (name for name in files if name.endswith("_pythontimeline.json"))
    assert {"Step:ModeKeys.TRAIN", "Forward"} <= {each["name"] for each in json.loads(files[timeline])}


def test_a_running_job_is_profiled_on_request_and_reconfigured(world: World) -> None:
    world.start(SCRIPT, profiler=profiler(), environment={"OMP_NUM_THREADS": "1"})
    world.wait_for_line("training")
    ask(world, steps=2)
    eventually(lambda: len(traces(world)) == 1, "the profile that was asked for")
    ask(world, parameters={"DetailedProfilingConfig": '{"StartTimeInSecSinceEpoch": "1", "Duration": "9999999999"}'})
    eventually(lambda: "9999999999" in (world.folder.ml / PROFILER_CONFIG).read_text(), "the new configuration")
    ask(world, parameters={})
    ask(world, steps=0)
    eventually(lambda: any("0 steps were asked for" in each for each in notes(world)), "the note")
    world.stop()
    assert world.verdict()["outcome"] == "stopped"
    assert all(len(read_trace(io.BytesIO(stored(world)[name])).steps) for name in traces(world))


def test_each_rank_has_profiles_of_its_own(world: World) -> None:
    launch = LaunchSpec("torchrun", {"algo-1": 2})
    environment = {"STEPS": "20", "OMP_NUM_THREADS": "1"}
    verdict = world.run(SCRIPT, profiler=profiler(PARAMETERS), environment=environment, launch=launch)
    assert verdict["outcome"] == "completed", verdict
    workers = sorted(name.rpartition("/")[2].partition(".")[0] for name in traces(world))
    assert workers == ["algo-1-worker_0", "algo-1-worker_1"]


def test_traces_that_the_program_writes_itself_are_stored_too(world: World) -> None:
    trace = json.dumps({"schemaVersion": 1, "traceEvents": []})
    program = f"""
import gzip, pathlib
trace = {trace!r}
def write(path, data):
    path = pathlib.Path("/opt/ml", path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
write("output/data/logs/host_1.123.pt.trace.json", trace.encode())
write("output/tensorboard/plugins/profile/2026/host.trace.json.gz", gzip.compress(trace.encode()))
write("model/my_trace.json.gz", gzip.compress(trace.encode()))
write("model/traces.json", b'{{"none": 1}}')
write("output/data/weights.bin", b"weights")
"""
    assert world.run(program, profiler=profiler())["outcome"] == "completed"
    files = stored(world)
    assert sorted(files) == [
        "framework/pytorch/user/algo-1/data/logs/host_1.123.pt.trace.json",
        "framework/pytorch/user/algo-1/model/my_trace.json.gz",
        "framework/tensorflow/user/algo-1/tensorboard/plugins/profile/2026/host.trace.json.gz",
    ]
    assert gzip.decompress(files["framework/pytorch/user/algo-1/model/my_trace.json.gz"]).decode() == trace
