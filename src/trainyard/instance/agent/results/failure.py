"""Explains why an instance failed, in words a user can act on."""

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from signal import Signals
from typing import Any

from trainyard.foundation.errors import TrainyardError
from trainyard.instance.agent.results.tracebacks import RaisedException
from trainyard.instance.agent.watch.log_tail import LogTail
from trainyard.instance.sandbox.contract import ProgramExit
from trainyard.objects.contract import StorageFull

_OUT_OF_MEMORY = ("MemoryError", "OutOfMemoryError", "ResourceExhaustedError")
_OUT_OF_MEMORY_TEXT = ("CUDA out of memory", "CUDA error: out of memory", "DefaultCPUAllocator: can't allocate memory")
_TOO_MANY_TEXT = (
    "can't start new thread",
    "fork: Resource temporarily unavailable",
    "fork: retry: Resource temporarily",
)
_DISK_FULL_TEXT = ("[Errno 28]", "No space left on device", "[Errno 122]", "Disk quota exceeded")
# What programs print that look for a host or a package, in a job that can reach neither.
_UNREACHABLE_TEXT = (
    "Name or service not known",
    "Temporary failure in name resolution",
    "failed to lookup address",
    "Network is unreachable",
    "No matching distribution found for",
)
_ISOLATION_ADVICE = (
    "The job has EnableNetworkIsolation, so its program reaches no package index and no other host. Bring packages as "
    "wheels in the code or in a channel, run it in an environment that has them, or leave the isolation out."
)
_INPUT_FOLDER = "/input/data"
# What a rank prints when its peer is gone: c10d, gloo, NCCL and plain sockets.
_PEER_GONE_TEXT = (
    "Connection reset by peer",
    "Connection closed by peer",
    "Connection refused",
    "Connection was likely closed",
    "Broken pipe",
    "Socket closed",
    "failed to recv, got 0 bytes",
    "recvValue failed",
    "sendBytes failed",
    "DistNetworkError",
    "DistStoreError",
    "Software caused connection abort",
    "ncclRemoteError",
    "ncclSystemError",
    "NCCL communicator was aborted",
    "Watchdog caught collective operation timeout",
)
_CONSEQUENCE_LINES = 8
# What the drivers of ModelTrainer write to output/failure when the program has failed.
_DRIVER_ERROR, _DRIVER_FAILED = "/sm_drivers/common/utils.py", "Training Execution failed. For more details"
# What they print last in that case.
_DRIVER_LAST_LINE = "An error occurred with exit code"
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
# Modules that come in packages of other names.
_PACKAGES: Mapping[str, str] = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "pytorch_lightning": "pytorch-lightning",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}


class FailureKind(StrEnum):
    """The kind of a failure, which decides what a user can do about it."""

    USER_ERROR = "user error"
    OUT_OF_MEMORY = "out of memory"
    DISK_FULL = "disk full"
    TOO_MANY_PROCESSES = "too many processes"
    TIME_LIMIT = "time limit"
    BAD_INPUT = "bad input data"
    INTERNAL = "internal error"


ADVICE: Mapping[FailureKind, str] = {
    FailureKind.USER_ERROR: "Correct the program; the last lines of its log and the exception show where it failed.",
    FailureKind.OUT_OF_MEMORY: "Use smaller batches, fewer data loader workers, or an instance type with more memory.",
    FailureKind.DISK_FULL: "Free space on this machine (`trainyard gc` may help), or write less to /opt/ml and /tmp.",
    FailureKind.TOO_MANY_PROCESSES: "Start fewer processes and threads, and wait for those that have ended.",
    FailureKind.TIME_LIMIT: "Raise MaxRuntimeInSeconds, or save checkpoints and continue from them in another job.",
    FailureKind.BAD_INPUT: "Check the content of the input channels, and which paths under /opt/ml/input/data the "
    "program reads. A Pipe channel is not a folder: each epoch is a FIFO of its own, NAME_0, NAME_1 and so on, which "
    "can be opened once.",
    FailureKind.INTERNAL: "This is a fault of Trainyard or of this machine; the agent's log has the details.",
}


