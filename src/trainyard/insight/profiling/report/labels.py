"""The words and colours of a report for phases, roles, metrics and bottlenecks."""

from collections.abc import Mapping

from trainyard.formats.profiles.contract import HardwareMetric, StepPhase
from trainyard.insight.profiling.traces.roles import TimeRole
from trainyard.insight.profiling.verdict.contract import BottleneckKind

PHASES: Mapping[StepPhase, str] = {
    StepPhase.DATA_WAIT: "data wait",
    StepPhase.HOST_TO_DEVICE: "host to device",
    StepPhase.FORWARD: "forward",
    StepPhase.BACKWARD: "backward",
    StepPhase.OPTIMIZER: "optimizer",
    StepPhase.COMMUNICATION: "communication",
    StepPhase.CHECKPOINT: "checkpoint",
    StepPhase.OTHER: "other",
}

ROLES: Mapping[TimeRole, str] = {
    TimeRole.KERNEL: "kernels",
    TimeRole.MEMCPY: "copies",
    TimeRole.MEMSET: "fills",
    TimeRole.COMMUNICATION: "communication",
    TimeRole.RUNTIME: "launches",
    TimeRole.DATA_LOADER: "data loader",
    TimeRole.CPU_EXEC: "CPU operators",
    TimeRole.OTHER: "other",
}

# By the names of the style sheet.
PHASE_COLOURS: Mapping[str, str] = {
    label: f"var(--phase-{phase.name.lower().replace('_', '-')})" for phase, label in PHASES.items()
}
ROLE_COLOURS: Mapping[str, str] = {
    ROLES[TimeRole.KERNEL]: "var(--phase-forward)",
    ROLES[TimeRole.MEMCPY]: "var(--phase-host-to-device)",
    ROLES[TimeRole.MEMSET]: "var(--series-6)",
    ROLES[TimeRole.COMMUNICATION]: "var(--phase-communication)",
    ROLES[TimeRole.RUNTIME]: "var(--phase-checkpoint)",
    ROLES[TimeRole.DATA_LOADER]: "var(--phase-data-wait)",
    ROLES[TimeRole.CPU_EXEC]: "var(--phase-optimizer)",
    ROLES[TimeRole.OTHER]: "var(--phase-other)",
}

BOTTLENECKS: Mapping[BottleneckKind, str] = {
    BottleneckKind.DATA_LOADING: "Data loading",
    BottleneckKind.READING: "Reading of data",
    BottleneckKind.TOO_MANY_WORKERS: "Too many data workers",
    BottleneckKind.HOST_TO_DEVICE: "Copies to the device",
    BottleneckKind.SYNCHRONIZATION: "Waiting for the device",
    BottleneckKind.PYTHON: "Python code",
    BottleneckKind.SMALL_BATCH: "Small batch",
    BottleneckKind.SMALL_KERNELS: "Small kernels",
    BottleneckKind.PRECISION: "Precision",
    BottleneckKind.COMMUNICATION: "Communication",
    BottleneckKind.SLOW_RANK: "A slow rank",
    BottleneckKind.CHECKPOINTS: "Checkpoints",
    BottleneckKind.MEMORY_GROWTH: "Growing memory",
    BottleneckKind.IDLE_GPU: "Idle GPU",
    BottleneckKind.THROTTLING: "Throttling",
    BottleneckKind.INITIALIZATION: "Initialization",
    BottleneckKind.COMPUTE: "Computing",
}


def series_label(metric: HardwareMetric, device: str) -> str:
    """Return the words for a series, such as GPU 0 memory, CPU, or I/O wait of core 3."""
    label = METRICS[metric]
    if device in ("", "total"):
        return label
    if label.startswith("GPU") and device.startswith("gpu"):
        return f"{device_label(device)}{label[3:]}"
    return f"{label} of {device_label(device)}" if device.startswith("core") else f"{label} for {device}"


def device_label(device: str) -> str:
    """Return gpu0 as GPU 0, and core3 as core 3."""
    for prefix, word in (("gpu", "GPU"), ("core", "core")):
        if device.startswith(prefix) and device[len(prefix) :].isdecimal():
            return f"{word} {device[len(prefix) :]}"
    return device


METRICS: Mapping[HardwareMetric, str] = {
    HardwareMetric.CPU_PERCENT: "CPU",
    HardwareMetric.IO_WAIT_PERCENT: "I/O wait",
    HardwareMetric.MEMORY_PERCENT: "Memory",
    HardwareMetric.MEMORY_BYTES: "Memory used",
    HardwareMetric.DISK_PERCENT: "Disk space",
    HardwareMetric.DISK_READ_BYTES_S: "Disk reads",
    HardwareMetric.DISK_WRITE_BYTES_S: "Disk writes",
    HardwareMetric.NETWORK_RECEIVED_BYTES_S: "Network received",
    HardwareMetric.NETWORK_SENT_BYTES_S: "Network sent",
    HardwareMetric.PRESSURE_SOME_PERCENT: "Pressure, some wait",
    HardwareMetric.PRESSURE_FULL_PERCENT: "Pressure, all wait",
    HardwareMetric.JOB_CPU_PERCENT: "CPU of the job",
    HardwareMetric.JOB_MEMORY_BYTES: "Memory used by the job",
    HardwareMetric.JOB_MEMORY_PERCENT: "Memory of the job",
    HardwareMetric.JOB_READ_BYTES_S: "Reads of the job",
    HardwareMetric.JOB_WRITE_BYTES_S: "Writes of the job",
    HardwareMetric.JOB_PROCESSES: "Processes of the job",
    HardwareMetric.JOB_THREADS: "Threads of the job",
    HardwareMetric.JOB_THROTTLED_PERCENT: "Stopped by its limit of cores",
    HardwareMetric.GPU_PERCENT: "GPU",
    HardwareMetric.GPU_MEMORY_BUSY_PERCENT: "GPU memory busy",
    HardwareMetric.GPU_MEMORY_PERCENT: "GPU memory",
    HardwareMetric.GPU_MEMORY_BYTES: "GPU memory used",
    HardwareMetric.GPU_POWER_WATTS: "GPU power",
    HardwareMetric.GPU_ENERGY_JOULES: "GPU energy",
    HardwareMetric.GPU_CLOCK_MHZ: "GPU clock",
    HardwareMetric.GPU_TEMPERATURE_CELSIUS: "GPU temperature",
    HardwareMetric.GPU_THROTTLE_REASONS: "GPU throttle reasons",
}
