"""What the step timer costs a step: the CPU time of a training thread with the timer, and without it, in turns.

It also measures the thread that samples where the training is, as a share of a core.

    python -m benchmarks.step_timer [--rounds N]

The model is small, so that the cost of the timer stands out; it does not depend on the size of the model. A step waits
for a data loader, runs forward and backward, and steps an optimizer, as that of a larger model does.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.measurement import write_results
from trainyard.instance.hook.profiling.stack_sampler import INTERVAL_S, StackSampler
from trainyard.instance.hook.profiling.step_file import StepFile
from trainyard.instance.hook.profiling.torch_timer import TorchTimer
from trainyard.instance.hook.profiling.windows_on_demand import ProfiledSteps, WindowsOnDemand

STEP_MS = 10.0
# As a share of a step of that length.
GOAL = 0.002
STEPS = 1000
# Of a core, for the samples of stacks.
SAMPLER_GOAL = 0.001
SAMPLES = 40


def main() -> None:
    rounds = _arguments().rounds
    torch.set_num_threads(1)
    train = _make_training()
    train(STEPS)
    before = [_cost_us(train) for _ in range(rounds)]
    timed, after = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            timed.append(_timed_cost_us(train, Path(folder) / str(number)))
            after.append(_cost_us(train))
    plain = median(before)
    overhead_us = median(timed) - plain
    inert_us = median(after) - plain
    share = overhead_us / (STEP_MS * 1000)
    print(f"a step of {plain:.0f} us of CPU time: {overhead_us:+.1f} us with the timer, {inert_us:+.1f} us after it")
    print(f"{share:.2%} of a step of {STEP_MS:.0f} ms; the goal is {GOAL:.1%}")
    sample_us = _sample_cost_us(train)
    sampler_share = sample_us / 1e6 / INTERVAL_S
    print(
        f"a sample of the stack takes {sample_us:.0f} us: {sampler_share:.3%} of a core; the goal is {SAMPLER_GOAL:.1%}"
    )
    samples = {"sample_us": sample_us, "sampler_share": sampler_share, "sampler_goal": SAMPLER_GOAL}
    values = {
        "plain_us": plain,
        "overhead_us": overhead_us,
        "inert_us": inert_us,
        "share": share,
        "goal": GOAL,
        **samples,
    }
    print(f"All of it is in {write_results('step_timer', values)}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what the step timer costs a training.")
    parser.add_argument("--rounds", type=int, default=9)
    return parser.parse_args()


def _make_training() -> Callable[[int], None]:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = TensorDataset(torch.randn(STEPS, 16), torch.randint(4, (STEPS,)))

    def train(steps: int) -> None:
        for inputs, labels in DataLoader(data, batch_size=STEPS // steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()

    return train


def _timed_cost_us(train: Callable[[int], None], folder: Path) -> float:
    # The timer finds the model when its optimizer first steps.
    timer = TorchTimer(
        lambda facts: StepFile(folder, "worker_0", facts),
        note=_refuse,
        # As in every job, in case a profile is wanted.
        make_windows=lambda _: WindowsOnDemand(folder, _make_none, note=_refuse),
    )
    try:
        train(10)
        return _cost_us(train)
    finally:
        timer.close()


def _sample_cost_us(train: Callable[[int], None]) -> float:
    """Return the CPU time of the sampler's thread for one sample, with the frames of a training below it."""
    sampler = StackSampler(lambda: (0, time.perf_counter_ns()))
    sampler.start(threading.get_ident())
    sampling = next(thread for thread in threading.enumerate() if thread.name == "trainyard-profiler")
    assert sampling.ident is not None, "a thread that was started has an identity"
    clock = time.pthread_getcpuclockid(sampling.ident)
    while sampler.samples < SAMPLES:
        train(STEPS)
    took = time.clock_gettime(clock)
    samples = sampler.samples
    sampler.stop()
    return took * 1e6 / samples


def _cost_us(train: Callable[[int], None]) -> float:
    began = time.thread_time_ns()
    train(STEPS)
    return (time.thread_time_ns() - began) / 1000 / STEPS


def _make_none() -> ProfiledSteps:
    raise AssertionError("nobody wants a profile")


def _refuse(note: str) -> None:
    raise RuntimeError(note)


if __name__ == "__main__":
    main()
