"""Profiles from the folders of instances."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries, StepPhase
from trainyard.formats.profiles.hardware_writer import HardwareWriter
from trainyard.formats.profiles.step_times import EVAL, HEADER, TRAIN, StepRow, encode_row
from trainyard.insight.profiling import loading
from trainyard.insight.profiling.contract import HotLine, InstanceFacts, LoaderFacts, MemoryHolder, Synchronization
from trainyard.insight.profiling.loading import InstanceSource, load_profile

START = 1_700_000_000_000_000
SECOND = 1_000_000
CPU = HardwareSeries(HardwareMetric.CPU_PERCENT, "total")
MEMORY = HardwareSeries(HardwareMetric.MEMORY_BYTES)


def write_steps(folder: Path, name: str, *, at_s: float, count: int, facts: Any = None, mode: str = TRAIN) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    began = START + round(at_s * SECOND)
    rows = [StepRow(n, 1, mode, began + n * SECOND, began + (n + 1) * SECOND, [10**9, *[0] * 7]) for n in range(count)]
    (folder / f"{name}.steps").write_bytes(HEADER + b"".join(map(encode_row, rows)))
    if facts is not None:
        (folder / f"{name}.json").write_text(json.dumps(facts))


def write_hardware(folder: Path, at_s: float, values: list[float], series: HardwareSeries = CPU) -> None:
    writer = HardwareWriter(folder)
    writer.begin([series], SECOND)
    for second, value in enumerate(values):
        writer.append(START + round((at_s + second) * SECOND), [value])
    writer.close()


def source(root: Path, host: str = "algo-1", facts: InstanceFacts | None = None) -> InstanceSource:
    return InstanceSource(host, root / "hardware", root / "steps", facts or InstanceFacts())


def test_a_profile_has_the_hardware_the_steps_and_the_facts(tmp_path: Path) -> None:
    write_steps(tmp_path / "steps", "worker_0", at_s=0, count=3, facts={"device": "cpu", "parameters": 10})
    write_hardware(tmp_path / "hardware", 0, [10, 20])
    facts = InstanceFacts("ml.m5.large", cores=2.0)
    profile = load_profile("mnist", [source(tmp_path, facts=facts)], started_us=START, ended_us=None)
    assert (profile.job, profile.started_us, profile.ended_us, profile.notes) == ("mnist", START, None, ())
    assert profile.instances == {"algo-1": facts}
    assert profile.hardware["algo-1"].of(HardwareMetric.CPU_PERCENT)["total"].tolist() == [10, 20]
    (rank,) = profile.ranks
    assert (rank.name, rank.host, rank.rank) == ("worker_0", "algo-1", 0)
    assert rank.steps.durations_s.tolist() == [1, 1, 1]
    assert rank.steps.phase_s(StepPhase.DATA_WAIT).tolist() == [1, 1, 1]
    assert (rank.program.device, rank.program.parameters, rank.program.precision) == ("cpu", 10, "")


def test_attempts_of_a_host_follow_each_other(tmp_path: Path) -> None:
    write_steps(tmp_path / "1/steps", "worker_0", at_s=0, count=3, facts={"device": "cpu"})
    write_hardware(tmp_path / "1/hardware", 0, [10, 20])
    write_steps(tmp_path / "2/steps", "worker_0", at_s=100, count=2, facts={"device": "cuda"})
    write_hardware(tmp_path / "2/hardware", 100, [5], MEMORY)
    profile = load_profile("mnist", [source(tmp_path / "1"), source(tmp_path / "2")], started_us=START, ended_us=None)
    (rank,) = profile.ranks
    assert rank.steps.numbers.tolist() == [0, 1, 2, 3, 4]
    assert rank.program.device == "cuda"
    hardware = profile.hardware["algo-1"]
    np.testing.assert_array_equal(hardware.series[CPU], [10, 20, np.nan])
    np.testing.assert_array_equal(hardware.series[MEMORY], [np.nan, np.nan, 5])


def test_many_samples_become_means_of_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "MAX_SAMPLES", 3)
    write_hardware(tmp_path / "hardware", 0, [1, 3, np.nan, 7, np.nan, np.nan, 9])
    hardware = load_profile("mnist", [source(tmp_path)], started_us=START, ended_us=None).hardware["algo-1"]
    np.testing.assert_array_equal(hardware.series[CPU], [2, 7, 9])
    assert hardware.times_us.tolist() == [START + second * SECOND for second in (2, 5, 6)]


def test_counters_keep_their_last_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "MAX_SAMPLES", 2)
    energy = HardwareSeries(HardwareMetric.GPU_ENERGY_JOULES, "gpu0")
    write_hardware(tmp_path / "hardware", 0, [1, 2, 3, 4], energy)
    hardware = load_profile("mnist", [source(tmp_path)], started_us=START, ended_us=None).hardware["algo-1"]
    assert hardware.series[energy].tolist() == [2, 4]


def test_processes_of_one_rank_at_the_same_time_are_kept_apart(tmp_path: Path) -> None:
    write_steps(tmp_path / "steps", "worker_0", at_s=0, count=5)
    write_steps(tmp_path / "steps", "worker_0-9", at_s=2, count=5)
    write_steps(tmp_path / "steps", "worker_0-10", at_s=20, count=1, mode=EVAL)
    profile = load_profile("mnist", [source(tmp_path)], started_us=START, ended_us=None)
    assert [(rank.name, len(rank.steps)) for rank in profile.ranks] == [("worker_0", 6), ("worker_0-2", 5)]


def test_ranks_of_several_hosts_are_in_order(tmp_path: Path) -> None:
    write_steps(tmp_path / "a/steps", "worker_1", at_s=0, count=1)
    write_steps(tmp_path / "b/steps", "worker_0", at_s=0, count=1)
    sources = [source(tmp_path / "a", "algo-1"), source(tmp_path / "b", "algo-2")]
    profile = load_profile("mnist", sources, started_us=START, ended_us=None)
    assert [(rank.name, rank.host) for rank in profile.ranks] == [("worker_0", "algo-2"), ("worker_1", "algo-1")]


def test_a_job_without_files_has_an_empty_profile(tmp_path: Path) -> None:
    profile = load_profile("mnist", [source(tmp_path / "none")], started_us=START, ended_us=START)
    assert not profile.ranks
    assert len(profile.hardware["algo-1"]) == 0


def program(tmp_path: Path, facts: Any) -> tuple[Any, tuple[str, ...]]:
    write_steps(tmp_path / "steps", "worker_0", at_s=0, count=1, facts=facts)
    profile = load_profile("mnist", [source(tmp_path)], started_us=START, ended_us=None)
    return profile.ranks[0].program, tuple(profile.notes)


def test_facts_of_every_kind_are_read(tmp_path: Path) -> None:
    loader = {"name": "Images", "workers": 2, "is_pinning": False, "prefetch": 2, "batch_size": 8, "fetch_s": [0.5, 1]}
    line = {"phase": "FORWARD", "function": "f", "file": "train.py", "line": 3, "called": "item", "samples": 9}
    facts = {
        "loaders": [loader],
        "hot_lines": [line, {**line, "phase": 3}],
        "stack_samples": 20,
        "memory_holders": [{"name": "parameters", "bytes": 100}],
        "samples_per_step": 32,
        "is_compiled": True,
        "synchronizations": [{"name": "item", "calls_per_step": 2, "seconds_per_step": 0.5}],
        "changes": {"loader_workers": "2"},
    }
    found, notes = program(tmp_path, facts)
    assert notes == ()
    assert found.loaders == (LoaderFacts("Images", 2, False, 2, 8, (0.5, 1.0)),)
    assert found.hot_lines[0] == HotLine(StepPhase.FORWARD, "f", "train.py", 3, "item", 9)
    assert found.hot_lines[1].phase is StepPhase.BACKWARD
    assert found.memory_holders == (MemoryHolder("parameters", 100),)
    assert (found.stack_samples, found.samples_per_step, found.is_compiled) == (20, 32.0, True)
    assert found.synchronizations == (Synchronization("item", 2.0, 0.5),)
    assert found.changes == {"loader_workers": "2"}


@pytest.mark.parametrize(
    ("facts", "faulty"),
    [
        ({"device": 3}, "device"),
        ({"threads": "many"}, "threads"),
        ({"threads": 1.5}, "threads"),
        ({"parameters": -1}, "parameters"),
        ({"parameters": 10**400}, "parameters"),
        ({"samples_per_step": float("nan")}, "samples_per_step"),
        ({"is_compiled": 1}, "is_compiled"),
        ({"loaders": {}}, "loaders"),
        ({"loaders": [{"workers": 2}]}, "loaders"),
        (
            {"hot_lines": [{"phase": "LUNCH", "function": "", "file": "", "line": 1, "called": "", "samples": 1}]},
            "phase",
        ),
        ({"memory_holders": [7]}, "memory_holders"),
        ({"changes": ["batch_size"]}, "changes"),
        ({"changes": {"batch_size": 8}}, "changes"),
    ],
)
def test_a_fact_of_the_wrong_type_is_dropped_with_a_note(tmp_path: Path, facts: Any, faulty: str) -> None:
    found, notes = program(tmp_path, {**facts, "framework": "torch"})
    assert found.framework == "torch"
    assert len(notes) == 1
    assert notes[0].startswith("algo-1: worker_0 reports facts")
    assert faulty in notes[0]


def test_unknown_facts_are_ignored_and_long_ones_cut(tmp_path: Path) -> None:
    found, notes = program(tmp_path, {"mood": "good", "framework": "x" * 10_000, "loaders": []})
    assert notes == ()
    assert len(found.framework) == 500
