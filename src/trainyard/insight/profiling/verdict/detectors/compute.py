"""How the model computes: batches and kernels that are too small, a precision that is too high, or nothing wrong."""

import re

from trainyard.formats.profiles.contract import HardwareMetric, StepPhase
from trainyard.insight.profiling.traces.roles import TimeRole
from trainyard.insight.profiling.verdict.contract import Bottleneck, BottleneckKind
from trainyard.insight.profiling.verdict.detectors.bounds import speedup_without
from trainyard.insight.profiling.verdict.steady_state import SteadyState
from trainyard.insight.profiling.verdict.wording import count, describe_cores, describe_gpu_use, duration, percent

_MIN_SHARE = 0.1
# A step on a CPU in which calling the operations can take longer than computing them lasts at most this long.
_SHORT_STEP_S = 0.02
# What a core computes at least if an operation is large enough, in floating-point operations per second.
_FLOPS_PER_CORE = 4e9
# Forward and backward of a dense layer: a product and a sum, three times, per parameter and sample.
_FLOPS_PER_PARAMETER = 6
# Where a parameter is used several times per sample, the operations are unknown; then a batch has to be this small.
_SMALL_BATCH = 8
# The optimizer takes the same time whatever the batch is.
_MIN_FIXED_SHARE = 0.08
# The loss and the loop around a model take at most this part of its computing.
_MAX_LOOP_SHARE = 0.3
_BUSY_GPU, _BUSY_ENOUGH_GPU = 0.8, 0.5
_SMALL_GPU_BATCH, _FREE_MEMORY_PERCENT = 16, 50
# Launching a kernel takes the program some microseconds, so kernels as short as this cannot fill a GPU.
_SHORT_KERNEL_S = 10e-6
# How much faster matrices are multiplied in bfloat16 than in float32, at most, by whether TensorFloat-32 is used.
_BFLOAT16_GAIN, _BFLOAT16_GAIN_OVER_TF32 = 16.0, 2.0
_TF32_SHARE = 0.3
_WITHOUT_TENSOR_CORES = re.compile(r"\b(?:K80|M60|P4|P40|P100|GTX)\b")


def find_small_batch(state: SteadyState) -> Bottleneck | None:
    """Return the time that steps take whatever their batch is, if that is most of it."""
    samples = state.program.samples_per_step
    if samples is None or not state.has_phases:
        return None
    return _small_batch_on_gpu(state, samples) if state.is_on_gpu else _small_batch_on_cpu(state, samples)


def _small_batch_on_cpu(state: SteadyState, samples: float) -> Bottleneck | None:
    program = state.program
    computing = state.computing_share
    compute_s = computing * state.step_s
    if not compute_s or compute_s > _SHORT_STEP_S or program.parameters is None:
        return None
    # The least time is a bound only where each parameter is used once per sample.
    cores = min(program.threads or 1, state.cores or 1)
    useful_s = _FLOPS_PER_PARAMETER * program.parameters * samples / (_FLOPS_PER_CORE * max(cores, 1))
    fixed = 1 - min(1.0, useful_s / compute_s)
    is_small = samples <= _SMALL_BATCH or (not program.has_convolutions and compute_s <= _SHORT_STEP_S / 4)
    if not is_small or fixed < 0.5 or state.share(StepPhase.OPTIMIZER) < _MIN_FIXED_SHARE * computing:
        return None
    # The loss and the loop around the model cost the same for a large batch too; more than that has other causes.
    share = fixed * (computing + min(state.share(StepPhase.OTHER), _MAX_LOOP_SHARE * computing))
    evidence = [
        f"A step with {count(samples, 'sample')} takes {duration(state.step_s)}.",
        f"The optimizer, whose work does not depend on the batch, takes {percent(state.share(StepPhase.OPTIMIZER))} of "
        "it.",
    ]
    if not program.has_convolutions:
        evidence.append(
            f"A model of {count(program.parameters, 'parameter')} can compute such a batch in about "
            f"{duration(useful_s)}; the step computes for {duration(compute_s)}."
        )
    evidence += describe_cores(state.cores_used, state.cores)
    title = f"Small batch: {percent(share)} of the step would take just as long with a larger batch."
    return Bottleneck(BottleneckKind.SMALL_BATCH, title, evidence, share)


