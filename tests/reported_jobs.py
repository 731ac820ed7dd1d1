"""Sources of profiler reports: a realistic job on two GPUs whose data loader is too slow, and its parts."""

import numpy as np

from tests.profiles import START_US, at_us, gpu_hardware, job, step_times, with_evaluations
from tests.recorded_traces import Event, complete, kernel, launch, step, trace_of
from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries, ProgramChange, StepPhase
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.insight.profiling.contract import (
    HardwareSamples,
    HotLine,
    InstanceFacts,
    JobProfile,
    LoaderFacts,
    MemoryHolder,
    ProgramFacts,
    RankProfile,
)
from trainyard.insight.profiling.report.contract import ReportedRule, ReportSource
from trainyard.insight.profiling.traces.trace_profile import TraceProfile, profile_trace
from trainyard.insight.profiling.verdict.contract import (
    Bottleneck,
    BottleneckKind,
    ProfileAdvice,
    ProfileCosts,
    ProfileVerdict,
    Regression,
)
from trainyard.insight.rules.profiler.catalog import profiler_rule_values, report_rules

SECONDS = 2400
JOB = "resnet50-flowers-2026-11-18-07-30-12-481"
WAITING = {
    StepPhase.DATA_WAIT: 0.44,
    StepPhase.HOST_TO_DEVICE: 0.04,
    StepPhase.FORWARD: 0.15,
    StepPhase.BACKWARD: 0.26,
    StepPhase.OPTIMIZER: 0.05,
    StepPhase.COMMUNICATION: 0.04,
    StepPhase.OTHER: 0.02,
}


def slow_loading_source() -> ReportSource:
    """Everything that a report can say about one job."""
    profile = slow_loading_job()
    return ReportSource(
        profile=profile,
        verdict=slow_loading_verdict(),
        written_us=at_us(SECONDS + 4),
        region="eu-west-1",
        job_arn=f"arn:aws:sagemaker:eu-west-1:111122223333:training-job/{JOB}",
        rules=checked_rules(profile),
        traces={"s3://bucket/run/profiler-output/framework/pytorch/detailed_profiling/worker_0.json": gpu_trace()},
    )


def slow_loading_job() -> JobProfile:
    random = np.random.default_rng(5)
    busy = np.clip(46 + 26 * np.sin(np.arange(SECONDS) / 9) + 9 * random.standard_normal(SECONDS), 0, 100)
    cycle = np.arange(SECONDS) % 600
    busy = np.where(cycle > 590, 4.0, busy)
    reads = np.where(cycle < 300, 55.0, 12.0) + 6 * random.standard_normal(SECONDS)
    hardware = gpu_hardware(
        SECONDS,
        gpus=2,
        cores=8,
        busy=17.0,
        gpu_busy=busy,
        gpu_memory=41.0,
        starting_s=95,
        hot_cores=2,
        read_mb_s=np.abs(reads),
    )
    ranks = []
    for number in range(2):
        added = np.where(np.arange(7450) % 1900 == 1750, 6.0, 0.0)
        usual = np.full(7450, 0.29 + 0.012 * number)
        steps = step_times(
            SECONDS,
            step_s=usual,
            shares=WAITING,
            begin_s=95,
            added_s={StepPhase.CHECKPOINT if number == 0 else StepPhase.COMMUNICATION: added},
            noise=0.12,
            seed=number,
        )
        steps = with_evaluations(steps, every=1900, seconds=8.0)
        ranks.append(RankProfile(f"worker_{number}", "algo-1", number, steps, _program(number)))
    made = job(SECONDS, hardware, *ranks, cores=8, gpus=2)
    facts = InstanceFacts("ml.g5.2xlarge", 8.0, 32 * 1024**3, ("NVIDIA A10G", "NVIDIA A10G"), 1.212, "USD")
    return JobProfile(
        JOB, START_US, at_us(SECONDS), {"algo-1": _spread(made.hardware["algo-1"])}, {"algo-1": facts}, made.ranks
    )


