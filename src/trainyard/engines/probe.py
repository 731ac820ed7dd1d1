"""What this machine can do for jobs, found by trying it.

Every result states its consequence, so that a person knows what to fix and what to leave. Nothing is left behind:
whatever enters a namespace or mounts something runs in a child process (namespace_probe.py). Standard library only.
"""

import contextlib
import ctypes
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainyard.engines.images import installed_version

_NAMESPACE_PROBE = Path(__file__).with_name("namespace_probe.py")
_PROBE_TIMEOUT_S = 20
_PROGRAM_TIMEOUT_S = 10
_MIN_DISK_BYTES = 5 * 1024**3
# cgroup v1 reports a number above this where there is no limit.
_CGROUP_V1_UNLIMITED = 1 << 60

# The frameworks whose images map to the yard's own Python.
FRAMEWORK_PACKAGES = ("torch", "tensorflow", "scikit-learn", "xgboost")


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Whether something works here, and the evidence."""

    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing that this machine can or cannot do, and the consequence for jobs."""

    name: str
    ok: bool
    detail: str
    consequence: str


@dataclass(frozen=True, slots=True)
class MachineCapacity:
    """What jobs on this machine can share, within the limits of this process's cgroup."""

    cores: float
    memory_bytes: int
    gpus: int
    disk_free_bytes: int


@dataclass(frozen=True, slots=True)
class MachineProbe:
    """One row of the table of probes: what to run, and the consequence of success and of failure."""

    name: str
    run: Callable[[Path], ProbeResult]
    if_so: str
    if_not: str


def probe_machine(folder: Path) -> Iterator[Capability]:
    """Yield each capability in turn. `folder` is where the yard keeps its files, or will keep them."""
    existing = _existing(folder)
    for question in PROBES:
        answer = question.run(existing)
        yield Capability(question.name, answer.ok, answer.detail, question.if_so if answer.ok else question.if_not)


def probe_frameworks() -> Iterator[Capability]:
    """Yield which frameworks the Python of this process has: that of the yard, in which jobs run by default."""
    for package in FRAMEWORK_PACKAGES:
        version = installed_version(package)
        if version is None:
            how = f"`{sys.executable} -m pip install {package}` brings it."
            yield Capability(package, ok=False, detail="not installed", consequence=how)
        else:
            yield Capability(package, ok=True, detail=version, consequence="Jobs find it without requirements.txt.")


def measure_capacity(folder: Path) -> MachineCapacity:
    """Read the capacity from the kernel, within a millisecond. GPUs are counted by their device files."""
    devices = [entry for entry in Path("/dev").iterdir() if re.fullmatch(r"nvidia\d+", entry.name)]
    return MachineCapacity(_cores(), _memory(), len(devices), shutil.disk_usage(_existing(folder)).free)


def probe_isolation(instances: int) -> ProbeResult:
    """Whether that many instances can be isolated from every network but their own."""
    return _probe_namespace("net" if instances == 1 else "bridge")


def probe_overlay(folder: Path) -> ProbeResult:
    """Try in the home folder, because not every file system can be an upper layer."""
    return _probe_namespace("overlay", folder if os.access(folder, os.W_OK) else None)


def probe_fuse(_: Path) -> ProbeResult:
    if not Path("/dev/fuse").exists():
        return ProbeResult(ok=False, detail="/dev/fuse does not exist")
    return _probe_namespace("fuse")


def probe_cgroups(_: Path) -> ProbeResult:
    """Whether this process can create cgroups with limits below its own."""
    usable = {name: group for group in _own_cgroups() if _can_divide(group.folder) for name in group.controllers}
    found = [name for name in ("cpu", "memory", "pids") if name in usable]
    versions = sorted({"v2" if usable[name].is_v2 else "v1" for name in found})
    detail = f"writable: {', '.join(found) or 'none'}" + (f" ({', '.join(versions)})" if versions else "")
    return ProbeResult(len(found) == 3, detail)


def probe_gpus(_: Path) -> ProbeResult:
    """Ask NVIDIA's library, because device files alone do not prove that the driver works."""
    try:
        names = _nvml_names()
    except OSError as error:
        return ProbeResult(ok=False, detail=str(error))
    return ProbeResult(bool(names), ", ".join(names) or "the driver works and sees none")


def probe_ray(_: Path) -> ProbeResult:
    if importlib.util.find_spec("ray") is None:
        return ProbeResult(ok=False, detail=f"not installed for {sys.executable}")
    return ProbeResult(ok=True, detail=f"ray {importlib.metadata.version('ray')}")


