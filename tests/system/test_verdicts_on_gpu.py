"""A real training on a GPU with one planted fault after another: the verdict names each."""

from pathlib import Path

import pytest

from tests.profiled_programs import HAS_GPU, run_profiled
from trainyard.insight.profiling.verdict.contract import BottleneckKind, ProfileVerdict
from trainyard.insight.profiling.verdict.judge import judge_profile

pytestmark = pytest.mark.skipif(not HAS_GPU, reason="needs a GPU of NVIDIA")

K = BottleneckKind
NOISE = 1.1
FAULTS = {
    "none": K.COMPUTE,
    "float32": K.PRECISION,
    "item": K.SYNCHRONIZATION,
    "tiny-batch": K.SMALL_BATCH,
    "small-kernels": K.SMALL_KERNELS,
    "idle-gpu": K.IDLE_GPU,
    "slow-loader": K.DATA_LOADING,
    "copies": K.HOST_TO_DEVICE,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_verdict_is_the_planted_cause(fault: str, tmp_path: Path) -> None:
    verdict = judge(tmp_path, fault)
    assert verdict.bottleneck is not None, verdict.summary
    assert verdict.bottleneck.kind is FAULTS[fault], verdict


# Their steps have the same work as those of the healthy one.
@pytest.mark.parametrize("fault", ["float32", "item"])
def test_the_bound_contains_what_mending_gains(fault: str, tmp_path: Path) -> None:
    verdict, mended = judge(tmp_path, fault), judge(tmp_path, "none")
    assert verdict.costs.step_s is not None
    assert mended.costs.step_s is not None
    assert verdict.bottleneck is not None
    assert verdict.bottleneck.max_speedup is not None
    assert 1 < verdict.costs.step_s / mended.costs.step_s <= verdict.bottleneck.max_speedup * NOISE


def judge(folder: Path, fault: str) -> ProfileVerdict:
    own = folder / fault
    own.mkdir()
    return judge_profile(run_profiled(own, "on_gpu.py", ["--fault", fault]))