def _spread(hardware: HardwareSamples) -> HardwareSamples:
    """Return the samples with a second GPU that differs from the first, and a network that is used."""
    series = dict(hardware.series)
    first = series[HardwareSeries(HardwareMetric.GPU_PERCENT, "gpu0")]
    series[HardwareSeries(HardwareMetric.GPU_PERCENT, "gpu1")] = np.clip(np.roll(first, 11) * 0.93, 0, 100)
    series[HardwareSeries(HardwareMetric.NETWORK_RECEIVED_BYTES_S)] = np.abs(
        2e6 + 4e5 * np.sin(np.arange(SECONDS) / 40)
    )
    return HardwareSamples(hardware.times_us, series)


def _program(number: int) -> ProgramFacts:
    random = np.random.default_rng(number)
    loader = LoaderFacts(
        "DataLoader(Flowers)",
        workers=2,
        is_pinning=False,
        prefetch=2,
        batch_size=64,
        fetch_s=tuple(np.abs(random.gamma(9, 0.03, 400))),
        wait_s=tuple(np.abs(random.gamma(2, 0.06, 400))),
    )
    lines = (
        HotLine(StepPhase.DATA_WAIT, "train_epoch", "/opt/ml/code/train.py", 84, "queue.get", 1630),
        HotLine(StepPhase.BACKWARD, "train_epoch", "/opt/ml/code/train.py", 91, "Tensor.backward", 920),
        HotLine(StepPhase.FORWARD, "forward", "/opt/ml/code/model.py", 47, "conv2d", 540),
        HotLine(StepPhase.OPTIMIZER, "train_epoch", "/opt/ml/code/train.py", 93, "SGD.step", 170),
        HotLine(StepPhase.OTHER, "log_metrics", "/opt/ml/code/metrics.py", 22, "json.dumps", 65),
    )
    holders = (("activations", 5.9), ("optimizer", 0.2), ("parameters", 0.1), ("gradients", 0.1), ("other", 0.7))
    return ProgramFacts(
        "torch",
        "2.13.0",
        device="cuda",
        precision="float32",
        threads=4,
        parameters=25_557_032,
        has_convolutions=True,
        samples_per_step=64.0,
        loaders=(loader,),
        hot_lines=lines,
        stack_samples=3600,
        memory_holders=tuple(MemoryHolder(name, int(size * 1e9)) for name, size in holders),
    )


def slow_loading_verdict() -> ProfileVerdict:
    loading = Bottleneck(
        BottleneckKind.DATA_LOADING,
        "Two data workers make a batch in 270 ms each, so a batch arrives every 135 ms; a step computes for 160 ms.",
        (
            "In a step of 291 ms, the program waits 128 ms (44 %) for its data.",
            "A worker takes 270 ms for a batch of 64 samples; the other 6 cores could run more workers.",
            "The GPUs are busy for 43 % of the time, and idle while the program waits.",
            "1,630 of 3,600 samples of the stack are at train.py:84, in queue.get.",
        ),
        0.44,
        1.79,
    )
    precision = Bottleneck(
        BottleneckKind.PRECISION,
        "The model computes in float32 on GPUs with tensor cores for bfloat16.",
        ("No kernel of the trace uses tensor cores.",),
        0.28,
        1.39,
    )
    checkpoints = Bottleneck(
        BottleneckKind.CHECKPOINTS, "A checkpoint every 1,900 steps stops all ranks for 6 s.", (), 0.011, 1.01
    )
    advice = (
        ProfileAdvice(
            "Use 6 data workers instead of 2",
            "The cores of the instance are free for them, and 6 workers make batches as quickly as the GPUs use them.",
            BottleneckKind.DATA_LOADING,
            {ProgramChange.LOADER_WORKERS: "6", ProgramChange.PERSISTENT_WORKERS: "true"},
            1.79,
        ),
        ProfileAdvice(
            "Train in bfloat16",
            "autocast gives convolutions and matrix products to the tensor cores of the A10G.",
            BottleneckKind.PRECISION,
            {ProgramChange.PRECISION: "bfloat16"},
            1.39,
        ),
        ProfileAdvice(
            "Pin the memory of batches",
            "Copies to the device take 4 % of a step and could overlap with computing.",
            BottleneckKind.HOST_TO_DEVICE,
            {ProgramChange.PIN_MEMORY: "true"},
            1.04,
        ),
    )
    costs = ProfileCosts(0.2913, 439.4, "USD", 0.0000981, 0.766, 63.9, 0.499)
    regression = Regression(
        "A step takes 18 % longer than in resnet50-flowers-2026-11-11, because of data wait.",
        1.18,
        "resnet50-flowers-2026-11-11",
        StepPhase.DATA_WAIT,
    )
    summary = "The GPUs wait for data in 44 % of each step; loading it faster makes a step up to 1.79 times as fast."
    return ProfileVerdict(summary, loading, (precision, checkpoints), advice, costs, regression)