def probe_podman(_: Path) -> ProbeResult:
    return _ask_program("podman", ["version", "--format", "{{.Client.Version}}"])


def probe_docker(_: Path) -> ProbeResult:
    return _ask_program("docker", ["version", "--format", "{{.Server.Version}}"])


def probe_uv(_: Path) -> ProbeResult:
    return _ask_program("uv", ["--version"])


def probe_disk(folder: Path) -> ProbeResult:
    free = shutil.disk_usage(folder).free
    return ProbeResult(free >= _MIN_DISK_BYTES, f"{free / 1024**3:.1f} GiB free at {folder}")


def probe_clock(_: Path) -> ProbeResult:
    """A time before this program was written is certainly wrong; the kernel knows whether a service adjusts it."""
    now = datetime.now(UTC)
    synchronised = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(256)) != 5  # TIME_ERROR
    service = "kept by a time service" if synchronised else "kept by no time service that the kernel knows of"
    return ProbeResult(now.year >= 2026, f"{now:%Y-%m-%d %H:%M:%S} UTC, {service}")


PROBES: Sequence[MachineProbe] = (
    MachineProbe(
        "user namespaces",
        lambda _: _probe_namespace("user"),
        "Jobs are sandboxed without root.",
        "Jobs run as plain processes that see what this user sees; allowing unprivileged user namespaces changes that.",
    ),
    MachineProbe(
        "mount namespaces",
        lambda _: _probe_namespace("mount"),
        "Each instance has a private /opt/ml and a read-only system.",
        "Instances cannot have a private /opt/ml; scripts must take their folders from the SM_* variables.",
    ),
    MachineProbe(
        "pid namespaces",
        lambda _: _probe_namespace("pid"),
        "When a job ends, every process it started ends with it.",
        "Processes of a job are ended by group; one that leaves its group may stay behind.",
    ),
    MachineProbe(
        "network namespaces",
        lambda _: _probe_namespace("net"),
        "EnableNetworkIsolation cuts a job off from every network.",
        "Jobs with EnableNetworkIsolation are refused.",
    ),
    MachineProbe(
        "network bridges",
        lambda _: _probe_namespace("bridge"),
        "Isolated jobs may have several instances that reach each other and nothing else.",
        "Isolated jobs can have one instance only.",
    ),
    MachineProbe(
        "overlayfs",
        probe_overlay,
        "File channels are writable views of the stored objects and cost no copy.",
        "File channels are copied to each instance.",
    ),
    MachineProbe(
        "cgroups",
        probe_cgroups,
        "Memory, CPU and process limits of instance types are enforced.",
        "Limits of instance types without a writable controller are not enforced, and a job's description says so.",
    ),
    MachineProbe(
        "FUSE",
        probe_fuse,
        "FastFile channels work on objects in a remote S3.",
        "FastFile channels work on local objects only; those in a remote S3 are downloaded.",
    ),
    MachineProbe(
        "GPUs",
        probe_gpus,
        "GPU instance types get real GPUs.",
        "GPU instance types have no GPU here; training runs on the CPU.",
    ),
    MachineProbe(
        "Ray",
        probe_ray,
        "Jobs can run on a Ray cluster.",
        "Jobs run on this machine only; `pip install 'trainyard[ray]'` adds clusters.",
    ),
    MachineProbe(
        "podman",
        probe_podman,
        "Jobs can run in images of their own.",
        "Without a container engine an image must map to an environment of this machine.",
    ),
    MachineProbe(
        "docker",
        probe_docker,
        "Jobs can run in images of their own.",
        "Without a container engine an image must map to an environment of this machine.",
    ),
    MachineProbe(
        "uv",
        probe_uv,
        "A job's requirements.txt is installed fast and cached.",
        "A job's requirements.txt is installed by pip, which takes longer.",
    ),
    MachineProbe(
        "disk space",
        probe_disk,
        "There is space for objects, logs and environments.",
        "Uploads and environments may fill the disk soon; free some space, or move the home folder with --home.",
    ),
    MachineProbe(
        "clock",
        probe_clock,
        "Signatures are accepted from clients whose clocks differ by less than 15 minutes.",
        "Signatures and certificates will be refused; set the clock.",
    ),
)


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    while not folder.is_dir():
        folder = folder.parent
    return folder


