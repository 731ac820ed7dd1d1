"""What to do about the bottlenecks, with the changes that a trial can make from outside."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath

from trainyard.formats.profiles.contract import HardwareMetric, ProgramChange, StepPhase
from trainyard.insight.profiling.contract import LoaderFacts
from trainyard.insight.profiling.verdict.contract import Bottleneck, BottleneckKind, ProfileAdvice
from trainyard.insight.profiling.verdict.detectors.bounds import speedup_without, speedup_without_phase
from trainyard.insight.profiling.verdict.detectors.program import main_synchronizations
from trainyard.insight.profiling.verdict.loader_load import LoaderLoad, cores_per_rank, measure_loader
from trainyard.insight.profiling.verdict.steady_state import SteadyState
from trainyard.insight.profiling.verdict.wording import count, describe_cores, duration, is_library_call, percent

_YES = "true"
_PREFETCH = 4
# Fetch times that vary by this much need more batches in store.
_UNEVEN_FETCHES = 3.0
_BATCH_GROWTH, _MAX_BATCH = 8, 256
# One of several causes is worth advice if it takes this part of a step.
_MIN_SHARE = 0.05
# Computing that takes less of the step than this is not worth a change to the model.
_MIN_COMPUTING = 0.3
_FEW_THREADS_USED = 0.75


def advise(state: SteadyState, bottlenecks: Sequence[Bottleneck]) -> Sequence[ProfileAdvice]:
    """Return advice, that about the first bottleneck first, and each only once."""
    found: list[ProfileAdvice] = []
    for bottleneck in bottlenecks:
        found += _ADVISERS[bottleneck.kind](state, bottleneck)
    found += _advise_on_loader_settings(state)
    found += _advise_on_threads(state)
    by_title: dict[str, ProfileAdvice] = {}
    for each in found:
        by_title.setdefault(each.title, each)
    return tuple(by_title.values())


def _advise_on_data_loading(state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    loader, load = state.loader, measure_loader(state)
    if loader is None:
        yield _advice(
            "Load batches in the background",
            "The batches do not come from a torch DataLoader, whose workers would make them while the model computes.",
            bottleneck,
        )
        return
    wanted = load.best_workers
    if wanted > loader.workers:
        yield _advice(
            _title_of_workers(wanted, loader),
            _reason_for_workers(state, loader, load, wanted),
            bottleneck,
            {ProgramChange.LOADER_WORKERS: str(wanted)},
        )
    elif wanted < loader.workers and load.are_cores_short:
        yield from _advise_on_too_many_workers(state, bottleneck)
    if load.starts_workers_often:
        yield _advice_on_persistent_workers(bottleneck)
    if loader.workers and _are_fetches_uneven(loader) and (loader.prefetch or 2) < _PREFETCH:
        yield _advice(
            f"Prefetch {_PREFETCH} batches per worker",
            "Some batches take several times as long to make as others; more finished ones in store bridge the gap.",
            bottleneck,
            {ProgramChange.PREFETCH_FACTOR: str(_PREFETCH)},
        )
    if load.is_computing and load.computing is not None:
        yield _advice(
            "Make batches with less work",
            "The processes that make batches compute all the time. Decode and resize once and store the result, "
            "transform whole batches instead of single samples, or move transforms to the model's device.",
            bottleneck,
        )


def _advise_on_reading(state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    loader = state.loader
    wanted = measure_loader(state).best_workers
    if loader is not None and wanted > loader.workers:
        yield _advice(
            _title_of_workers(wanted, loader),
            "Workers that wait for their reads need no core, so more of them can wait at the same time.",
            bottleneck,
            {ProgramChange.LOADER_WORKERS: str(wanted)},
        )
    yield _advice(
        "Read fewer and larger pieces",
        "Store many samples in one file and read it from the beginning to the end, keep what is read again in memory, "
        "or let the job download its channel before it starts (input mode File instead of FastFile or Pipe).",
        bottleneck,
    )


def _advise_on_too_many_workers(state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    loader, load = state.loader, measure_loader(state)
    if loader is None:
        return
    wanted = load.best_workers
    if wanted < loader.workers:
        yield _advice(
            _title_of_workers(wanted, loader),
            _reason_for_fewer_workers(state),
            bottleneck,
            {ProgramChange.LOADER_WORKERS: str(wanted)},
        )
    if load.starts_workers_often:
        yield _advice_on_persistent_workers(bottleneck)


def _advice_on_persistent_workers(bottleneck: Bottleneck) -> ProfileAdvice:
    return _advice(
        "Keep the data workers between epochs",
        "Each epoch starts all workers again, and waits for their first batches. persistent_workers=True keeps them.",
        bottleneck,
        {ProgramChange.PERSISTENT_WORKERS: _YES},
    )


def _advise_on_copies(state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    if state.loader is not None and not state.loader.is_pinning:
        yield _advice(
            "Pin the memory of batches",
            "Copies from pinned memory are quicker, and with non_blocking=True the program does not wait for them.",
            bottleneck,
            {ProgramChange.PIN_MEMORY: _YES},
        )
    yield _advice(
        "Copy less, and earlier",
        "Copy images as bytes and convert them on the GPU, and copy the next batch while the GPU computes this one.",
        bottleneck,
    )


def _advise_on_synchronization(state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    names = ", ".join(f".{each.name}()" for each in main_synchronizations(state.program))
    yield _advice(
        "Wait for the GPU less often",
        f"{names or 'Calls such as .item()'} wait until the GPU has computed everything. Keep losses and metrics as "
        "tensors on the GPU, and read them every hundred steps.",
        bottleneck,
    )


def _advise_on_python(state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    lines = [line for line in state.program.hot_lines if line.phase not in (StepPhase.DATA_WAIT, StepPhase.CHECKPOINT)]
    own = sorted((line for line in lines if not is_library_call(line.called)), key=lambda line: -line.samples)
    if own:
        where = f"{PurePath(own[0].file).name}:{own[0].line}"
        name = where if own[0].function == "<module>" else f"{own[0].function} ({where})"
        yield _advice(
            f"Rewrite {name}",
            f"The training thread is most often at {where}: {own[0].called}. Replace the loop by operations on whole "
            "tensors, do it less often, or move it to a data worker.",
            bottleneck,
        )
        return
    yield _advice(
        "Do less between the steps",
        "What the program does between optimizer, data loader and model takes long: metrics, logs, copies of tensors. "
        "Do it less often, or on whole tensors.",
        bottleneck,
    )


def _advise_on_small_batch(state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    size = state.loader.batch_size if state.loader is not None else None
    samples = state.program.samples_per_step
    now = max(1, size or round(samples or 1))
    wanted = min(_MAX_BATCH, 2 ** math.ceil(math.log2(now * _BATCH_GROWTH)))
    if wanted > now:
        yield ProfileAdvice(
            f"Use batches of {wanted} instead of {now}",
            "A step takes about as long with more samples. Raise the learning rate with the batch, and check that the "
            "model still learns as well.",
            bottleneck.kind,
            {ProgramChange.BATCH_SIZE: str(wanted)},
            # In samples per second, if a step with more of them takes no longer.
            wanted / now,
        )
    yield from _advise_on_compiling(state, bottleneck)


def _advise_on_small_kernels(state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    yield from _advise_on_compiling(state, bottleneck)
    yield _advice(
        "Fuse small operations",
        "Use fused variants where there are some: fused=True of optimizers, scaled_dot_product_attention, one large "
        "layer instead of several small ones, CUDA graphs.",
        bottleneck,
    )
    yield from (each for each in _advise_on_small_batch(state, bottleneck) if ProgramChange.BATCH_SIZE in each.changes)


def _advise_on_precision(state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    yield _advice(
        "Compute in bfloat16",
        "Matrix units multiply bfloat16 several times as fast as float32, and only half as many bytes are moved. "
        "torch.autocast keeps the parameters in float32.",
        bottleneck,
        {ProgramChange.PRECISION: "bfloat16"},
    )
    yield from _advise_on_model(state, bottleneck)


def _advise_on_computing(state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    if bottleneck.share >= _MIN_COMPUTING:
        yield from _advise_on_model(state, bottleneck)


def _advise_on_model(state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    program = state.program
    if program.has_convolutions and not program.is_channels_last:
        yield _advice(
            "Store images with the channels last",
            "Convolutions are quicker in the memory format channels_last: on GPUs above all in bfloat16, and on most "
            "CPUs.",
            bottleneck,
            {ProgramChange.CHANNELS_LAST: _YES},
        )
    yield from _advise_on_compiling(state, bottleneck)


def _advise_on_compiling(state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    if state.program.framework == "torch" and not state.program.is_compiled:
        yield _advice(
            "Compile the model",
            "torch.compile fuses operations and calls them with less Python. The first steps take longer.",
            bottleneck,
            {ProgramChange.COMPILE: _YES},
        )


def _advise_on_communication(_state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    yield _advice(
        "Exchange gradients less often, or fewer bytes",
        "Accumulate the gradients of several batches under no_sync(), use larger batches, or exchange them in bfloat16 "
        "(bf16_compress_hook). DistributedDataParallel hides the exchange behind the backward; your own calls of "
        "all_reduce do not.",
        bottleneck,
    )


def _advise_on_slow_rank(_state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    yield _advice(
        "Give all ranks the same work",
        f"{bottleneck.evidence[-1]} Check that its data is no larger, that nothing else runs on its host, and that "
        "work for a single rank, such as logs, is done less often.",
        bottleneck,
    )


def _advise_on_checkpoints(_state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    yield _advice(
        "Save checkpoints less often, or in the background",
        "The training waits while torch.save writes. Save every few minutes, copy the state and write it in a thread, "
        "or use torch.distributed.checkpoint.async_save.",
        bottleneck,
    )


def _advise_on_memory_growth(_state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    yield _advice(
        "Find what keeps growing",
        "Most often, a list keeps losses or outputs with their graphs: append loss.item() or loss.detach(). Caches of "
        "datasets and lists of batches grow too. More memory only delays the end.",
        bottleneck,
    )


def _advise_on_idle_gpus(_state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    yield idle_gpu_advice(bottleneck)


def idle_gpu_advice(bottleneck: Bottleneck) -> ProfileAdvice:
    if bottleneck.max_speedup is not None:
        return _advice(
            "Use all GPUs, or an instance with fewer",
            "Start one rank for each GPU: distribution={'torch_distributed': {'enabled': True}}, or torchrun.",
            bottleneck,
        )
    return _advice(
        "Move the model to the GPU, or use an instance without one",
        "The program leaves its GPU idle: model.to('cuda') and the same for each batch. A CPU build of torch cannot "
        "use it either.",
        bottleneck,
    )


def _advise_on_throttling(state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    if state.mean(HardwareMetric.JOB_THROTTLED_PERCENT):
        yield _advice(
            "Give the job more cores, or let it use fewer threads",
            "With more threads and data workers than cores, the job only uses up its share of each period sooner.",
            bottleneck,
        )
        return
    yield _advice(
        "Cool the GPU, or raise its power limit",
        "The hardware lowers its clock to stay within its limits; no change to the program helps.",
        bottleneck,
    )


def _advise_on_initialization(_state: SteadyState, bottleneck: Bottleneck) -> Iterator[ProfileAdvice]:
    yield _advice(
        "Start quicker",
        "Cache what the program prepares before its first step, stream data (input mode FastFile) instead of waiting "
        "for all of it, and keep warm workers for short jobs.",
        bottleneck,
    )


def _advise_on_loader_settings(state: SteadyState) -> Iterator[ProfileAdvice]:
    """Advise on settings that are wrong in any case, even if they cost little."""
    loader = state.loader
    cores = max(1, math.floor(cores_per_rank(state)))
    if loader is not None and state.cores and loader.workers > cores:
        wanted = measure_loader(state).best_workers
        if wanted <= cores:
            yield ProfileAdvice(
                _title_of_workers(wanted, loader),
                _reason_for_fewer_workers(state),
                BottleneckKind.TOO_MANY_WORKERS,
                {ProgramChange.LOADER_WORKERS: str(wanted)},
                speedup_without_phase(state, StepPhase.DATA_WAIT),
            )
    copies = state.share(StepPhase.HOST_TO_DEVICE)
    if state.is_on_gpu and loader is not None and not loader.is_pinning and copies >= _MIN_SHARE:
        yield ProfileAdvice(
            "Pin the memory of batches",
            f"Copies to the GPU take {percent(copies)} of the step; from pinned memory they are quicker.",
            BottleneckKind.HOST_TO_DEVICE,
            {ProgramChange.PIN_MEMORY: _YES},
            speedup_without(copies),
        )


def _advise_on_threads(state: SteadyState) -> Iterator[ProfileAdvice]:
    threads, cores = state.program.threads, cores_per_rank(state)
    whole = max(1, math.floor(cores))
    if state.is_on_gpu or threads is None or not cores or state.computing_share < _MIN_COMPUTING:
        return
    change = {ProgramChange.THREADS: str(whole)}
    if threads > whole:
        yield ProfileAdvice(
            f"Compute with {count(whole, 'thread')} instead of {threads}",
            f"{_cores_words(state)} More threads only take turns on them.",
            BottleneckKind.COMPUTE,
            change,
        )
    elif threads < whole and (state.cores_used or 0.0) < _FEW_THREADS_USED * (state.cores or 0.0):
        yield ProfileAdvice(
            f"Compute with {count(whole, 'thread')} instead of {threads}",
            " ".join(describe_cores(state.cores_used, state.cores)),
            BottleneckKind.COMPUTE,
            change,
            # Only what computes becomes quicker.
            speedup_without(state.computing_share * (1 - threads / whole)),
        )


def _title_of_workers(wanted: int, loader: LoaderFacts) -> str:
    return f"Use {count(wanted, 'data worker')} instead of {loader.workers or 'none'}"


def _reason_for_fewer_workers(state: SteadyState) -> str:
    return f"{_cores_words(state)} More workers take turns on them with the training, and each takes time to start."


def _cores_words(state: SteadyState) -> str:
    cores = cores_per_rank(state)
    if state.ranks_on_host > 1:
        return f"Each of the {state.ranks_on_host} ranks on the host has {count(cores, 'core')}."
    return f"There {'is' if cores == 1 else 'are'} {count(cores, 'core')}."


def _reason_for_workers(state: SteadyState, loader: LoaderFacts, load: LoaderLoad, wanted: int) -> str:
    compute_s = state.lead.step_s - state.lead.phases_s[StepPhase.DATA_WAIT]
    made = f"It takes {duration(load.fetch_s)} to make a batch and " if load.fetch_s is not None else "It takes "
    limit = f" {_cores_words(state)}" if load.is_computing else ""
    what = f"With {count(wanted, 'worker')}, " + (
        "more batches are ready in time" if loader.workers else "batches are made while the model computes"
    )
    return f"{made}{duration(compute_s)} to compute a step.{limit} {what}."


def _are_fetches_uneven(loader: LoaderFacts) -> bool:
    times = sorted(loader.fetch_s)
    return len(times) >= 8 and times[-1] > _UNEVEN_FETCHES * times[len(times) // 2]


def _advice(
    title: str, reason: str, bottleneck: Bottleneck, changes: Mapping[ProgramChange, str] | None = None
) -> ProfileAdvice:
    return ProfileAdvice(title, reason, bottleneck.kind, changes or {}, bottleneck.max_speedup)


_ADVISERS: Mapping[BottleneckKind, Callable[[SteadyState, Bottleneck], Iterator[ProfileAdvice]]] = {
    BottleneckKind.DATA_LOADING: _advise_on_data_loading,
    BottleneckKind.READING: _advise_on_reading,
    BottleneckKind.TOO_MANY_WORKERS: _advise_on_too_many_workers,
    BottleneckKind.HOST_TO_DEVICE: _advise_on_copies,
    BottleneckKind.SYNCHRONIZATION: _advise_on_synchronization,
    BottleneckKind.PYTHON: _advise_on_python,
    BottleneckKind.SMALL_BATCH: _advise_on_small_batch,
    BottleneckKind.SMALL_KERNELS: _advise_on_small_kernels,
    BottleneckKind.PRECISION: _advise_on_precision,
    BottleneckKind.COMMUNICATION: _advise_on_communication,
    BottleneckKind.SLOW_RANK: _advise_on_slow_rank,
    BottleneckKind.CHECKPOINTS: _advise_on_checkpoints,
    BottleneckKind.MEMORY_GROWTH: _advise_on_memory_growth,
    BottleneckKind.IDLE_GPU: _advise_on_idle_gpus,
    BottleneckKind.THROTTLING: _advise_on_throttling,
    BottleneckKind.INITIALIZATION: _advise_on_initialization,
    BottleneckKind.COMPUTE: _advise_on_computing,
}
assert set(_ADVISERS) == set(BottleneckKind), "there is advice on every kind"