def _small_batch_on_gpu(state: SteadyState, samples: float) -> Bottleneck | None:
    idle = _launch_bound_share(state)
    memory = max(
        (state.mean(HardwareMetric.GPU_MEMORY_PERCENT, device) or 0.0)
        for device in [*state.window(HardwareMetric.GPU_MEMORY_PERCENT), "gpu0"]
    )
    if idle < _MIN_SHARE or samples > _SMALL_GPU_BATCH or memory > _FREE_MEMORY_PERCENT:
        return None
    evidence = [
        f"A step with {count(samples, 'sample')} takes {duration(state.step_s)}.",
        *describe_gpu_use(state.gpu_use),
        f"{memory:.0f} % of the GPU's memory is in use.",
    ]
    title = f"Small batch: the GPU waits for its next operation {percent(idle)} of the time."
    return Bottleneck(BottleneckKind.SMALL_BATCH, title, evidence, idle)


def find_small_kernels(state: SteadyState) -> Bottleneck | None:
    """Return the time in which a GPU waits for launches."""
    if not state.is_on_gpu:
        return None
    share = _launch_bound_share(state)
    if share < _MIN_SHARE:
        return None
    kernels = [kernel for trace in state.traces for kernel in trace.kernels]
    calls = sum(kernel.calls for kernel in kernels)
    evidence = [
        f"The program spends {percent(state.computing_share)} of the step in the model and the optimizer.",
        *describe_gpu_use(state.gpu_use),
    ]
    if calls:
        mean_s = sum(kernel.total_s for kernel in kernels) / calls
        if mean_s > 5 * _SHORT_KERNEL_S:
            return None
        evidence.append(f"The {count(calls, 'kernel')} in the traces take {duration(mean_s)} each, on average.")
    title = f"Small kernels: the GPU waits for the program to launch the next one {percent(share)} of the time."
    return Bottleneck(BottleneckKind.SMALL_KERNELS, title, evidence, share, speedup_without(share))


def _launch_bound_share(state: SteadyState) -> float:
    """Return the share of the step in which the program runs the model and the GPU has nothing to do."""
    if state.gpu_use is None or state.gpu_use >= _BUSY_GPU or not state.has_phases:
        return 0.0
    # What the GPU idles while the program waits for data, copies or does something else has another cause.
    return max(0.0, state.computing_share - state.gpu_use)


def find_precision(state: SteadyState) -> Bottleneck | None:
    """Return the computing in float32 on a GPU that has quicker units for bfloat16 or float16."""
    program, names = state.program, " ".join(state.instance.gpus)
    is_single = program.precision == "float32"
    if not state.is_on_gpu or not is_single or state.gpu_use is None or _WITHOUT_TENSOR_CORES.search(names):
        return None
    kernels = state.role_share(TimeRole.KERNEL)
    busy = kernels if kernels is not None else min(state.gpu_use, 1 - state.share(StepPhase.COMMUNICATION))
    if busy < _BUSY_ENOUGH_GPU:
        return None
    on_tensor_cores = max((gpu.tensor_core_share for trace in state.traces for gpu in trace.gpus), default=0.0)
    gain = _BFLOAT16_GAIN_OVER_TF32 if on_tensor_cores >= _TF32_SHARE else _BFLOAT16_GAIN
    evidence = [
        f"The model computes in {program.precision}.",
        f"The GPU computes {percent(busy)} of the time.",
    ]
    if state.traces:
        evidence.append(f"Kernels on tensor cores take {percent(on_tensor_cores)} of the time that all kernels take.")
    title = f"Precision: the GPU computes in float32 {percent(busy)} of the time."
    # Half of the time is what one may expect of half of the bytes.
    return Bottleneck(BottleneckKind.PRECISION, title, evidence, busy / 2, speedup_without(busy * (1 - 1 / gain)))


def find_compute(state: SteadyState, *, is_alone: bool) -> Bottleneck:
    """Return the computing itself, which is what remains if nothing else takes time."""
    share = state.computing_share
    evidence = [f"A step takes {duration(state.step_s)}."]
    if state.has_phases:
        evidence.append(
            f"Forward takes {percent(state.share(StepPhase.FORWARD))} of it, backward "
            f"{percent(state.share(StepPhase.BACKWARD))}, the optimizer {percent(state.share(StepPhase.OPTIMIZER))}."
        )
        evidence.append(f"The program waits for data {percent(state.share(StepPhase.DATA_WAIT))} of the time.")
    if state.is_on_gpu:
        evidence += describe_gpu_use(state.gpu_use)
    else:
        evidence += describe_cores(state.cores_used, state.cores)
    title = f"Computing: {percent(share)} of the step is the model itself"
    title += "; nothing outside it holds the job up." if is_alone else "."
    return Bottleneck(BottleneckKind.COMPUTE, title, evidence, share)
