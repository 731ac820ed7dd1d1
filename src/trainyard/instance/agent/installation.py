"""The environment that a job's program runs in, where it needs more than that of its image.

What a list of requirements needs is installed once, in the sandbox and as the user of the first job that brings the
list, and kept: later jobs of the same user bind it, and install nothing. What depends on the job's own files is
installed for this job alone.
"""

import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.failure import CannotRun, FailureKind, exit_status
from trainyard.instance.agent.image_environment import ImageEnvironment
from trainyard.instance.agent.layout import Owner
from trainyard.instance.agent.orders import Ordered, Orders
from trainyard.instance.agent.output import Output
from trainyard.instance.agent.program import Program, ProgramRunner
from trainyard.instance.agent.reports import Reports
from trainyard.instance.agent.requirements import PYPROJECT, REQUIREMENTS, Wanted, wanted_by
from trainyard.instance.sandbox.contract import ML, Bind, Sandboxed
from trainyard.link.contract import InstanceSpec
from trainyard.link.environments import Hold, KeptEnvironments, Making
from trainyard.link.folders import InstanceFolder

_FOLDER = ".trainyard"  # under /opt/ml
# An environment is seen at the same place by every program, for the scripts in it name their Python by its path.
_ENVIRONMENT = f"{_FOLDER}/environment"
_INSTALLER = f"{_FOLDER}/installer.py"
_TOOLS = "/run/trainyard"  # where the sandbox of an installation has uv and its cache
_PAUSE_S = 0.05  # between two looks at what another job installs

# Variables of the yard that an installation needs to reach its indexes.
_PASSED_ON = re.compile(r"(PIP|UV)_\w+|\w+_(proxy|PROXY)|SSL_CERT_(FILE|DIR)")
_SETTINGS = re.compile(r"(PIP|UV)_\w+")
_KEY_DIGITS = 32
_ISOLATED = (
    "; the job has EnableNetworkIsolation, so nothing can be downloaded. Bring the packages as wheels in the code, "
    "named by their paths or with --find-links, or let a job without isolation install the same list first"
)
CONFLICT = 3  # as installer.py has it, which imports more than an agent should at its start


@dataclass(frozen=True, slots=True)
class Overlay:
    """An environment over that of the image, whose own code has written it.

    It lies on the host `below` a folder that no program can replace. `hold` keeps it there as long as it is used.
    """

    root: Path
    below: str = ""
    hold: Hold | None = None

    @property
    def binds(self) -> Sequence[Bind]:
        """What makes it visible in a sandbox; one that belongs to the job lies in its ml folder anyway."""
        return [Bind(self.root, f"{ML}/{_ENVIRONMENT}")] if self.hold else []

    @property
    def distributions(self) -> tuple[str, ...]:
        """The names of what is installed in it, each with its version: `numpy-2.4.6`."""
        return tuple(sorted(name.removesuffix(".dist-info") for name in self.names if name.endswith(".dist-info")))

    @property
    def names(self) -> Sequence[str]:
        """What lies in the folder of its packages; nothing where a build put something else in its place."""
        try:
            with self._opened() as folder, folder.open_folder(self._packages) as packages:
                return packages.names()
        except OSError:
            return ()

    def has_program(self, name: str) -> bool:
        """Whether it has a program of this name, or a link to one, which leads somewhere for who may follow it."""
        with self._opened() as folder:
            return folder.status(f"bin/{name}") is not None

    def interpreter(self, seen_as: str) -> str:
        """The Python that sees what is installed, where programs see the ml folder as `seen_as`."""
        return f"{self._root(seen_as)}/bin/python"

    def site_packages(self, seen_as: str) -> str:
        """The folder of its packages, as programs see it."""
        return f"{self._root(seen_as)}/{self._packages}"

    @property
    def _packages(self) -> str:
        with self._opened() as folder, folder.open_folder("lib") as library:
            pythons = [name for name in library.names() if name.startswith("python")]
        return f"lib/{min(pythons, default='python3')}/site-packages"

    def _root(self, seen_as: str) -> str:
        return f"{ML}/{_ENVIRONMENT}" if seen_as == ML else str(self.root / self.below)

    def _opened(self) -> ConfinedFolder:
        return ConfinedFolder.open(self.root, self.below)


