"""Run the tests of a mutant in a fork of this process, in a copy of the tree where one module is the mutant.

This process has imported pytest and the libraries that the tests need, but nothing of the project. A fork is ready at
once and imports the project from the copy, as do the programs that the tests start.
"""

import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

import pytest

ROOT = Path(__file__).resolve().parents[2]
_LEFT_OUT = (".git", ".venv", ".environments", ".*_cache", ".hypothesis", "build", "dist", "results")
_LOADED = (
    "alembic.config", "asyncio", "botocore.session", "cryptography.x509", "hypothesis.strategies", "numpy.random",
    "obstore", "regex", "scipy.linalg", "scipy.optimize", "scipy.special", "scipy.stats", "sqlalchemy.dialects.sqlite",
    "uvicorn", "xml.etree.ElementTree",
)  # fmt: skip
_MEMORY_BYTES = 6 << 30


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    TOO_LONG = "took too long"


@dataclass(frozen=True, slots=True)
class Trial:
    """A module with this source, and the `arguments` of pytest, which name tests and select among them.

    Its processor time is limited, and so is its total time, which includes waiting and may be long on a busy machine.
    """

    module: str
    source: str
    arguments: tuple[str, ...]
    processor_s: float
    limit_s: float


@dataclass(frozen=True, slots=True)
class Result:
    outcome: Outcome
    processor_s: float
    output: str


@dataclass(slots=True)
class _Running:
    place: int
    slot: "Slot"
    trial: Trial
    pid: int
    handle: int
    began: float

    @property
    def deadline(self) -> float:
        return self.began + self.trial.limit_s


class Slot:
    """A copy of the tree in which one trial runs at a time."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self.output = folder / "output"
        self.temporary = folder / "temporary"
        shutil.copytree(ROOT, self.tree, ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)

    def source(self, module: str) -> str:
        return (self.tree / module).read_text()

    def start(self, trial: Trial) -> int:
        """Start a fork that runs the trial, and return its process id."""
        self._original = self.source(trial.module)
        self._write(trial.module, trial.source)
        pid = os.fork()
        if pid == 0:
            self._run(trial)
        return pid

    def restore(self, module: str) -> None:
        self._write(module, self._original)
        remove(self.temporary)

    def _write(self, module: str, source: str) -> None:
        file = self.tree / module
        # Python trusts bytecode by the time and size of its source, and mutants may share both.
        for cached in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            cached.unlink()
        file.write_text(source)

    def _run(self, trial: Trial) -> None:
        code = 1
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.chdir(self.tree)
            output = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            for descriptor in (1, 2):
                os.dup2(output, descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(trial.processor_s),) * 2)
            sys.dont_write_bytecode = True
            sys.path[:] = [str(self.tree), str(self.tree / "src"), *(each for each in sys.path if _is_foreign(each))]
            os.environ |= {"PYTHONPATH": f"{self.tree / 'src'}:{self.tree}", "PYTHONDONTWRITEBYTECODE": "1"}
            code = pytest.main([*_PYTEST, f"--basetemp={self.temporary}", *trial.arguments])
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


@contextmanager
def folder_of_copies(parent: Path | None) -> Iterator[Path]:
    """Provide a new folder, and remove it at the end with everything that trials left in it."""
    folder = Path(tempfile.mkdtemp(prefix="mutants-", dir=parent))
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Remove what a trial left. It may be deeper than `shutil.rmtree` can go, if a mutant removes too little."""
    subprocess.run(["rm", "-rf", "--", str(folder)], check=False)


_PYTEST = (
    *("-x", "-q", "--tb=line", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0"),
    # From plugins whose libraries this process has already loaded; none of them asserts anything.
    *("-W", "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"),
)


def _is_foreign(folder: str) -> bool:
    return Path(folder or ".").resolve() not in (ROOT, ROOT / "src")


def load_libraries() -> None:
    """Import slow third-party libraries here, so that not every fork has to."""
    for name in _LOADED:
        import_module(name)
    assert not [name for name in sys.modules if name.partition(".")[0] in ("trainyard", "tests")]


def run_trials(trials: Iterable[Trial], slots: Sequence[Slot]) -> Iterator[tuple[int, Result]]:
    """Run the trials, one per slot at a time. Yield the index and the result of each as it ends."""
    free = list(slots)
    running: dict[int, _Running] = {}
    waiting = enumerate(trials)
    with DefaultSelector() as selector, _killing(running):
        while True:
            while free and (following := next(waiting, None)) is not None:
                slot = free.pop()
                pid = slot.start(following[1])
                handle = os.pidfd_open(pid)
                running[handle] = _Running(following[0], slot, following[1], pid, handle, time.monotonic())
                selector.register(handle, EVENT_READ)
            if not running:
                return
            selector.select(max(0.0, min(each.deadline for each in running.values()) - time.monotonic()))
            for each in list(running.values()):
                result = _end(each)
                if result is not None:
                    selector.unregister(each.handle)
                    os.close(each.handle)
                    del running[each.handle]
                    free.append(each.slot)
                    yield each.place, result


@contextmanager
def _killing(running: Mapping[int, _Running]) -> Iterator[None]:
    """Kill running trials, however this process ends."""
    try:
        yield
    finally:
        for each in running.values():
            with suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)


def _end(running: _Running) -> Result | None:
    """Return the result of a trial that has ended or is late, or None while it still has time."""
    pid, status, used = os.wait4(running.pid, os.WNOHANG)
    is_late = not pid and time.monotonic() >= running.deadline
    if not pid and not is_late:
        return None
    # Includes processes that the tests started and a mutant did not end.
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    if is_late:
        _, status, used = os.wait4(running.pid, 0)
    output = running.slot.output.read_text(errors="replace")
    running.slot.restore(running.trial.module)
    processor_s = used.ru_utime + used.ru_stime
    if is_late or processor_s >= running.trial.processor_s:
        return Result(Outcome.TOO_LONG, processor_s, output)
    return Result(Outcome.PASSED if os.waitstatus_to_exitcode(status) == 0 else Outcome.FAILED, processor_s, output)
