"""Real scripts with a planted fault each: the verdict names it, and its bound contains what mending it gains."""

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Protocol

import pytest

from tests.profiled_programs import run_profiled
from trainyard.formats.profiles.contract import CHANGES_VARIABLE, HardwareMetric, ProgramChange
from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.profiling.verdict.contract import BottleneckKind, ProfileVerdict
from trainyard.insight.profiling.verdict.judge import judge_profile
from trainyard.insight.profiling.verdict.steady_state import SteadyState, find_steady_state

K = BottleneckKind
FILE = "FILE"
# Steps on a machine that other tests use too vary by this much.
NOISE = 1.15
# While other tests take cores, these cannot be told from a loader that computes.
NEEDS_CORES = (K.READING, K.TOO_MANY_WORKERS)
MAX_SHARE_OF_OTHERS = 0.1


@dataclass(frozen=True)
class Planted:
    """A script, with the options that plant a fault, and those that mend it."""

    program: str
    kind: BottleneckKind
    options: Sequence[str] = ()
    mended: Sequence[str] | None = None
    ranks: int = 1


CAUSES = {
    "slow loader": Planted("slow_loader", K.DATA_LOADING, mended=["--workers", "8"]),
    "augmentation": Planted("augmentation", K.DATA_LOADING, mended=["--rounds", "0"]),
    "too many workers": Planted("many_workers", K.TOO_MANY_WORKERS, mended=["--workers", "2"]),
    "reads": Planted("disk_reads", K.READING, ["--file", FILE], ["--file", FILE, "--reads", "1"]),
    "tiny batch": Planted("tiny_batch", K.SMALL_BATCH),
    "leak": Planted("memory_leak", K.MEMORY_GROWTH),
    "checkpoints": Planted(
        "checkpoints", K.CHECKPOINTS, ["--file", FILE, "--every", "4"], ["--file", FILE, "--every", "100000"]
    ),
    "Python loop": Planted("python_loop", K.PYTHON, mended=["--where", "nowhere"]),
    "slow rank": Planted("slow_rank", K.SLOW_RANK, mended=["--extra-ms", "0"], ranks=2),
    "communication": Planted("large_exchange", K.COMMUNICATION, mended=["--every", "8"], ranks=2),
}
# The same faults in other sizes and places, which no threshold was chosen with.
HELD_OUT = {
    "one worker for a slow loader": Planted("slow_loader", K.DATA_LOADING, ["--workers", "1", "--latency-ms", "2"]),
    "large images": Planted("augmentation", K.DATA_LOADING, ["--size", "128", "--rounds", "4", "--workers", "1"]),
    "sixteen workers": Planted("many_workers", K.TOO_MANY_WORKERS, ["--workers", "16", "--epoch", "960"]),
    "two loaders that read": Planted("disk_reads", K.READING, ["--file", FILE, "--workers", "1", "--reads", "48"]),
    "tiny batch of images": Planted("tiny_batch", K.SMALL_BATCH, ["--convolutions", "--batch", "1"]),
    "checkpoint of every second step": Planted("checkpoints", K.CHECKPOINTS, ["--file", FILE, "--every", "2"]),
    "loop in the forward": Planted("python_loop", K.PYTHON, ["--where", "forward"]),
    "first rank is slow": Planted("slow_rank", K.SLOW_RANK, ["--slow", "0", "--extra-ms", "40"], ranks=2),
}
HEALTHY = {
    "computing": Planted("healthy", K.COMPUTE),
    "a worker": Planted("healthy", K.COMPUTE, ["--workers", "1"]),
    "item on a CPU": Planted("healthy", K.COMPUTE, ["--item"]),
    "no leak": Planted("memory_leak", K.COMPUTE, ["--mended"]),
    "few checkpoints": Planted("checkpoints", K.COMPUTE, ["--file", FILE, "--every", "100000"]),
}

# Causes for which the first advice is a change that a trial makes in the program.
TRIED = ("slow loader", "too many workers", "tiny batch")