def checked_rules(profile: JobProfile) -> list[ReportedRule]:
    """Let every profiler rule check the profile."""
    found = []
    values = profiler_rule_values("ProfilerReport", {})
    for name, rule in report_rules({}):
        check = rule.check(profile)
        status = RuleStatus.ISSUES_FOUND if check.findings else RuleStatus.NO_ISSUES_FOUND
        known = {each.name: values[f"{rule.name}_{each.name}"] for each in rule.parameters}
        found.append(ReportedRule(name, rule.name, rule.purpose, rule.recommendation, known, status, check))
    return found


_FLOATS = ["float"] * 3
_INPUTS: dict[str, dict[str, object]] = {
    "aten::addmm": {"Input Dims": [[1000], [64, 2048], [2048, 1000]], "Input type": _FLOATS},
    "aten::mm": {"Input Dims": [[64, 1000], [1000, 2048]], "Input type": _FLOATS[:2]},
    "aten::bmm": {"Input Dims": [[64, 8, 16], [64, 16, 8]], "Input type": _FLOATS[:2]},
}


def gpu_trace(*, steps: int = 6) -> TraceProfile:
    """Return what a small handmade trace of a GPU says."""
    events: list[Event] = []
    number = 0
    kernels = (
        ("aten::conv2d", "sm80_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16", 520.0),
        ("aten::batch_norm", "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>", 180.0),
        ("aten::relu_", "void at::native::vectorized_elementwise_kernel<4, at::native::relu_kernel>(int)", 90.0),
        ("aten::addmm", "ampere_sgemm_128x64_tn", 240.0),
        ("aten::mm", "ampere_sgemm_64x64_nn", 75.0),
        ("aten::bmm", "ampere_sgemm_32x32_sliced1x4_nn", 6.0),
        ("aten::convolution_backward", "sm80_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc", 980.0),
        ("aten::_foreach_add_", "void at::native::multi_tensor_apply_kernel<TensorListMetadata<2> >", 130.0),
    )
    for place in range(steps):
        start = 1000.0 + place * 4200
        events.append(step(100 + place, start, 4200))
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        events.append(complete("user_annotation", name, start + 20, 1500 + 60 * (place % 3)))
        at, device_at = start + 1700, start + 1760
        for operator, device_name, duration in kernels:
            number += 1
            arguments: dict[str, object] = {"External id": number, **_INPUTS.get(operator, {})}
            events.append(complete("cpu_op", operator, at, 110, args=arguments))
            events.append(launch(at + 50, 12, number, operator=number))
            known: dict[str, object] = {"External id": number, "blocks per SM": 2.4, "est. achieved occupancy %": 38.0}
            known |= {"grid": [196, 2, 1], "block": [256, 1, 1], "registers per thread": 96, "shared memory": 32768}
            events.append(kernel(device_name, device_at, duration, number, **known))
            at, device_at = at + 140, device_at + duration + 8
        for change, offset in ((64 * 2**20, 1750.0), (128 * 2**20, 1900.0), (-192 * 2**20, 3900.0)):
            held = 900 * 2**20 + (max(change, 0) if change > 0 else 0)
            held_now = {"Device Type": 1, "Device Id": 0, "Bytes": change, "Addr": 4096 + abs(change)}
            held_now |= {"Total Allocated": held, "Total Reserved": 1536 * 2**20}
            memory = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 10, "tid": 1, "s": "t"}
            events.append({**memory, "ts": start + offset, "args": held_now})
    gpu: dict[str, object] = {
        "id": 0,
        "name": "NVIDIA A10G",
        "totalGlobalMem": 24 * 2**30,
        "computeMajor": 8,
        "computeMinor": 6,
    }
    gpu |= {"numSms": 80, "maxThreadsPerMultiprocessor": 1536, "warpSize": 32}
    return profile_trace(trace_of(events, deviceProperties=[gpu]))