def _probe_namespace(name: str, parent: Path | None = None) -> ProbeResult:
    with tempfile.TemporaryDirectory(prefix="trainyard-trial-", dir=parent, ignore_cleanup_errors=True) as folder:
        try:
            result = subprocess.run(
                [sys.executable, "-S", "-P", str(_NAMESPACE_PROBE), name, folder],
                capture_output=True,
                text=True,
                timeout=_PROBE_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return ProbeResult(ok=False, detail=f"tried: {error}")
    if result.returncode == 0:
        return ProbeResult(ok=True, detail="tried: works")
    last = result.stderr.strip().splitlines()[-1:] or [f"ended with {result.returncode}"]
    return ProbeResult(ok=False, detail=f"tried: {last[0]}")


def _ask_program(name: str, arguments: Sequence[str]) -> ProbeResult:
    in_environment = Path(sys.executable).with_name(name)
    program = shutil.which(name) or (str(in_environment) if in_environment.exists() else None)
    if program is None:
        return ProbeResult(ok=False, detail="not found")
    try:
        result = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=_PROGRAM_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return ProbeResult(ok=False, detail=f"{program} does not answer: {error}")
    if result.returncode:
        last = result.stderr.strip().splitlines()[-1:] or [f"ended with {result.returncode}"]
        return ProbeResult(ok=False, detail=f"{program} does not answer: {last[0]}")
    return ProbeResult(ok=True, detail=f"{program}: {result.stdout.strip()}")


@dataclass(frozen=True, slots=True)
class _Cgroup:
    folder: Path
    controllers: frozenset[str]
    is_v2: bool


def _own_cgroups() -> list[_Cgroup]:
    """Return the cgroups of this process: one of v2, and one for each hierarchy of v1."""
    mounts = _cgroup_mounts()
    groups = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        mounted = mounts.get(names)
        if mounted is None:
            continue
        folder = mounted / path.lstrip("/")
        # In a container the path is often the one outside of it.
        folder = folder if folder.is_dir() else mounted
        groups.append(_Cgroup(folder, _controllers(folder, names), names == ""))
    return groups


def _cgroup_mounts() -> dict[str, Path]:
    """Return where each hierarchy is mounted, by its list of controllers as in /proc/self/cgroup; "" is v2."""
    mounts = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        target = Path(before.split(" ")[4])
        if kind == "cgroup2":
            mounts[""] = target
        elif kind == "cgroup":
            for line_names in _v1_names(options):
                mounts.setdefault(line_names, target)
    return mounts


def _v1_names(options: str) -> Iterator[str]:
    known = {line.split("\t")[0] for line in Path("/proc/cgroups").read_text().splitlines()[1:]}
    mounted = [name for name in options.split(",") if name in known]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        names = line.split(":", 2)[1]
        if mounted and set(names.split(",")) == set(mounted):
            yield names


def _controllers(folder: Path, names: str) -> frozenset[str]:
    if names:
        return frozenset(names.split(","))
    with contextlib.suppress(OSError):
        return frozenset((folder / "cgroup.controllers").read_text().split())
    return frozenset()


def _can_divide(folder: Path) -> bool:
    trial = folder / f"trainyard-trial-{os.getpid()}"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return False
    return True


def _nvml_names() -> list[str]:
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        raise OSError("no NVIDIA driver (libnvidia-ml.so.1 is not found)") from None
    code = nvml.nvmlInit_v2()
    if code:
        raise OSError(f"the NVIDIA driver does not start (NVML error {code})")
    try:
        count = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        return [_nvml_name(nvml, index) for index in range(count.value)]
    finally:
        nvml.nvmlShutdown()


def _nvml_name(nvml: ctypes.CDLL, index: int) -> str:
    device, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
    nvml.nvmlDeviceGetName(device, name, len(name))
    return name.value.decode(errors="replace")


def _cores() -> float:
    cores = float(len(os.sched_getaffinity(0)))
    for group in _own_cgroups():
        with contextlib.suppress(OSError, ValueError):
            quota, period = (group.folder / "cpu.max").read_text().split()
            cores = min(cores, int(quota) / int(period))
        with contextlib.suppress(OSError, ValueError):
            quota_us = int((group.folder / "cpu.cfs_quota_us").read_text())
            if quota_us > 0:
                cores = min(cores, quota_us / int((group.folder / "cpu.cfs_period_us").read_text()))
    return cores


def _memory() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for group in _own_cgroups():
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):
                limit = int((group.folder / name).read_text())
                memory = min(memory, limit) if limit < _CGROUP_V1_UNLIMITED else memory
    return memory
