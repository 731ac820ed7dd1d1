"""Processes beside the program for the rules that no rank can evaluate by itself.

Such a rule needs raw values, or all workers, or must notice that nothing happens; or it is the user's own code. The
built-in rules share one process; each custom rule has a process of its own, so that it can disturb no other. They run
in a sandbox like the program's, without its channels and without network, on the first instance. That one also sees the
tensors of the others: those of instances on other machines are copied to it as they come.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from trainyard.foundation.clock import boottime
from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.interpreter import boot_code
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.data.checkpoint_sync import RULE_OUTPUT
from trainyard.instance.agent.program.sandbox import ProgramRunner, SandboxProgram
from trainyard.instance.agent.results.failure import to_cannot_run
from trainyard.instance.agent.siblings import Siblings
from trainyard.instance.agent.watch.debugger import Debugger
from trainyard.instance.agent.watch.debugger_files import other_runs, rule_file
from trainyard.instance.agent.watch.disk import DiskWatch
from trainyard.instance.agent.watch.supervisor import OutputPipe
from trainyard.instance.compat import package_path
from trainyard.instance.sandbox.contract import ML, Bind, ProgramExit, Sandboxed, SandboxLost
from trainyard.instance.sandbox.interpreters import interpreter_folders
from trainyard.link.contract import LimitSpec, RuleSpec
from trainyard.link.folders import host_path
from trainyard.link.spec_queries import remote_hosts

# How long a rule process may take for the remaining steps after the program has ended by itself, or was stopped.
DRAIN_S = 30.0
STOPPED_DRAIN_S = 5.0
MEMORY_BYTES = 4 << 30
# The output of a rule process is logged up to this size.
LOG_BYTES = 1 << 20

_BOOT = boot_code("trainyard.instance.rule_evaluation.start")
_DISK_FULL = "Its process was killed, because it or the program filled the disk of this machine."
_POLL_S = 0.1
_READS_PER_POLL = 4
_SIBLINGS = "/run/trainyard/siblings"
_SMALL_PROCESS = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}

log = logging.getLogger(__name__)


class _RuleProcess:
    """A running rule process and the pipe of its output, of which the beginning is logged.

    `overuse` is why it was killed for using too much of the machine; empty otherwise.
    """

    def __init__(
        self, rules: Sequence[str], start: Callable[[int], Sandboxed], *, disk: DiskWatch, log_file: Path
    ) -> None:
        self.rules = rules
        self.overuse = ""
        self._disk = disk
        self._log_file = log_file
        self._left = LOG_BYTES
        self._pipe = OutputPipe()
        try:
            self.process = start(self._pipe.writer)
        except BaseException:
            self._pipe.close()
            raise
        self._pipe.close_writer()

    def read_output(self) -> None:
        """Log what it wrote since the last call, up to a limit: a custom rule may write without end."""
        for _ in range(_READS_PER_POLL):
            data = self._pipe.read()
            if not data:
                return
            self._log_output(data[: self._left])

    def watch_disk(self, now: float) -> None:
        """Kill it when the disk is nearly full and it may be the cause, also after the program has ended."""
        if not self.overuse and self._disk.poll(now, root=self.process.pid):
            self.overuse = _DISK_FULL
            self._kill()

    def close(self) -> None:
        self._kill()
        self.read_output()
        self.process.close()
        self._pipe.close()

    def _kill(self) -> None:
        with suppress(TrainyardError):
            self.process.kill()

    def _log_output(self, data: bytes) -> None:
        self._left -= len(data)
        if not data:
            return
        # A full disk costs lines of this log, nothing more.
        with suppress(OSError):
            file = os.open(self._log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, data)
            finally:
                os.close(file)


class RuleProcesses:
    """The rule processes of one instance. Used only by the thread that runs the program."""

    def __init__(self, context: InstanceContext, *, runner: ProgramRunner, debugger: Debugger) -> None:
        self._folder = context.folder
        self._spec = context.spec
        self._is_first = context.is_first
        self._runner = runner
        self._debugger = debugger
        self._siblings = Siblings(context.folder, context.spec)
        self._elsewhere = remote_hosts(context.spec)
        self._pending: list[Sequence[RuleSpec]] = []
        self._processes: list[_RuleProcess] = []

    def start(self) -> None:
        """Start the processes that the rules need, now that the program runs, or as soon as all instances are ready."""
        rules = self._debugger.spec.rules
        if not self._is_first or not rules:
            return
        custom = [[rule] for rule in rules if rule.source]
        built_in = [rule for rule in rules if not rule.source and rule.is_beside]
        self._pending = [group for group in (built_in, *custom) if group]
        self.poll()

    def poll(self) -> None:
        """Watch the running processes, and start the pending ones once the folders of all instances exist."""
        for process in self._processes:
            process.read_output()
            process.watch_disk(boottime())
        if self._pending and all(_folder_exists(self._tensors(name)) for name in self._spec.hosts):
            pending, self._pending = self._pending, []
            for group in pending:
                self._start(group)

    def wait_for_siblings(self, timeout_s: float, *, is_over: Callable[[], bool]) -> None:
        """Wait until all tensors from other machines are here, the timeout passes, or no process is left."""
        deadline = boottime() + timeout_s
        while self._elsewhere and self._are_running() and boottime() < deadline and not is_over():
            are_all_here = set(self._elsewhere) <= set(self._siblings.exited_hosts())
            self._debugger.poll(boottime())
            if are_all_here:
                return
            time.sleep(_POLL_S)

    def finish(self, timeout_s: float, *, is_over: Callable[[], bool]) -> None:
        """Let the processes evaluate the remaining steps. Rules whose process does not end in time fail."""
        for group in self._pending:
            self._debugger.fail(
                [rule.name for rule in group], "Not all instances started to train, so it evaluated nothing."
            )
        self._pending = []
        deadline = boottime() + timeout_s
        for each in self._processes:
            try:
                while (ended := each.process.wait(_POLL_S)) is None and boottime() < deadline and not is_over():
                    self._debugger.poll(boottime())
                why = each.overuse or _why_failed(ended, timeout_s)
            except SandboxLost as error:
                why = error.message
            if why:
                self._debugger.fail(each.rules, why)

    def close(self) -> None:
        for process in self._processes:
            process.close()
        self._processes = []

    def _are_running(self) -> bool:
        with suppress(SandboxLost):
            return bool(self._pending) or any(each.process.wait(0) is None for each in self._processes)
        return False

    def _start(self, rules: Sequence[RuleSpec]) -> None:
        names = [rule.name for rule in rules]

        def start(output: int) -> Sandboxed:
            return self._runner.start_beside(self._program(rules), output=output, limits=self._limits())

        try:
            self._processes.append(
                _RuleProcess(names, start, disk=self._disk_watch(), log_file=self._folder.root / "judge.log")
            )
        except (TrainyardError, OSError) as error:
            self._debugger.fail(names, f"The rule process cannot be started: {to_cannot_run(error).message}")

    def _disk_watch(self) -> DiskWatch:
        return DiskWatch((self._folder.ml, self._folder.scratch), reserve_bytes=self._spec.objects.reserve_bytes)

    def _limits(self) -> LimitSpec:
        limit = self._spec.limits.memory_bytes
        return LimitSpec(cpus=1.0, memory_bytes=min(MEMORY_BYTES, limit) if limit else MEMORY_BYTES)

    def _program(self, rules: Sequence[RuleSpec]) -> SandboxProgram:
        python = self._spec.program.interpreter or sys.executable

        def argv(seen_as: str) -> Sequence[str]:
            request = {
                "ml": seen_as,
                "rules": [rule.name for rule in rules],
                "files": {rule.name: rule_file(self._spec, rule, seen_as=seen_as) for rule in rules if rule.source},
                "folders": [self._seen_tensors(name) for name in self._spec.hosts],
                "runs": other_runs(self._spec, seen_as=seen_as),
                "output": self._seen_as(RULE_OUTPUT, seen_as),
                "fallback": sys.executable,
            }
            return python, "-c", _BOOT, package_path(seen_as), json.dumps(request)

        return SandboxProgram(
            argv,
            lambda _: python,
            read_only=[*self._binds(), *(Bind(each) for each in interpreter_folders(Path(sys.executable)))],
            variables=_SMALL_PROCESS,
            is_lone=True,
        )

    def _binds(self) -> list[Bind]:
        others = [name for name in self._spec.hosts if name != self._spec.instance]
        return [Bind(root, f"{_SIBLINGS}/{name}", below) for name in others for root, below in [self._tensors(name)]]

    def _tensors(self, name: str) -> tuple[Path, str]:
        """The tensors of an instance: a folder that its program cannot replace, and the path below it."""
        if name in self._elsewhere:
            return self._siblings[name].root, self._siblings[name].tensors.name
        folder = self._folder if name == self._spec.instance else self._siblings[name]
        return host_path(folder, self._spec, self._debugger.spec.tensors.path)

    def _seen_as(self, path: str, seen_as: str) -> str:
        return f"{seen_as}/{path.removeprefix(f'{ML}/')}"

    def _seen_tensors(self, name: str) -> str:
        root, below = self._tensors(name)
        if self._runner.is_sandboxed:
            return self._debugger.spec.tensors.path if name == self._spec.instance else f"{_SIBLINGS}/{name}"
        return f"{root}/{below}"


def _folder_exists(location: tuple[Path, str]) -> bool:
    root, path = location
    with suppress(OSError), ConfinedFolder.open(root) as folder:
        return folder.has_folder(path)
    return False


def _why_failed(ended: ProgramExit | None, timeout_s: float) -> str:
    if ended is None:
        return f"Its process did not end within {timeout_s:g} s after the program, and was killed."
    if ended.is_oom:
        return f"Its process used more than {MEMORY_BYTES >> 30} GiB of memory, the limit of rule processes."
    if ended.signal is not None:
        return f"Its process was killed by signal {ended.signal}."
    return f"Its process ended with exit code {ended.code}." if ended.code else ""
