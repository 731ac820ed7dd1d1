"""What this machine can do for jobs, found out by trying.

Every answer says what follows from it, so that a person knows what to fix and what to let be. Nothing is left behind:
whatever enters a namespace or mounts something does so in a child process (see trial.py). Standard library only.
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

_TRIAL = Path(__file__).with_name("trial.py")
_TRIAL_LIMIT_S = 20
_ENGINE_LIMIT_S = 10
_LEAST_DISK = 5 * 1024**3
_NO_LIMIT = 1 << 60  # cgroup v1 writes a huge number where there is no limit


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether something works here, and how one knows."""

    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing that this machine can or cannot do, and what follows from it."""

    name: str
    ok: bool
    detail: str
    consequence: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """What jobs on this machine can share. Limits of the cgroup this process runs in are respected."""

    cores: float
    memory_bytes: int
    gpus: int
    disk_free_bytes: int


@dataclass(frozen=True, slots=True)
class Question:
    """One row of the table of probes."""

    name: str
    ask: Callable[[Path], Answer]
    if_so: str
    if_not: str


def probe_machine(folder: Path) -> Iterator[Capability]:
    """Each capability in turn; `folder` is where the yard keeps, or will keep, its files."""
    existing = _existing(folder)
    for question in QUESTIONS:
        answer = question.ask(existing)
        yield Capability(question.name, answer.ok, answer.detail, question.if_so if answer.ok else question.if_not)


def capacity(folder: Path) -> Capacity:
    """Read from the kernel in a millisecond; GPUs are counted by their device files."""
    devices = [entry for entry in Path("/dev").iterdir() if re.fullmatch(r"nvidia\d+", entry.name)]
    return Capacity(_cores(), _memory(), len(devices), shutil.disk_usage(_existing(folder)).free)


def ask_isolation(instances: int) -> Answer:
    """Whether so many instances can be cut off from every network but one of their own."""
    return _try("net" if instances == 1 else "bridge")


def ask_overlay(folder: Path) -> Answer:
    """Tried beside the home folder, since not every file system can be the upper layer of another."""
    return _try("overlay", folder if os.access(folder, os.W_OK) else None)


def ask_fuse(_: Path) -> Answer:
    if not Path("/dev/fuse").exists():
        return Answer(ok=False, detail="/dev/fuse does not exist")
    return _try("fuse")


def ask_cgroups(_: Path) -> Answer:
    """Whether groups with limits can be made below the one this process is in."""
    usable = {name: group for group in _own_cgroups() if _can_divide(group.folder) for name in group.controllers}
    found = [name for name in ("cpu", "memory", "pids") if name in usable]
    versions = sorted({"v2" if usable[name].is_v2 else "v1" for name in found})
    detail = f"writable: {', '.join(found) or 'none'}" + (f" ({', '.join(versions)})" if versions else "")
    return Answer(len(found) == 3, detail)


def ask_gpus(_: Path) -> Answer:
    """NVIDIA's own library is asked, since device files alone do not say that the driver works."""
    try:
        names = _nvml_names()
    except OSError as error:
        return Answer(ok=False, detail=str(error))
    return Answer(bool(names), ", ".join(names) or "the driver works and sees none")


def ask_ray(_: Path) -> Answer:
    if importlib.util.find_spec("ray") is None:
        return Answer(ok=False, detail=f"not installed for {sys.executable}")
    return Answer(ok=True, detail=f"ray {importlib.metadata.version('ray')}")


def ask_podman(_: Path) -> Answer:
    return _ask_program("podman", ["version", "--format", "{{.Client.Version}}"])


def ask_docker(_: Path) -> Answer:
    return _ask_program("docker", ["version", "--format", "{{.Server.Version}}"])


def ask_uv(_: Path) -> Answer:
    return _ask_program("uv", ["--version"])


def ask_disk(folder: Path) -> Answer:
    free = shutil.disk_usage(folder).free
    return Answer(free >= _LEAST_DISK, f"{free / 1024**3:.1f} GiB free at {folder}")


def ask_clock(_: Path) -> Answer:
    """A clock before this program was written is surely wrong; the kernel knows whether anything keeps it right."""
    now = datetime.now(UTC)
    synchronised = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(256)) != 5  # TIME_ERROR
    keeper = "kept by a time service" if synchronised else "kept by no time service that the kernel knows of"
    return Answer(now.year >= 2026, f"{now:%Y-%m-%d %H:%M:%S} UTC, {keeper}")


