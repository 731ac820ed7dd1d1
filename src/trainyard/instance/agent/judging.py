"""The judges beside a program: processes for the rules that no rank can judge by itself.

Such a rule needs raw values, or all workers, or to know that nothing happens; or it is the user's own code. The rules
of ours share a process, and each of a user has one for itself, so that whatever it does is done to nobody else. They
are in the sandbox that the program has, without its channels, and reach nobody. They run on the first instance, which
sees the tensors of the others as well: those of instances on other machines are brought to this one as they come.
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
from trainyard.instance.agent.checkpoints import RULE_OUTPUT
from trainyard.instance.agent.debugging import Debugging
from trainyard.instance.agent.disk import DiskWatch
from trainyard.instance.agent.failure import why_it_cannot_run
from trainyard.instance.agent.program import Program, ProgramRunner
from trainyard.instance.agent.rule_files import other_runs, rule_file
from trainyard.instance.agent.siblings import Siblings
from trainyard.instance.agent.supervision import OutputPipe
from trainyard.instance.compat import seen_package
from trainyard.instance.sandbox.contract import ML, Bind, Ended, Sandboxed, SandboxLost
from trainyard.instance.sandbox.interpreters import interpreter_folders
from trainyard.link.contract import DebuggerSpec, InstanceSpec, LimitSpec, RuleSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.neighbours import elsewhere
from trainyard.link.places import place_of

DRAIN_S = 30.0  # in which a judge may judge what is left when the program has ended
STOPPED_DRAIN_S = 5.0  # and when it was stopped
MEMORY_BYTES = 4 << 30
LOG_BYTES = 1 << 20  # of what a judge writes that are kept

_BOOT = (
    "import sys; package = sys.modules['trainyard'] = type(sys)('trainyard'); package.__path__ = sys.argv[1:2]; "
    "from trainyard.instance.judge.start import main; main()"
)
_DISK_FULL = "It was ended, because it or the program filled the disk of this machine."
_LOOK_S = 0.1
_READS_AT_ONCE = 4  # of the output of a judge
_SIBLINGS = "/run/trainyard/siblings"
_NO_TORCH = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}

log = logging.getLogger(__name__)


class _Judge:
    """A judge that was started, and the pipe of what it writes, of which the beginning is kept.

    `overuse` is why it was ended for what it took of the machine; nothing otherwise.
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

    def take_output(self) -> None:
        """Keep what it wrote since. A rule of a user may write without end, and nobody watches the disk for this."""
        for _ in range(_READS_AT_ONCE):
            data = self._pipe.read()
            if not data:
                return
            self._keep(data[: self._left])

    def watch_disk(self, now: float) -> None:
        """End it when the disk is nearly full and it may be the cause, also after the program has ended."""
        if not self.overuse and self._disk.look(now, root=self.process.pid):
            self.overuse = _DISK_FULL
            self._kill()

    def close(self) -> None:
        self._kill()
        self.take_output()
        self.process.close()
        self._pipe.close()

    def _kill(self) -> None:
        with suppress(TrainyardError):
            self.process.kill()

    def _keep(self, data: bytes) -> None:
        self._left -= len(data)
        if not data:
            return
        with suppress(OSError):  # of a full disk
            file = os.open(self._log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, data)
            finally:
                os.close(file)


