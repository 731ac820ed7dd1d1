"""Installs the packages that a job needs beyond the environment of its image.

A list of requirements is installed once, in the sandbox and as the user of the first job that brings it. The result is
cached: later jobs of the same user mount it and install nothing. What depends on the job's own files is installed for
this job alone.
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
from trainyard.instance.agent.commands import StopRequested
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.program.image_environment import ImageEnvironment, distributions_in
from trainyard.instance.agent.program.requirements import (
    PYPROJECT,
    REQUIREMENTS,
    PackageRequests,
    read_package_requests,
)
from trainyard.instance.agent.program.sandbox import ProgramRunner, SandboxProgram
from trainyard.instance.agent.results.failure import CannotRun, FailureKind, exit_status
from trainyard.instance.sandbox.contract import ML, Bind, Sandboxed
from trainyard.link.environments import EnvironmentBuild, EnvironmentCache, EnvironmentHold

# Relative to the ml folder.
_FOLDER = ".trainyard"
# Every program sees the environment at the same path, because its scripts name their Python by path.
_ENVIRONMENT = f"{_FOLDER}/environment"
_INSTALLER = f"{_FOLDER}/installer.py"
# Where the installer sees uv and its cache in the sandbox.
_TOOLS = "/run/trainyard"
_POLL_S = 0.05

# Variables of the yard that the installer needs to reach package indexes.
_INDEX_VARIABLES = re.compile(r"(PIP|UV)_\w+|\w+_(proxy|PROXY)|SSL_CERT_(FILE|DIR)")
_SETTINGS = re.compile(r"(PIP|UV)_\w+")
_KEY_DIGITS = 32
_MAX_REPORTED_PACKAGES = 5000
_ISOLATED = (
    "; the job has EnableNetworkIsolation, so nothing can be downloaded. Put the packages as wheels into the code and "
    "name them by path or with --find-links, or let a job without isolation install the same list first"
)
# Must equal the constant of installer.py, which is too slow to import when an agent starts.
CONFLICT = 3


@dataclass(frozen=True, slots=True)
class Overlay:
    """An environment on top of the image's, written by code of the job.

    On the host it is the path `below` in the folder `root`, which no program can replace. `hold` keeps it in the cache
    while it is used.
    """

    root: Path
    below: str = ""
    hold: EnvironmentHold | None = None

    @property
    def binds(self) -> Sequence[Bind]:
        """The mounts that show it in a sandbox; none for one in the job's ml folder, which is visible anyway."""
        return [Bind(self.root, f"{ML}/{_ENVIRONMENT}")] if self.hold else []

    @property
    def distributions(self) -> tuple[str, ...]:
        """The names and versions of the installed distributions, such as `numpy-2.4.6`."""
        return tuple(sorted(name.removesuffix(".dist-info") for name in self.names if name.endswith(".dist-info")))

    @property
    def names(self) -> Sequence[str]:
        """The entries of site-packages; none when a build replaced that folder with something else."""
        try:
            with self._open() as folder, folder.open_folder(self._packages) as packages:
                return packages.names()
        except OSError:
            return ()

    def has_program(self, name: str) -> bool:
        """Whether it has a program of this name. A link counts, wherever it leads."""
        with self._open() as folder:
            return folder.status(f"bin/{name}") is not None

    def interpreter(self, seen_as: str) -> str:
        """The path of its Python for programs that see the ml folder as `seen_as`."""
        return f"{self._root(seen_as)}/bin/python"

    def site_packages(self, seen_as: str) -> str:
        """The path of site-packages for programs that see the ml folder as `seen_as`."""
        return f"{self._root(seen_as)}/{self._packages}"

    @property
    def _packages(self) -> str:
        with self._open() as folder, folder.open_folder("lib") as library:
            pythons = [name for name in library.names() if name.startswith("python")]
        return f"lib/{min(pythons, default='python3')}/site-packages"

    def _root(self, seen_as: str) -> str:
        return f"{ML}/{_ENVIRONMENT}" if seen_as == ML else str(self.root / self.below)

    def _open(self) -> ConfinedFolder:
        return ConfinedFolder.open(self.root, self.below)


