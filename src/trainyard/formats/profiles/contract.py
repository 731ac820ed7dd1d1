"""The values of a profile: series of the hardware, and times of steps divided into phases.

Times are Unix microseconds. They advance with the boot clock of the instance, so that a change of its clock neither
reorders nor stretches them.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class HardwareMetric(StrEnum):
    """What is sampled, in the unit of its name. A series has one metric of one device.

    Percentages of `CPU` metrics are of one core for a core, and of all cores that the instance may use for "total".
    Those of the machine include other jobs; `JOB` metrics are of the processes of the instance alone.
    """

    CPU_PERCENT = "cpu_percent"  # device: total, core0, core1 …
    IO_WAIT_PERCENT = "io_wait_percent"  # device: total, core0, core1 …
    MEMORY_PERCENT = "memory_percent"
    MEMORY_BYTES = "memory_bytes"
    DISK_PERCENT = "disk_percent"  # used space of the disk with the job's folders
    DISK_READ_BYTES_S = "disk_read_bytes_s"
    DISK_WRITE_BYTES_S = "disk_write_bytes_s"
    NETWORK_RECEIVED_BYTES_S = "network_received_bytes_s"
    NETWORK_SENT_BYTES_S = "network_sent_bytes_s"
    # Share of time in which some, or all, runnable processes waited; device: cpu, io, memory.
    PRESSURE_SOME_PERCENT = "pressure_some_percent"
    PRESSURE_FULL_PERCENT = "pressure_full_percent"
    JOB_CPU_PERCENT = "job_cpu_percent"  # of the cores that the job may use
    JOB_MEMORY_BYTES = "job_memory_bytes"
    JOB_MEMORY_PERCENT = "job_memory_percent"  # of the memory that the job may use
    JOB_READ_BYTES_S = "job_read_bytes_s"
    JOB_WRITE_BYTES_S = "job_write_bytes_s"
    JOB_PROCESSES = "job_processes"
    JOB_THREADS = "job_threads"
    JOB_THROTTLED_PERCENT = "job_throttled_percent"  # share of time in which the limit of cores stopped it
    GPU_PERCENT = "gpu_percent"  # device: gpu0, gpu1 …, as for all below
    GPU_MEMORY_BUSY_PERCENT = "gpu_memory_busy_percent"
    GPU_MEMORY_PERCENT = "gpu_memory_percent"
    GPU_MEMORY_BYTES = "gpu_memory_bytes"
    GPU_POWER_WATTS = "gpu_power_watts"
    GPU_ENERGY_JOULES = "gpu_energy_joules"  # since the first sample
    GPU_CLOCK_MHZ = "gpu_clock_mhz"
    GPU_TEMPERATURE_CELSIUS = "gpu_temperature_celsius"
    GPU_THROTTLE_REASONS = "gpu_throttle_reasons"  # the bits of NVML


@dataclass(frozen=True, slots=True, order=True)
class HardwareSeries:
    """One metric of one device. `device` is empty if an instance has one of its kind."""

    metric: HardwareMetric
    device: str = ""


class StepPhase(IntEnum):
    """What a step spends its time on, on the training thread; the value is the column in a table of steps.

    Every moment of a step has one phase. OTHER is what no phase claims.
    """

    DATA_WAIT = 0  # waiting for the data loader
    HOST_TO_DEVICE = 1
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4
    COMMUNICATION = 5
    CHECKPOINT = 6
    OTHER = 7


class ProgramChange(StrEnum):
    """What can be changed in a program from outside; values are strings."""

    LOADER_WORKERS = "loader_workers"
    PIN_MEMORY = "pin_memory"
    PREFETCH_FACTOR = "prefetch_factor"
    PERSISTENT_WORKERS = "persistent_workers"
    BATCH_SIZE = "batch_size"
    THREADS = "threads"
    PRECISION = "precision"
    CHANNELS_LAST = "channels_last"
    COMPILE = "compile"


# Environment variables of a job whose program is changed from outside for a trial: a JSON object of strings by
# ProgramChange, and the number of training steps after which the program ends.
CHANGES_VARIABLE = "TRAINYARD_TRIAL_CHANGES"
STEPS_VARIABLE = "TRAINYARD_TRIAL_STEPS"

# Where in its folder of profiles a program writes what is not complete yet, and is not stored.
PARTS_FOLDER = ".parts"
# The tag of the jobs of a verification; the value is the name of the job whose advice they try.
TRIAL_TAG = "trainyard:trial"