class Judges:
    """Those of one instance. `begin`, `look`, `finish` and `close` are called by the thread that runs the program."""

    def __init__(
        self,
        folder: InstanceFolder,
        spec: InstanceSpec,
        debugger: DebuggerSpec,
        *,
        runner: ProgramRunner,
        debugging: Debugging,
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._debugger = debugger
        self._runner = runner
        self._debugging = debugging
        self._siblings = Siblings(folder, spec)
        self._elsewhere = elsewhere(spec)
        self._waiting: list[Sequence[RuleSpec]] = []
        self._judges: list[_Judge] = []

    def begin(self) -> None:
        """Start the judges that are needed, or remember to, once the program runs."""
        if self._spec.instance != self._spec.hosts[0] or not self._debugger.rules:
            return
        custom = [[rule] for rule in self._debugger.rules if rule.source]
        ours = [rule for rule in self._debugger.rules if not rule.source and rule.is_beside]
        self._waiting = [group for group in (ours, *custom) if group]
        self.look()

    def look(self) -> None:
        """Start them as soon as the folders of all instances are there, and watch those that run."""
        for judge in self._judges:
            judge.take_output()
            judge.watch_disk(boottime())
        if self._waiting and all(_is_laid_out(self._tensors(name)) for name in self._spec.hosts):
            waiting, self._waiting = self._waiting, []
            for group in waiting:
                self._start(group)

    def await_others(self, patience_s: float, *, is_over: Callable[[], bool]) -> None:
        """Wait until all tensors of instances on other machines are here, for a while, or nobody judges any more."""
        deadline = boottime() + patience_s
        while self._elsewhere and self._are_at_work() and boottime() < deadline and not is_over():
            are_all_here = set(self._elsewhere) <= set(self._siblings.at_rest())
            self._debugging.look(boottime())
            if are_all_here:
                return
            time.sleep(_LOOK_S)

    def finish(self, patience_s: float, *, is_over: Callable[[], bool]) -> None:
        """Let them judge what is left, for a while. Rules whose judge did not come to its end are Error."""
        for group in self._waiting:
            self._debugging.fail(
                [rule.name for rule in group], "Not all instances came to train, so it judged nothing."
            )
        self._waiting = []
        deadline = boottime() + patience_s
        for judge in self._judges:
            try:
                while (ended := judge.process.wait(_LOOK_S)) is None and boottime() < deadline and not is_over():
                    self._debugging.look(boottime())
                why = judge.overuse or _why_failed(ended, patience_s)
            except SandboxLost as error:
                why = error.message
            if why:
                self._debugging.fail(judge.rules, why)

    def close(self) -> None:
        for judge in self._judges:
            judge.close()
        self._judges = []

    def _are_at_work(self) -> bool:
        with suppress(SandboxLost):
            return bool(self._waiting) or any(judge.process.wait(0) is None for judge in self._judges)
        return False

    def _start(self, rules: Sequence[RuleSpec]) -> None:
        names = [rule.name for rule in rules]

        def start(output: int) -> Sandboxed:
            return self._runner.start_beside(self._program(rules), output=output, limits=self._limits())

        try:
            self._judges.append(_Judge(names, start, disk=self._disk(), log_file=self._folder.root / "judge.log"))
        except (TrainyardError, OSError) as error:
            self._debugging.fail(names, f"The judge cannot be started: {why_it_cannot_run(error).message}")

    def _disk(self) -> DiskWatch:
        return DiskWatch((self._folder.ml, self._folder.scratch), reserve_bytes=self._spec.objects.reserve_bytes)

    def _limits(self) -> LimitSpec:
        most = self._spec.limits.memory_bytes
        return LimitSpec(cpus=1.0, memory_bytes=min(MEMORY_BYTES, most) if most else MEMORY_BYTES)

    def _program(self, rules: Sequence[RuleSpec]) -> Program:
        own = self._spec.program.interpreter or sys.executable

        def argv(seen_as: str) -> Sequence[str]:
            orders = {
                "ml": seen_as,
                "rules": [rule.name for rule in rules],
                "files": {rule.name: rule_file(self._spec, rule, seen_as=seen_as) for rule in rules if rule.source},
                "folders": [self._seen_tensors(name) for name in self._spec.hosts],
                "runs": other_runs(self._spec, seen_as=seen_as),
                "output": self._seen_as(RULE_OUTPUT, seen_as),
                "fallback": sys.executable,
            }
            return own, "-c", _BOOT, seen_package(seen_as), json.dumps(orders)

        return Program(
            argv,
            lambda _: own,
            read_only=[*self._binds(), *(Bind(each) for each in interpreter_folders(Path(sys.executable)))],
            variables=_NO_TORCH,
            is_lone=True,
        )

    def _binds(self) -> list[Bind]:
        others = [name for name in self._spec.hosts if name != self._spec.instance]
        return [Bind(root, f"{_SIBLINGS}/{name}", below) for name in others for root, below in [self._tensors(name)]]

    def _tensors(self, name: str) -> tuple[Path, str]:
        """Where the tensors of an instance lie: a folder that its program cannot replace, and the path below that."""
        if name in self._elsewhere:
            return self._siblings[name].root, self._siblings[name].tensors.name
        folder = self._folder if name == self._spec.instance else self._siblings[name]
        return place_of(folder, self._spec, self._debugger.tensors.path)

    def _seen_as(self, path: str, seen_as: str) -> str:
        return f"{seen_as}/{path.removeprefix(f'{ML}/')}"

    def _seen_tensors(self, name: str) -> str:
        root, below = self._tensors(name)
        if self._runner.is_sandboxed:
            return self._debugger.tensors.path if name == self._spec.instance else f"{_SIBLINGS}/{name}"
        return f"{root}/{below}"


def _is_laid_out(place: tuple[Path, str]) -> bool:
    root, path = place
    with suppress(OSError), ConfinedFolder.open(root) as folder:
        return folder.has_folder(path)
    return False


def _why_failed(ended: Ended | None, patience_s: float) -> str:
    if ended is None:
        return f"It did not come to an end within {patience_s:g} s after the program, and was ended."
    if ended.is_oom:
        return f"It used more memory than a judge may have, {MEMORY_BYTES >> 30} GiB."
    if ended.signal is not None:
        return f"Its process was ended by signal {ended.signal}."
    return f"Its process ended with exit code {ended.code}." if ended.code else ""