class CannotRun(TrainyardError):
    """The instance cannot run its program or store its results; `kind` says who can fix it, `advice` how."""

    def __init__(self, message: str, kind: FailureKind, advice: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.advice = advice or ADVICE[kind]


@dataclass(frozen=True, slots=True)
class InstanceFailure:
    """A failure reason as AWS words it, and the card with the details."""

    reason: str
    card: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """What is known about a program that has failed.

    `failure_file` is what it wrote to output/failure. `rank` is set for jobs with ranks. With `is_server` the process
    was the parameter server beside the program.
    """

    instance: str
    command: str
    ended: ProgramExit
    failure_file: str | None
    tail: LogTail
    exception: RaisedException | None
    rank: int | None = None
    is_server: bool = False
    at_us: int = 0
    is_isolated: bool = False


def is_consequence(tail: LogTail) -> bool:
    """Whether the last lines of a process only say that another process is gone."""
    return _any_in(_PEER_GONE_TEXT, "\n".join(tail.lines(_CONSEQUENCE_LINES)))


def failure_of_program(end: ProgramEnd) -> InstanceFailure:
    """Describe the failure of a program that ended with an error, by a signal, or after writing output/failure."""
    kind = _kind(end)
    return InstanceFailure(_reason(end, kind), _card(kind, end))


def failure_before_program(error: CannotRun, *, instance: str, tail: LogTail) -> InstanceFailure:
    """Describe the failure of an instance whose program did not run or is not to blame."""
    reason = f"{_BLAME[error.kind]}: {error.message}"
    card = {"kind": error.kind.value, "instance": instance, "summary": error.message, "advice": error.advice}
    return InstanceFailure(reason, {**card, "last_lines": tail.lines()})


def to_cannot_run(error: Exception) -> CannotRun:
    """Turn any error into one with a message for the user. A full disk is recognized through chained exceptions."""
    if isinstance(error, CannotRun):
        return error
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return CannotRun(f"There is no space left on this machine: {error}", FailureKind.DISK_FULL)
        cause = cause.__cause__
    if isinstance(error, StorageFull):
        return CannotRun(error.message, FailureKind.DISK_FULL)
    message = error.message if isinstance(error, TrainyardError) else f"{type(error).__name__}: {error}"
    return CannotRun(message, FailureKind.INTERNAL)


def time_limit_card(instance: str, *, seconds: int, tail: LogTail) -> Mapping[str, Any]:
    """The card of a program that was stopped at its time limit."""
    kind = FailureKind.TIME_LIMIT
    summary = f"The program ran longer than the {seconds} seconds of MaxRuntimeInSeconds."
    return {
        "kind": kind.value,
        "instance": instance,
        "summary": summary,
        "advice": ADVICE[kind],
        "last_lines": tail.lines(),
    }


def absence(*, was_listed: bool) -> str:
    """How messages describe a missing object: one that was never listed may never have existed."""
    return "does not exist any more" if was_listed else "does not exist"


def exit_status(ended: ProgramExit) -> int:
    """The exit status as shells and container engines report it: 128 plus the number of a signal."""
    if ended.signal is not None:
        return 128 + ended.signal
    return ended.code or 0


_BLAME: Mapping[FailureKind, str] = {
    FailureKind.USER_ERROR: "AlgorithmError",
    FailureKind.OUT_OF_MEMORY: "ClientError",
    FailureKind.DISK_FULL: "ClientError",
    FailureKind.TOO_MANY_PROCESSES: "AlgorithmError",
    FailureKind.TIME_LIMIT: "ClientError",
    FailureKind.BAD_INPUT: "ClientError",
    FailureKind.INTERNAL: "InternalServerError",
}


def _kind(end: ProgramEnd) -> FailureKind:
    message = _told_by_program(end) or (str(end.exception) if end.exception else "")
    name = end.exception.type.rpartition(".")[2] if end.exception else ""
    if end.ended.is_oom or name in _OUT_OF_MEMORY or _any_in(_OUT_OF_MEMORY_TEXT, message):
        return FailureKind.OUT_OF_MEMORY
    if _any_in(_DISK_FULL_TEXT, message):
        return FailureKind.DISK_FULL
    if _any_in(_TOO_MANY_TEXT, message or end.tail.text) or (name == "BlockingIOError" and "fork" in end.tail.text):
        return FailureKind.TOO_MANY_PROCESSES
    if name in ("FileNotFoundError", "NotADirectoryError", "IsADirectoryError") and _INPUT_FOLDER in message:
        return FailureKind.BAD_INPUT
    return FailureKind.USER_ERROR


def _reason(end: ProgramEnd, kind: FailureKind) -> str:
    status = exit_status(end.ended)
    if (told := _told_by_program(end)) is not None:
        return f"AlgorithmError: {told}, exit code: {status}"
    if end.ended.is_oom:
        return f"ClientError: {_summary(end)} {ADVICE[kind]}, exit code: {status}"
    return (
        f'AlgorithmError: ExecuteUserScriptError:\nExitCode {status}\nErrorMessage "{_summary(end)}"\n'
        f'Command "{end.command}", exit code: {status}'
    )


def _told_by_program(end: ProgramEnd) -> str | None:
    """Return what the program wrote to output/failure, unless its log says more.

    When a script fails, the drivers of the sagemaker SDK only write that their command has failed.
    """
    written = end.failure_file
    if written is None or (end.exception is not None and _any_in((_DRIVER_ERROR, _DRIVER_FAILED), written)):
        return None
    return None if _DRIVER_FAILED in written and _last_line(end) else written


def _last_line(end: ProgramEnd) -> str:
    """Return the last line that the program printed, not the driver around it."""
    return next((line for line in reversed(end.tail.lines()) if not line.startswith(_DRIVER_LAST_LINE)), "")


def _summary(end: ProgramEnd) -> str:
    message = _what_happened(end)
    process = "the parameter server" if end.is_server else f"rank {end.rank}"
    return message if end.rank is None and not end.is_server else f"{process} on {end.instance}: {message}"


def _what_happened(end: ProgramEnd) -> str:
    if end.ended.is_oom:
        return "The program used more memory than its instance has, and was killed."
    if (told := _told_by_program(end)) is not None:
        return told
    if end.exception is not None:
        return f"{end.exception}{_source_location(end.exception)}"
    if end.ended.signal is not None:
        return f"The program was killed by {_signal_name(end.ended.signal)}."
    return _last_line(end) or f"The program ended with exit code {end.ended.code}."


def _source_location(exception: RaisedException) -> str:
    where = exception.where
    return f" ({where.file}, line {where.line})" if where else ""


def _card(kind: FailureKind, end: ProgramEnd) -> Mapping[str, Any]:
    card: dict[str, Any] = {
        "kind": kind.value,
        "instance": end.instance,
        "summary": _summary(end),
        "command": end.command,
        "exit_code": end.ended.code,
        "signal": _signal_name(end.ended.signal) if end.ended.signal is not None else None,
        "advice": _advice(kind, end),
        "last_lines": end.tail.lines(),
        "rank": end.rank,
        "at_us": end.at_us,
        "is_consequence": is_consequence(end.tail),
    }
    if end.exception is not None:
        card["exception"] = end.exception.as_payload()
    return card


def _advice(kind: FailureKind, end: ProgramEnd) -> str:
    if kind is FailureKind.USER_ERROR and end.is_isolated and _any_in(_UNREACHABLE_TEXT, end.tail.text):
        return _ISOLATION_ADVICE
    module = _missing_module(end)
    if kind is not FailureKind.USER_ERROR or not module:
        return ADVICE[kind]
    package = _PACKAGES.get(module, module)
    return (
        f'Name "{package}" in a requirements.txt beside the script, or install it where the image maps to: '
        f"`python -m pip install {package}` with the Python that `trainyard doctor` names. If {module} is a file of "
        "yours, put it into the folder of the script."
    )


def _missing_module(end: ProgramEnd) -> str:
    """Return the top-level module that the program failed to import, or an empty string."""
    if end.exception is None or end.exception.type.rpartition(".")[2] != "ModuleNotFoundError":
        return ""
    found = _NO_MODULE.search(end.exception.message)
    return found[1].partition(".")[0] if found else ""


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def _any_in(needles: tuple[str, ...], text: str) -> bool:
    return any(needle in text for needle in needles)