class Installation:
    """Finds or makes the environment of one job's program."""

    def __init__(
        self, context: InstanceContext, *, runner: ProgramRunner, on_start: Callable[[Sandboxed], None]
    ) -> None:
        spec = context.spec
        self._folder = context.folder
        self._spec = spec
        self._runner = runner
        self._output = context.output
        self._commands = context.commands
        self._reports = context.reports
        self._owner = context.owner
        self._yard_environment = context.yard_environment
        self._on_start = on_start
        self._base = ImageEnvironment(Path(spec.program.interpreter or sys.executable))
        self._cached = EnvironmentCache(Path(spec.environments)) if spec.environments else None

    @cached_property
    def packages(self) -> PackageRequests:
        """The packages that the job's code asks for."""
        return read_package_requests(self._spec.program.entry_point, self._folder.ml)

    def overlay(self) -> Overlay | None:
        """Return what the program needs on top of its image's environment; None when that has it all.

        Raises CannotRun when it cannot be installed, StopRequested when the instance is stopped meanwhile.
        """
        if not self.packages or self.packages.is_satisfied_by(self._base.installed):
            return None
        with self._reports.phase("environment"):
            overlay = self._overlay_for(self.packages)
        return overlay if overlay is not None and overlay.distributions else None

    def installed_packages(self, overlay: Overlay | None) -> list[str]:
        """Return the packages that the program sees, such as `numpy==2.4.6`, those of the overlay before the image's.

        Only names of folders are read. Those of an overlay may have been chosen by code of the job.
        """
        found = {**self._base.installed, **distributions_in(overlay.names if overlay else ())}
        return sorted(f"{name}=={version}" for name, version in found.items())[:_MAX_REPORTED_PACKAGES]

    @cached_property
    def _uv(self) -> Path | None:
        return find_uv()

    def _overlay_for(self, packages: PackageRequests) -> Overlay | None:
        if self._cached is not None and not packages.is_job_specific:
            return self._cached_overlay(packages, self._cached)
        status = self._install(packages, self._folder.ml / _ENVIRONMENT)
        if status and packages.package == PYPROJECT and status != CONFLICT:
            self._reports.note(
                f"{PYPROJECT} cannot be installed as a package (the log says why). SageMaker does not read that file, "
                "so the job continues without it."
            )
            rest = replace(packages, package="")
            return self._overlay_for(rest) if rest else None
        self._require_success(status, packages)
        return Overlay(self._folder.ml, _ENVIRONMENT)

    def _cached_overlay(self, packages: PackageRequests, cached: EnvironmentCache) -> Overlay:
        key, is_waiting = self._key(packages), False
        while (hold := cached.use(key)) is None:
            making = cached.begin_build(key)
            own = self._make(packages, cached, making=making) if making is not None else None
            if own is not None:
                return own
            if making is None and not is_waiting:
                self._output.add_line(f"Waiting for another job that installs the same {packages.shown}.")
                is_waiting = True
            self._commands.check()
            time.sleep(_POLL_S if making is None else 0)
        return Overlay(hold.folder, hold=hold)

    def _make(self, packages: PackageRequests, cached: EnvironmentCache, *, making: EnvironmentBuild) -> Overlay | None:
        """Make an environment in the cache. Where nothing can be mounted, make and return one of the job's own."""
        try:
            with making:
                self._require_success(self._install(packages, making.folder), packages)
                if self._runner.seen_as != ML:
                    return Overlay(self._folder.ml, _ENVIRONMENT)
                making.commit()
        finally:
            # A failed installation may have filled the cache too.
            cached.trim(self._spec.environments_limit_bytes)
        return None

    def _install(self, packages: PackageRequests, place: Path) -> int:
        """Run the installer with `place` as the environment, and return its exit code."""
        self._output.add_line(f"Installing {packages.shown}.")
        if self._uv is None:
            self._reports.note("There is no uv beside this yard's Python, so pip installs, which takes longer.")
        self._prepare_folders(place)
        with ExitStack() as stack:
            # A build runs the job's own code, which could put into the cache what later jobs would install.
            cache = self._cached.use_cache() if self._cached and not packages.is_job_specific else None
            if cache is not None:
                stack.enter_context(cache)
                self._owner.give_path(cache.folder)
            variables = stack.enter_context(self._index_variables())
            end = self._runner.run(self._program(packages, place, cache, variables), on_start=self._on_start)
        if end.stop_reason is not None or self._commands.is_killed:
            raise StopRequested
        if end.overuse:
            raise CannotRun(end.overuse, FailureKind.DISK_FULL)
        return exit_status(end.ended)

    @contextmanager
    def _index_variables(self) -> Iterator[Mapping[str, str]]:
        """The variables of the yard that the installer needs, without the passwords in them.

        A build of the job's own package can read the environment of the installer.
        """
        variables = {name: value for name, value in self._yard_environment.items() if _INDEX_VARIABLES.fullmatch(name)}
        if not variables:
            yield {}
            return
        from trainyard.instance.agent.program.index_proxy import IndexProxy, has_secrets, hide_secrets

        if not has_secrets(variables):
            yield variables
            return
        with IndexProxy(self._yard_environment.get("PIP_CERT") or None) as proxy:
            yield hide_secrets(variables, proxy)

    def _prepare_folders(self, place: Path) -> None:
        owner = self._owner.uid
        with ConfinedFolder.open(self._folder.ml) as ml:
            # A failed installation has run code of the job, which may have left anything here.
            if not ml.has_folder(_FOLDER):
                ml.remove(_FOLDER)
            for path in (_ENVIRONMENT, _INSTALLER):
                ml.remove(path)
            ml.make_folder(_ENVIRONMENT, owner=owner).close()
            # Copied as a file, so that the agent does not import what the installer imports.
            ml.replace_file(_INSTALLER, _installer_source(), owner=owner)
        if not self._is_own(place):
            self._owner.give_path(place)

    def _is_own(self, place: Path) -> bool:
        """Whether an environment belongs to this job alone and so lies in its ml folder."""
        return place.is_relative_to(self._folder.ml)

    def _program(
        self, packages: PackageRequests, place: Path, cache: EnvironmentHold | None, variables: Mapping[str, str]
    ) -> SandboxProgram:
        interpreter = str(self._base.interpreter)
        writable = [] if self._is_own(place) else [Bind(place, f"{ML}/{_ENVIRONMENT}")]
        writable += [Bind(cache.folder, f"{_TOOLS}/cache")] if cache else []

        def argv(seen_as: str) -> Sequence[str]:
            words = [interpreter, "-I", f"{seen_as}/{_INSTALLER}", "--overlay", f"{seen_as}/{_ENVIRONMENT}"]
            words += ["--requirements", f"{seen_as}/code/{REQUIREMENTS}"] if packages.has_requirements else []
            words += ["--package", f"{seen_as}/code"] if packages.package else []
            words += ["--refresh"] if packages.is_job_specific else []
            words += ["--offline"] if self._spec.is_isolated else []
            if self._uv is not None:
                words += ["--uv", f"{_TOOLS}/uv" if seen_as == ML else str(self._uv)]
            return [*words, "--cache", _cache_path(seen_as, cache)]

        return SandboxProgram(
            argv,
            lambda _: interpreter,
            read_only=[Bind(self._uv, f"{_TOOLS}/uv")] if self._uv else [],
            writable=writable,
            variables=variables,
            is_lone=True,
        )

    def _require_success(self, status: int, packages: PackageRequests) -> None:
        if not status:
            return
        name = "InstallModuleError" if packages.package else "InstallRequirementsError"
        advice = f"Correct {packages.shown}; the last lines of the log show which package cannot be installed, and why."
        if status == CONFLICT:
            message = self._output.tail.lines(1)[0].removeprefix("[trainyard] ")
            raise CannotRun(f"{name}: {packages.shown}: {message}", FailureKind.USER_ERROR, advice)
        message = "; ".join(self._output.tail.lines(2))
        hint = _ISOLATED if self._spec.is_isolated else ""
        raise CannotRun(
            f"{name}: {packages.shown} cannot be installed (exit code {status}){hint}: {message}",
            FailureKind.USER_ERROR,
            advice,
        )

    def _key(self, packages: PackageRequests) -> str:
        """A cache key: equal when the same installer would install the same on the same base from the same indexes."""
        variables = {**self._yard_environment, **self._spec.environment}
        settings = [f"{name}={value}" for name, value in sorted(variables.items()) if _SETTINGS.fullmatch(name)]
        files = [Path("/etc/pip.conf"), self._base.interpreter.parent.parent / "pip.conf", Path("/etc/uv/uv.toml")]
        configs = [file.read_text(errors="replace") for file in files if file.is_file() and os.access(file, os.R_OK)]
        parts = [os.uname().machine, self._base.fingerprint, *sorted(packages.lines), "", *settings, "", *configs]
        hashed = hashlib.sha256(_installer_source() + "\0".join(parts).encode(errors="surrogateescape"))
        return hashed.hexdigest()[:_KEY_DIGITS]


def find_uv() -> Path | None:
    """Return the uv that was installed with this yard, or else any on the machine's PATH."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("uv")
    return Path(found) if found else None


def _installer_source() -> bytes:
    return Path(__file__).with_name("installer.py").read_bytes()


def _cache_path(seen_as: str, cache: EnvironmentHold | None) -> str:
    if cache is None:
        return f"{seen_as}/{_FOLDER}/cache"
    return f"{_TOOLS}/cache" if seen_as == ML else str(cache.folder)