class Run(Protocol):
    """Runs the program of a cause with options, and with changes that a trial makes."""

    def __call__(
        self, planted: Planted, options: Sequence[str], changes: Mapping[ProgramChange, str] | None = None
    ) -> JobProfile: ...


@pytest.fixture(autouse=True)
def run_alone() -> Iterator[None]:
    """Let no other test of this file run meanwhile: the reads of one would count as waits of another's loader."""
    with Path(gettempdir(), "trainyard-verdicts.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    def run_once(
        planted: Planted, options: Sequence[str], changes: Mapping[ProgramChange, str] | None = None
    ) -> JobProfile:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        words = [str(Path(on_disk) / "file") if word == FILE else word for word in options]
        environment = {CHANGES_VARIABLE: json.dumps(changes)} if changes else {}
        return run_profiled(folder, f"{planted.program}.py", words, ranks=planted.ranks, environment=environment)

    # Temporary folders of tests may be in memory.
    with TemporaryDirectory(dir="/var/tmp") as on_disk:
        yield run_once


def check(profile: JobProfile, kind: BottleneckKind) -> ProfileVerdict:
    """Judge a profile, which has to show this first, unless other work had so much of the machine that it cannot."""
    verdict = judge_profile(profile)
    state = find_steady_state(profile)
    is_right = verdict.bottleneck is not None and verdict.bottleneck.kind is kind
    if not is_right and (state is None or (kind in NEEDS_CORES and share_of_others(state) > MAX_SHARE_OF_OTHERS)):
        pytest.skip("other work took the cores of this machine, so that the program could not show what it needs")
    assert is_right, verdict
    return verdict


def share_of_others(state: SteadyState) -> float:
    """Return what share of the cores other work took while the program ran."""
    total = state.mean(HardwareMetric.CPU_PERCENT, "total")
    assert total is not None, "it was sampled"
    assert state.cores_used is not None, "it was sampled"
    assert state.cores, "it was sampled"
    return total / 100 - state.cores_used / state.cores


def step_s(profile: JobProfile) -> float:
    state = find_steady_state(profile)
    assert state is not None, "a mended program has steps too"
    return state.step_s


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.flow if name == "slow loader" else ()) for name in CAUSES]
)
def test_the_first_verdict_is_the_planted_cause_and_its_bound_contains_the_gain(name: str, run: Run) -> None:
    planted = CAUSES[name]
    profile = run(planted, planted.options)
    verdict = check(profile, planted.kind)
    assert verdict.bottleneck is not None
    assert verdict.advice
    if planted.mended is not None:
        mended = run(planted, planted.mended)
        gain = step_s(profile) / step_s(mended)
        assert verdict.bottleneck.max_speedup is not None
        assert 1 / NOISE < gain <= verdict.bottleneck.max_speedup * NOISE


@pytest.mark.parametrize("name", TRIED)
def test_what_the_first_advice_changes_gains_no_more_than_its_bound(name: str, run: Run) -> None:
    planted = CAUSES[name]
    verdict = check(run(planted, planted.options), planted.kind)
    first = verdict.advice[0]
    tried = run(planted, planted.options, first.changes)
    assert dict(tried.ranks[0].program.changes) == dict(first.changes)
    before, after = verdict.costs.samples_per_s, judge_profile(tried).costs.samples_per_s
    assert before is not None
    assert after is not None
    assert first.max_speedup is not None
    assert 1 / NOISE < after / before <= first.max_speedup * NOISE


@pytest.mark.parametrize("name", HELD_OUT)
def test_the_first_verdict_on_held_out_programs_is_right(name: str, run: Run) -> None:
    planted = HELD_OUT[name]
    check(run(planted, planted.options), planted.kind)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.flow if name == "computing" else ()) for name in HEALTHY]
)
def test_a_healthy_program_computes(name: str, run: Run) -> None:
    planted = HEALTHY[name]
    check(run(planted, planted.options), planted.kind)