class Installation:
    """Finds or makes the environment of one job's program."""

    def __init__(
        self,
        folder: InstanceFolder,
        spec: InstanceSpec,
        *,
        runner: ProgramRunner,
        output: Output,
        orders: Orders,
        reports: Reports,
        owner: Owner,
        on_start: Callable[[Sandboxed], None],
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._runner = runner
        self._output = output
        self._orders = orders
        self._reports = reports
        self._owner = owner
        self._on_start = on_start
        self._base = ImageEnvironment(Path(spec.program.interpreter or sys.executable))
        self._kept = KeptEnvironments(Path(spec.environments)) if spec.environments else None

    @cached_property
    def wanted(self) -> Wanted:
        """What the job's code asks for."""
        return wanted_by(self._spec.program.entry_point, self._folder.ml)

    def overlay(self) -> Overlay | None:
        """What the program needs over the environment of its image; None when that has it all.

        CannotRun when it cannot be installed; Ordered when the instance is stopped meanwhile.
        """
        if not self.wanted or self.wanted.is_satisfied_by(self._base.installed):
            return None
        with self._reports.phase("environment"):
            overlay = self._overlay_for(self.wanted)
        return overlay if overlay is not None and overlay.distributions else None

    @cached_property
    def _uv(self) -> Path | None:
        return find_uv()

    def _overlay_for(self, wanted: Wanted) -> Overlay | None:
        if self._kept is not None and not wanted.is_passing:
            return self._kept_one(wanted, self._kept)
        place = self._folder.ml / _ENVIRONMENT
        status = self._install(wanted, place)
        if status and wanted.package == PYPROJECT and status != CONFLICT:
            self._reports.note(
                f"{PYPROJECT} cannot be installed as a package (its log says why). SageMaker does not read that file, "
                "so the job goes on without."
            )
            rest = replace(wanted, package="")
            return self._overlay_for(rest) if rest else None
        self._require_success(status, wanted)
        return Overlay(self._folder.ml, _ENVIRONMENT)

    def _kept_one(self, wanted: Wanted, kept: KeptEnvironments) -> Overlay:
        key, is_waiting = self._key(wanted), False
        while (hold := kept.use(key)) is None:
            making = kept.make(key)
            own = self._made(wanted, kept, making=making) if making is not None else None
            if own is not None:
                return own
            if making is None and not is_waiting:
                self._output.say(f"Waiting for another job that installs the same {wanted.shown}.")
                is_waiting = True
            self._orders.check()
            time.sleep(_PAUSE_S if making is None else 0)
        return Overlay(hold.folder, hold=hold)

    def _made(self, wanted: Wanted, kept: KeptEnvironments, *, making: Making) -> Overlay | None:
        """Make an environment that is kept; where nothing can be bound it becomes the job's own, and is returned."""
        try:
            with making:
                self._require_success(self._install(wanted, making.folder), wanted)
                if self._runner.seen_as != ML:
                    return Overlay(self._folder.ml, _ENVIRONMENT)
                making.keep()
        finally:  # also one that failed may have filled the cache
            kept.trim(self._spec.environments_limit_bytes)
        return None

    def _install(self, wanted: Wanted, place: Path) -> int:
        """Run the installer with `place` as the environment; its exit code."""
        self._output.say(f"Installing {wanted.shown}.")
        if self._uv is None:
            self._reports.note("There is no uv beside this yard's Python, so pip installs, which takes longer.")
        self._lay_out(place)
        with ExitStack() as held:
            # The code of a job runs while it is built, and could leave there what later jobs would install.
            cache = self._kept.use_cache() if self._kept and not wanted.is_passing else None
            if cache is not None:
                held.enter_context(cache)
                self._owner.take(cache.folder)
            variables = held.enter_context(self._variables())
            end = self._runner.run(self._program(wanted, place, cache, variables), on_start=self._on_start)
        if end.stop_reason is not None or self._orders.is_killed:
            raise Ordered
        if end.overuse:
            raise CannotRun(end.overuse, FailureKind.DISK_FULL)
        return exit_status(end.ended)

    @contextmanager
    def _variables(self) -> Iterator[Mapping[str, str]]:
        """What of the yard's environment an installation needs, without the passwords in it.

        Whatever builds a package of the job's can read what the installer was told.
        """
        variables = {name: value for name, value in os.environ.items() if _PASSED_ON.fullmatch(name)}
        if not variables:
            yield {}
            return
        from trainyard.instance.agent.index_proxy import IndexProxy, guarded, has_secrets

        if not has_secrets(variables):
            yield variables
            return
        with IndexProxy() as proxy:
            yield guarded(variables, proxy)

    def _lay_out(self, place: Path) -> None:
        owner = self._owner.uid
        with ConfinedFolder.open(self._folder.ml) as ml:
            # An installation that failed has run code of the job, which may have left anything here.
            if not ml.has_folder(_FOLDER):
                ml.remove(_FOLDER)
            for left in (_ENVIRONMENT, _INSTALLER):
                ml.remove(left)
            ml.make_folder(_ENVIRONMENT, owner=owner).close()
            # As a file, not as a module: what it imports is no concern of the agent's.
            ml.replace_file(_INSTALLER, _installer(), owner=owner)
        if not self._is_own(place):
            self._owner.take(place)

    def _is_own(self, place: Path) -> bool:
        """Whether an environment is the job's alone, so that it lies in its ml folder."""
        return place.is_relative_to(self._folder.ml)

    def _program(self, wanted: Wanted, place: Path, cache: Hold | None, variables: Mapping[str, str]) -> Program:
        interpreter = str(self._base.interpreter)
        writable = [] if self._is_own(place) else [Bind(place, f"{ML}/{_ENVIRONMENT}")]
        writable += [Bind(cache.folder, f"{_TOOLS}/cache")] if cache else []

        def argv(seen_as: str) -> Sequence[str]:
            words = [interpreter, "-I", f"{seen_as}/{_INSTALLER}", "--overlay", f"{seen_as}/{_ENVIRONMENT}"]
            words += ["--requirements", f"{seen_as}/code/{REQUIREMENTS}"] if wanted.has_requirements else []
            words += ["--package", f"{seen_as}/code"] if wanted.package else []
            words += ["--refresh"] if wanted.is_passing else []
            words += ["--offline"] if self._spec.is_isolated else []
            if self._uv is not None:
                words += ["--uv", f"{_TOOLS}/uv" if seen_as == ML else str(self._uv)]
            return [*words, "--cache", _cache(seen_as, cache)]

        return Program(
            argv,
            lambda _: interpreter,
            read_only=[Bind(self._uv, f"{_TOOLS}/uv")] if self._uv else [],
            writable=writable,
            variables=variables,
            is_lone=True,
        )

    def _require_success(self, status: int, wanted: Wanted) -> None:
        if not status:
            return
        name = "InstallModuleError" if wanted.package else "InstallRequirementsError"
        if status == CONFLICT:
            said = self._output.tail.lines(1)[0].removeprefix("[trainyard] ")
            raise CannotRun(f"{name}: {wanted.shown}: {said}", FailureKind.USER_ERROR)
        said = "; ".join(self._output.tail.lines(2))
        because = _ISOLATED if self._spec.is_isolated else ""
        raise CannotRun(
            f"{name}: {wanted.shown} cannot be installed (exit code {status}){because}: {said}", FailureKind.USER_ERROR
        )

    def _key(self, wanted: Wanted) -> str:
        """The same where the same would be installed: by this installer, over this environment, from these indexes."""
        variables = {**os.environ, **self._spec.environment}
        settings = [f"{name}={value}" for name, value in sorted(variables.items()) if _SETTINGS.fullmatch(name)]
        files = [Path("/etc/pip.conf"), self._base.interpreter.parent.parent / "pip.conf", Path("/etc/uv/uv.toml")]
        told = [file.read_text(errors="replace") for file in files if file.is_file() and os.access(file, os.R_OK)]
        parts = [os.uname().machine, self._base.fingerprint, *sorted(wanted.lines), "", *settings, "", *told]
        return hashlib.sha256(_installer() + "\0".join(parts).encode(errors="surrogateescape")).hexdigest()[
            :_KEY_DIGITS
        ]


def find_uv() -> Path | None:
    """The uv that was installed with this yard, else any that the machine has."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("uv")
    return Path(found) if found else None


def _installer() -> bytes:
    return Path(__file__).with_name("installer.py").read_bytes()


def _cache(seen_as: str, cache: Hold | None) -> str:
    if cache is None:
        return f"{seen_as}/{_FOLDER}/cache"
    return f"{_TOOLS}/cache" if seen_as == ML else str(cache.folder)
