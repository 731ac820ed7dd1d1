"""Profiles of jobs made by hand: realistic ones of healthy jobs, and the parts of which tests make faulty ones.

`HEALTHY` has a function for each healthy job. Times are drawn from a fixed seed, so that a profile is always the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries, StepPhase
from trainyard.formats.tensors.contract import Mode
from trainyard.insight.profiling.contract import (
    HardwareSamples,
    InstanceFacts,
    JobProfile,
    LoaderFacts,
    Numbers,
    ProgramFacts,
    RankProfile,
    StepTimes,
)

START_US = 1_790_000_000_000_000
CPU, GPU = "ml.m5.large", "ml.g5.xlarge"
# How a step of a healthy training divides, as shares of it.
COMPUTING: Mapping[StepPhase, float] = {
    StepPhase.DATA_WAIT: 0.02,
    StepPhase.HOST_TO_DEVICE: 0.01,
    StepPhase.FORWARD: 0.32,
    StepPhase.BACKWARD: 0.53,
    StepPhase.OPTIMIZER: 0.09,
    StepPhase.OTHER: 0.03,
}

_M = HardwareMetric
_GIB = 1024**3


def at_us(seconds: float) -> int:
    """Return the time so many seconds after the start of the job."""
    return START_US + round(seconds * 1e6)


def sample_times(seconds: float, *, interval_s: float = 1.0) -> NDArray[np.int64]:
    """Return when a sampler takes samples: the first soon after the start, then in its interval."""
    count = max(1, int(seconds / interval_s))
    return START_US + ((np.arange(count) + 0.25) * interval_s * 1e6).astype(np.int64)


def cpu_series(
    count: int,
    *,
    cores: int = 2,
    busy: ArrayLike = 85.0,
    hot_cores: int = 0,
    job: ArrayLike | None = None,
    memory: ArrayLike = 20.0,
    io_wait: ArrayLike = 0.5,
    io_pressure: ArrayLike = 1.0,
    cpu_pressure: ArrayLike = 5.0,
    read_mb_s: ArrayLike = 5.0,
    received_mb_s: ArrayLike = 0.1,
    seed: int = 0,
) -> dict[HardwareSeries, Numbers]:
    """Return the series of a machine without GPUs. `busy` is of each core but the first `hot_cores`, which are at 100.

    `job` is the share of all cores that the job takes; almost all that is busy by default.
    """
    random = np.random.default_rng(seed)
    each = {f"core{core}": _noisy(random, 99.5 if core < hot_cores else busy, count, 2.0) for core in range(cores)}
    waits = {f"core{core}": _noisy(random, io_wait, count, 0.3) for core in range(cores)}
    total = np.mean(list(each.values()), axis=0)
    job_percent = total * 0.97 if job is None else _noisy(random, job, count, 1.0)
    memory_percent = _noisy(random, memory, count, 0.05)
    series = {HardwareSeries(_M.CPU_PERCENT, name): values for name, values in {"total": total, **each}.items()}
    total_wait = np.mean(list(waits.values()), axis=0)
    series |= {HardwareSeries(_M.IO_WAIT_PERCENT, name): each for name, each in {"total": total_wait, **waits}.items()}
    megabytes_s = np.broadcast_to(np.asarray(read_mb_s, float), count) * 1e6
    return series | {
        HardwareSeries(_M.MEMORY_PERCENT): np.minimum(memory_percent + 15, 100),
        HardwareSeries(_M.MEMORY_BYTES): np.minimum(memory_percent + 15, 100) * 8 * _GIB / 100,
        HardwareSeries(_M.DISK_PERCENT): np.full(count, 41.0),
        HardwareSeries(_M.DISK_READ_BYTES_S): megabytes_s,
        HardwareSeries(_M.DISK_WRITE_BYTES_S): np.full(count, 2e5),
        HardwareSeries(_M.NETWORK_RECEIVED_BYTES_S): np.broadcast_to(np.asarray(received_mb_s, float), count) * 1e6,
        HardwareSeries(_M.NETWORK_SENT_BYTES_S): np.full(count, 1e4),
        HardwareSeries(_M.PRESSURE_SOME_PERCENT, "cpu"): _noisy(random, cpu_pressure, count, 1.0),
        HardwareSeries(_M.PRESSURE_SOME_PERCENT, "io"): _noisy(random, io_pressure, count, 0.5),
        HardwareSeries(_M.PRESSURE_FULL_PERCENT, "io"): _noisy(random, np.asarray(io_pressure) * 0.8, count, 0.5),
        HardwareSeries(_M.JOB_CPU_PERCENT): job_percent,
        HardwareSeries(_M.JOB_MEMORY_PERCENT): memory_percent,
        HardwareSeries(_M.JOB_MEMORY_BYTES): memory_percent * 8 * _GIB / 100,
        HardwareSeries(_M.JOB_READ_BYTES_S): megabytes_s * 0.9,
        HardwareSeries(_M.JOB_WRITE_BYTES_S): np.full(count, 1e5),
        HardwareSeries(_M.JOB_PROCESSES): np.full(count, 4.0),
        HardwareSeries(_M.JOB_THREADS): np.full(count, 12.0),
    }


def gpu_series(
    count: int, *, gpu: int = 0, busy: ArrayLike = 96.0, memory: ArrayLike = 78.0, seed: int = 0
) -> dict[HardwareSeries, Numbers]:
    """Return the series of one GPU."""
    random = np.random.default_rng((seed, gpu))
    percent = np.where(np.broadcast_to(busy, count) <= 0, 0.0, _noisy(random, busy, count, 1.5))
    memory_percent = _noisy(random, memory, count, 0.0)
    device = f"gpu{gpu}"
    watts = 60 + 2.2 * percent
    return {
        HardwareSeries(_M.GPU_PERCENT, device): percent,
        HardwareSeries(_M.GPU_MEMORY_BUSY_PERCENT, device): percent * 0.6,
        HardwareSeries(_M.GPU_MEMORY_PERCENT, device): memory_percent,
        HardwareSeries(_M.GPU_MEMORY_BYTES, device): memory_percent * 24 * _GIB / 100,
        HardwareSeries(_M.GPU_POWER_WATTS, device): watts,
        HardwareSeries(_M.GPU_ENERGY_JOULES, device): np.cumsum(watts),
        HardwareSeries(_M.GPU_CLOCK_MHZ, device): np.full(count, 1710.0),
        HardwareSeries(_M.GPU_TEMPERATURE_CELSIUS, device): np.full(count, 66.0),
        HardwareSeries(_M.GPU_THROTTLE_REASONS, device): np.zeros(count),
    }


def gpu_hardware(
    seconds: float,
    *,
    gpus: int = 1,
    interval_s: float = 1.0,
    cores: int = 4,
    gpu_busy: ArrayLike = 96.0,
    gpu_memory: ArrayLike = 78.0,
    starting_s: float = 20.0,
    seed: int = 0,
    **cpu: ArrayLike,
) -> HardwareSamples:
    """Return the samples of a machine with GPUs, which are idle until the program has started."""
    times = sample_times(seconds, interval_s=interval_s)
    count, is_started = len(times), times >= at_us(starting_s)
    options = {"busy": 35.0, **cpu}
    series = cpu_series(count, cores=cores, seed=seed, **options)  # type: ignore[arg-type]
    for gpu in range(gpus):
        busy = np.where(is_started, np.broadcast_to(gpu_busy, count), 0.0)
        memory = np.where(is_started, np.broadcast_to(gpu_memory, count), 2.0)
        series |= gpu_series(count, gpu=gpu, busy=busy, memory=memory, seed=seed)
    return HardwareSamples(times, series)


def cpu_hardware(seconds: float, *, interval_s: float = 1.0, **options: ArrayLike) -> HardwareSamples:
    """Return the samples of a machine without GPUs."""
    times = sample_times(seconds, interval_s=interval_s)
    return HardwareSamples(times, cpu_series(len(times), **options))  # type: ignore[arg-type]


def step_times(
    seconds: float,
    *,
    step_s: ArrayLike = 0.25,
    shares: Mapping[StepPhase, float] = COMPUTING,
    begin_s: float = 5.0,
    added_s: Mapping[StepPhase, ArrayLike] | None = None,
    noise: float = 0.03,
    counts: int = 1,
    seed: int = 0,
) -> StepTimes:
    """Return training steps that fill the time from `begin_s` to `seconds`.

    `added_s` is time that each step takes in a phase on top, such as that of a checkpoint.
    """
    random = np.random.default_rng((seed, 1))
    wanted_s = np.asarray(step_s, float)
    number = len(wanted_s) if wanted_s.ndim else max(1, int((seconds - begin_s) / (float(wanted_s) * counts)))
    durations = np.broadcast_to(wanted_s, number) * counts
    durations = durations * np.maximum(1 + noise * random.standard_normal(number), 0.2)
    phases = np.zeros((number, len(StepPhase)))
    for phase, share in shares.items():
        phases[:, phase] = durations * share / sum(shares.values())
    for phase, more in (added_s or {}).items():
        phases[:, phase] += np.asarray(more, float)
    ends = np.cumsum(phases.sum(axis=1))
    starts = np.concatenate([[0.0], ends[:-1]])
    numbers = np.arange(number, dtype=np.int64) * counts
    begin_us = at_us(begin_s)
    return StepTimes(
        numbers,
        np.full(number, counts, dtype=np.int64),
        [Mode.TRAIN] * number,
        begin_us + (starts * 1e6).astype(np.int64),
        begin_us + (ends * 1e6).astype(np.int64),
        phases,
    )


def with_evaluations(steps: StepTimes, *, every: int = 100, seconds: float = 0.5) -> StepTimes:
    """Return the steps with an evaluation of one row after every so many, which moves the others back."""
    insert = np.arange(every, len(steps), every)
    delay = np.searchsorted(insert, np.arange(len(steps)), side="right") * round(seconds * 1e6)
    starts, ends = steps.starts_us + delay, steps.ends_us + delay
    modes = [mode for number, mode in enumerate(steps.modes) for mode in ([Mode.EVAL] * (number in insert) + [mode])]
    row = np.zeros(len(StepPhase))
    row[StepPhase.FORWARD] = seconds
    return StepTimes(
        np.insert(steps.numbers, insert, steps.numbers[insert]),
        np.insert(steps.counts, insert, 20),
        modes,
        np.insert(starts, insert, starts[insert] - round(seconds * 1e6)),
        np.insert(ends, insert, starts[insert]),
        np.insert(steps.phases_s, insert, row, axis=0),
    )


def loader(
    workers: int, *, fetch_s: float = 0.05, wait_s: float = 0.0005, is_pinning: bool = False, batch_size: int = 64
) -> LoaderFacts:
    """Return a data loader of which each worker takes `fetch_s` for a batch, and the program waits `wait_s`."""
    random = np.random.default_rng(7)
    return LoaderFacts(
        "Images",
        workers,
        is_pinning,
        2 if workers else None,
        batch_size,
        tuple(fetch_s * (1 + 0.1 * random.random(16))),
        tuple(wait_s * (1 + 0.1 * random.random(64))),
    )


def rank(
    steps: StepTimes,
    *,
    number: int = 0,
    host: str = "algo-1",
    loaders: Sequence[LoaderFacts] = (),
    device: str = "cpu",
    threads: int | None = 2,
    **facts: object,
) -> RankProfile:
    """Return a rank that runs a torch program."""
    program = ProgramFacts(
        "torch",
        "2.13.0",
        device=device,
        precision="bfloat16" if device == "cuda" else "float32",
        threads=threads,
        parameters=11_000_000,
        samples_per_step=64.0,
        loaders=tuple(loaders),
    )
    return RankProfile(f"worker_{number}", host, number, steps, replace(program, **facts))  # type: ignore[arg-type]


def job(
    seconds: float,
    hardware: HardwareSamples | Mapping[str, HardwareSamples] | None = None,
    *ranks: RankProfile,
    cores: float = 2,
    gpus: int = 0,
    is_running: bool = False,
) -> JobProfile:
    """Return the profile of a job that has run for so long, on `algo-1` or on the hosts of `hardware`."""
    hosts = {"algo-1": hardware} if isinstance(hardware, HardwareSamples) else dict(hardware or {})
    facts = InstanceFacts(
        GPU if gpus else CPU, cores, 8 * _GIB, ("NVIDIA A10G",) * gpus, 1.006 if gpus else 0.096, "USD"
    )
    return JobProfile(
        "a-job",
        START_US,
        None if is_running else at_us(seconds),
        hosts,
        dict.fromkeys(hosts, facts),
        ranks,
    )


def without_values(hardware: HardwareSamples, *, share: float, seed: int = 0) -> HardwareSamples:
    """Return the samples with a share of the values missing."""
    random = np.random.default_rng(seed)
    holes = {key: np.where(random.random(len(hardware)) < share, np.nan, each) for key, each in hardware.series.items()}
    return HardwareSamples(hardware.times_us, holes)


def until(profile: JobProfile, seconds: float, *, is_running: bool = True) -> JobProfile:
    """Return what is known of a job some seconds after its start, when it still runs or is killed."""
    end_us = at_us(seconds)
    hardware = {
        host: HardwareSamples(
            samples.times_us[samples.times_us <= end_us],
            {key: values[samples.times_us <= end_us] for key, values in samples.series.items()},
        )
        for host, samples in profile.hardware.items()
    }
    ranks = [replace(each, steps=_steps_until(each.steps, end_us)) for each in profile.ranks]
    return replace(profile, ended_us=None if is_running else end_us, hardware=hardware, ranks=ranks)


def _steps_until(steps: StepTimes, end_us: int) -> StepTimes:
    kept = steps.ends_us <= end_us
    return StepTimes(
        steps.numbers[kept],
        steps.counts[kept],
        [mode for mode, is_kept in zip(steps.modes, kept, strict=True) if is_kept],
        steps.starts_us[kept],
        steps.ends_us[kept],
        steps.phases_s[kept],
    )


def _empty() -> JobProfile:
    return job(0.0)


def _starting() -> JobProfile:
    hardware = gpu_hardware(8, starting_s=1e9, busy=12.0)
    return job(8, hardware, cores=4, gpus=1, is_running=True)


def _one_sample() -> JobProfile:
    return job(1, cpu_hardware(1), rank(step_times(1, begin_s=0.5, step_s=0.4)))


def _without_steps() -> JobProfile:
    """A program of which nothing but its use of the machine is known."""
    return job(1800, cpu_hardware(1800, busy=80.0))


def _short_on_cpu() -> JobProfile:
    steps = step_times(12, begin_s=3, step_s=0.04, noise=0.1)
    return job(12, cpu_hardware(12, busy=92.0), rank(steps, loaders=[loader(2)]))


def _long_on_cpu() -> JobProfile:
    """An hour with a warm-up: the program caches data in memory in the first minutes, and then no more."""
    times = np.arange(3600)
    memory = 12 + 25 * (1 - np.exp(-times / 90))
    steps = step_times(3600, begin_s=12, step_s=0.3)
    return job(3600, cpu_hardware(3600, memory=memory, busy=90.0), rank(steps, loaders=[loader(1)]))


def _caching_on_cpu() -> JobProfile:
    """The first epoch reads every file into memory, in a straight line; the other epochs do not."""
    times = np.arange(2400)
    memory = np.minimum(10 + times / 20, 45)
    reads = np.where(times < 700, 60.0, 0.0)
    steps = step_times(2400, begin_s=10, step_s=0.2)
    return job(2400, cpu_hardware(2400, memory=memory, read_mb_s=reads), rank(steps, loaders=[loader(2)]))


def _one_thread() -> JobProfile:
    """One thread that computes, on a machine with more cores."""
    hardware = cpu_hardware(600, cores=8, busy=2.0, hot_cores=1)
    return job(600, hardware, rank(step_times(600, step_s=0.1), threads=1, loaders=[loader(0, fetch_s=0.001)]), cores=8)


def _boosting() -> JobProfile:
    """Rounds without phases, each a little slower than the one before."""
    count = 900
    durations = np.linspace(0.2, 0.45, count)
    steps = step_times(300, step_s=durations, shares={StepPhase.OTHER: 1.0}, begin_s=8)
    seconds = 8 + float(durations.sum())
    facts = rank(steps, device="")
    return job(seconds, cpu_hardware(seconds, busy=97.0), replace(facts, program=ProgramFacts("xgboost", "3.2.0")))


def _gpu_with_evaluations() -> JobProfile:
    """Half an hour on a GPU, with an evaluation and a checkpoint every few minutes, and memory that settles early."""
    seconds = 1800
    times = np.arange(seconds)
    cycle = times % 300
    gpu = np.where(cycle > 285, 88.0, 96.5)
    gpu = np.where(cycle == 299, 15.0, gpu)
    memory = np.where(times < 300, 55.0, 71.0) + np.minimum(times / 300, 1.0)
    added = np.zeros(11000)
    added[1899::1900] = 2.0
    steps = step_times(
        seconds, step_s=np.full(11000, 0.15), begin_s=45, added_s={StepPhase.CHECKPOINT: added}, noise=0.02
    )
    steps = with_evaluations(steps, every=1900, seconds=15.0)
    hardware = gpu_hardware(seconds, gpu_busy=gpu, gpu_memory=memory, starting_s=45, hot_cores=1)
    return job(seconds, hardware, _on_gpu(steps, loaders=[loader(3, is_pinning=True)]), cores=4, gpus=1)


def _short_on_gpu() -> JobProfile:
    steps = step_times(40, begin_s=15, step_s=0.12, noise=0.05)
    hardware = gpu_hardware(40, starting_s=15, gpu_busy=93.0)
    return job(40, hardware, _on_gpu(steps, loaders=[loader(3, is_pinning=True)]), cores=4, gpus=1)


def _hot_main_thread() -> JobProfile:
    """On a host with many cores, the main thread spins while it waits for a GPU that is always busy."""
    hardware = gpu_hardware(900, cores=64, busy=2.0, hot_cores=1, gpu_busy=98.5)
    steps = step_times(900, begin_s=20, step_s=0.4)
    return job(900, hardware, _on_gpu(steps, loaders=[loader(8)]), cores=64, gpus=1)


def _eight_gpus() -> JobProfile:
    """The ranks of one host, whose GPUs differ a little."""
    seconds = 600
    hardware = gpu_hardware(seconds, cores=96, busy=25.0, gpus=8)
    series = dict(hardware.series)
    for gpu in range(8):
        # Each has values of its own, without overlap, but the same load.
        busy = np.where(np.arange(seconds) < 20, 0.0, 95.0 + 0.5 * gpu)
        series[HardwareSeries(_M.GPU_PERCENT, f"gpu{gpu}")] = busy
    ranks = [
        _on_gpu(step_times(seconds, begin_s=20, step_s=0.3, shares=_synchronized(0.05), seed=number), number=number)
        for number in range(8)
    ]
    return job(seconds, HardwareSamples(hardware.times_us, series), *ranks, cores=96, gpus=8)


def _two_hosts() -> JobProfile:
    """Two hosts with two GPUs each; the first rank also writes checkpoints."""
    seconds = 1200
    hosts = {f"algo-{number}": gpu_hardware(seconds, gpus=2, cores=16, seed=number) for number in (1, 2)}
    added = np.zeros(3900)
    added[499::500] = 1.5
    ranks = []
    for number in range(4):
        extra = {StepPhase.CHECKPOINT if number == 0 else StepPhase.COMMUNICATION: added}
        steps = step_times(
            seconds,
            begin_s=25,
            step_s=np.full(3900, 0.3),
            shares=_synchronized(0.08),
            added_s=extra,
            seed=number,
        )
        ranks.append(_on_gpu(steps, number=number, host=f"algo-{1 + number // 2}", loaders=[loader(6)]))
    return job(seconds, hosts, *ranks, cores=16, gpus=2)


def _varying_batches() -> JobProfile:
    """Sequences of varying length: steps take from half to three times the usual."""
    random = np.random.default_rng(3)
    durations = np.exp(random.normal(-1.5, 0.35, 5000))
    seconds = 30 + float(durations.sum())
    hardware = gpu_hardware(seconds, gpu_busy=90.0)
    return job(seconds, hardware, _on_gpu(step_times(seconds, step_s=durations, begin_s=20)), cores=4, gpus=1)


def _growing_images() -> JobProfile:
    """The images are larger in the last tenth of the training, and so are its steps."""
    durations = np.where(np.arange(4000) < 3600, 0.15, 0.4)
    seconds = 25 + float(durations.sum())
    hardware = gpu_hardware(seconds, gpu_memory=np.where(np.arange(int(seconds)) < 565, 50.0, 85.0))
    return job(seconds, hardware, _on_gpu(step_times(seconds, step_s=durations, begin_s=20)), cores=4, gpus=1)


def _shared_rows() -> JobProfile:
    """Steps of two milliseconds, fifty in a row."""
    steps = step_times(600, step_s=0.002, counts=50, begin_s=4)
    return job(600, cpu_hardware(600, busy=93.0), rank(steps, loaders=[loader(1, fetch_s=0.001)]))


def _sparse_samples() -> JobProfile:
    """A sample a minute for two hours."""
    hardware = gpu_hardware(7200, interval_s=60.0, starting_s=60)
    return job(7200, hardware, _on_gpu(step_times(7200, begin_s=60, step_s=0.5)), cores=4, gpus=1)


def _ragged() -> JobProfile:
    """A third of the values is missing, a core went offline, and a GPU gives no values at all."""
    hardware = without_values(gpu_hardware(900, gpus=2), share=0.3)
    series = dict(hardware.series)
    late = series[HardwareSeries(_M.CPU_PERCENT, "core3")].copy()
    late[400:] = np.nan
    series[HardwareSeries(_M.CPU_PERCENT, "core3")] = late
    for key in [key for key in series if key.device == "gpu1"]:
        series[key] = np.full(len(hardware), np.nan)
    samples = HardwareSamples(hardware.times_us, series)
    return job(900, samples, _on_gpu(step_times(900, begin_s=20)), cores=4, gpus=2)


def _suspended() -> JobProfile:
    """The machine was suspended for an hour in the middle: no samples, and one step that took as long."""
    hardware = gpu_hardware(1200)
    gap = np.where(np.arange(len(hardware)) >= 600, 3_600_000_000, 0)
    steps = step_times(1200, begin_s=20)
    delay = np.where(steps.starts_us >= at_us(600), 3_600_000_000, 0)
    first = int(np.argmax(delay > 0))
    ends = steps.ends_us + delay
    starts = steps.starts_us + delay
    starts[first] -= 3_600_000_000
    phases = steps.phases_s.copy()
    phases[first, StepPhase.OTHER] += 3600
    moved = replace(steps, starts_us=starts, ends_us=ends, phases_s=phases)
    samples = HardwareSamples(hardware.times_us + gap, hardware.series)
    return job(4800, samples, _on_gpu(moved), cores=4, gpus=1)


def _still_running() -> JobProfile:
    """A training in the middle."""
    hardware = gpu_hardware(400)
    steps = step_times(400, begin_s=20, step_s=0.2)
    return job(400, hardware, _on_gpu(steps, loaders=[loader(3)]), cores=4, gpus=1, is_running=True)


def _slow_start() -> JobProfile:
    """Ten minutes to load a large model, then an hour of training."""
    hardware = gpu_hardware(4200, starting_s=600, busy=20.0)
    return job(4200, hardware, _on_gpu(step_times(4200, begin_s=600, step_s=1.2)), cores=4, gpus=1)


def _remote_data() -> JobProfile:
    """Many workers that mostly wait for the network, so that the program does not have to."""
    hardware = gpu_hardware(600, busy=20.0, received_mb_s=120.0)
    steps = step_times(600, begin_s=20, step_s=0.3)
    return job(600, hardware, _on_gpu(steps, loaders=[loader(12, fetch_s=2.5)]), cores=4, gpus=1)


def _on_gpu(
    steps: StepTimes, *, number: int = 0, host: str = "algo-1", loaders: Sequence[LoaderFacts] = ()
) -> RankProfile:
    return rank(steps, number=number, host=host, loaders=loaders, device="cuda", threads=4)


def _synchronized(communication: float) -> Mapping[StepPhase, float]:
    return {**COMPUTING, StepPhase.COMMUNICATION: communication}


def _noisy(random: np.random.Generator, value: ArrayLike, count: int, sigma: float) -> Numbers:
    """Return values around `value`, within 0 and 100."""
    wanted = np.broadcast_to(np.asarray(value, float), count)
    noisy: Numbers = np.clip(wanted + sigma * random.standard_normal(count), 0.0, 100.0)
    return noisy


HEALTHY: Mapping[str, Callable[[], JobProfile]] = {
    make.__name__.removeprefix("_"): make
    for make in (
        *(_empty, _starting, _one_sample, _without_steps, _short_on_cpu, _long_on_cpu, _caching_on_cpu, _one_thread),
        *(_boosting, _gpu_with_evaluations, _short_on_gpu, _hot_main_thread, _eight_gpus, _two_hosts),
        *(_varying_batches, _growing_images, _shared_rows, _sparse_samples, _ragged, _suspended, _still_running),
        *(_slow_start, _remote_data),
    )
}