QUESTIONS: Sequence[Question] = (
    Question(
        "user namespaces",
        lambda _: _try("user"),
        "Jobs are sandboxed without root.",
        "Jobs run as plain processes that see what this user sees; allowing unprivileged user namespaces changes that.",
    ),
    Question(
        "mount namespaces",
        lambda _: _try("mount"),
        "Each instance has a private /opt/ml and a read-only system.",
        "Instances cannot have a private /opt/ml; scripts must take their folders from the SM_* variables.",
    ),
    Question(
        "pid namespaces",
        lambda _: _try("pid"),
        "When a job ends, every process it started ends with it.",
        "Processes of a job are ended by group; one that leaves its group may stay behind.",
    ),
    Question(
        "network namespaces",
        lambda _: _try("net"),
        "EnableNetworkIsolation cuts a job off from every network.",
        "Jobs with EnableNetworkIsolation are refused.",
    ),
    Question(
        "network bridges",
        lambda _: _try("bridge"),
        "Isolated jobs may have several instances that reach each other and nothing else.",
        "Isolated jobs can have one instance only.",
    ),
    Question(
        "overlayfs",
        ask_overlay,
        "File channels are writable views of the stored objects and cost no copy.",
        "File channels are copied to each instance.",
    ),
    Question(
        "cgroups",
        ask_cgroups,
        "Memory, CPU and process limits of instance types are enforced.",
        "Limits of instance types without a writable controller are not enforced, and a job's description says so.",
    ),
    Question(
        "FUSE",
        ask_fuse,
        "FastFile channels work on objects that lie in a remote S3.",
        "FastFile channels work on local objects only; those in a remote S3 are downloaded.",
    ),
    Question(
        "GPUs",
        ask_gpus,
        "GPU instance types get real GPUs.",
        "GPU instance types have no GPU here; training runs on the CPU.",
    ),
    Question(
        "Ray",
        ask_ray,
        "Jobs can run on a Ray cluster.",
        "Jobs run on this machine only; `pip install 'trainyard[ray]'` adds clusters.",
    ),
    Question(
        "podman",
        ask_podman,
        "Jobs can run in images of their own.",
        "Without a container engine an image must map to an environment of this machine.",
    ),
    Question(
        "docker",
        ask_docker,
        "Jobs can run in images of their own.",
        "Without a container engine an image must map to an environment of this machine.",
    ),
    Question(
        "uv",
        ask_uv,
        "A job's requirements.txt is installed fast and cached.",
        "A job's requirements.txt is installed by pip, which takes longer.",
    ),
    Question(
        "disk space",
        ask_disk,
        "There is room for objects, logs and environments.",
        "Uploads and environments may fill the disk soon; make room, or move the home folder with --home.",
    ),
    Question(
        "clock",
        ask_clock,
        "Signatures are accepted from clients whose clocks differ by less than 15 minutes.",
        "Signatures and certificates will be refused; set the clock.",
    ),
)


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    while not folder.is_dir():
        folder = folder.parent
    return folder


def _try(name: str, parent: Path | None = None) -> Answer:
    with tempfile.TemporaryDirectory(prefix="trainyard-trial-", dir=parent, ignore_cleanup_errors=True) as folder:
        try:
            result = subprocess.run(
                [sys.executable, "-S", "-P", str(_TRIAL), name, folder],
                capture_output=True,
                text=True,
                timeout=_TRIAL_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Answer(ok=False, detail=f"tried: {error}")
    if result.returncode == 0:
        return Answer(ok=True, detail="tried: works")
    last = result.stderr.strip().splitlines()[-1:] or [f"ended with {result.returncode}"]
    return Answer(ok=False, detail=f"tried: {last[0]}")


def _ask_program(name: str, arguments: Sequence[str]) -> Answer:
    beside = Path(sys.executable).with_name(name)
    program = shutil.which(name) or (str(beside) if beside.exists() else None)
    if program is None:
        return Answer(ok=False, detail="not found")
    try:
        result = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=_ENGINE_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Answer(ok=False, detail=f"{program} does not answer: {error}")
    if result.returncode:
        last = result.stderr.strip().splitlines()[-1:] or [f"ended with {result.returncode}"]
        return Answer(ok=False, detail=f"{program} does not answer: {last[0]}")
    return Answer(ok=True, detail=f"{program}: {result.stdout.strip()}")


@dataclass(frozen=True, slots=True)
class _Cgroup:
    folder: Path
    controllers: frozenset[str]
    is_v2: bool


def _own_cgroups() -> list[_Cgroup]:
    """The groups this process is in: one of v2, and one for each hierarchy of v1."""
    places = _cgroup_mounts()
    groups = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        mounted = places.get(names)
        if mounted is None:
            continue
        folder = mounted / path.lstrip("/")
        folder = folder if folder.is_dir() else mounted  # in a container the path is often that outside of it
        groups.append(_Cgroup(folder, _controllers(folder, names), names == ""))
    return groups


def _cgroup_mounts() -> dict[str, Path]:
    """Where each hierarchy is mounted, by the controller list that /proc/self/cgroup calls it by; "" is v2."""
    places = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        target = Path(before.split(" ")[4])
        if kind == "cgroup2":
            places[""] = target
        elif kind == "cgroup":
            for line_names in _v1_names(options):
                places.setdefault(line_names, target)
    return places


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
                memory = min(memory, limit) if limit < _NO_LIMIT else memory
    return memory
