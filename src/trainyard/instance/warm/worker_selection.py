"""Selects the warm worker that a job's program is forked from, or starts one for the next program."""

import hashlib
import json
import logging
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from trainyard.foundation.interpreter import PACKAGE, boot_code
from trainyard.instance.sandbox.contract import Forked
from trainyard.instance.warm.frameworks import CodeSummary, summarize_code
from trainyard.instance.warm.process_context import code_version, context_changes, package_mtimes, process_context
from trainyard.link.contract import WarmSpec
from trainyard.link.warm import (
    FORK,
    WarmWorker,
    WorkerFolder,
    dismiss_worker,
    is_worker_running,
    read_worker,
    send_request,
)

_BOOT = boot_code("trainyard.instance.warm.starter")
# Variables that an interpreter or framework reads at start or import. A forked program would set them too late.
_IMPORT_TIME_VARIABLES = re.compile(
    r"(PYTHON|LD_|LC_|OMP_|GOMP_|KMP_|MKL_|OPENBLAS_|GOTO_|BLIS_|VECLIB_|NUMEXPR_|MALLOC_|GLIBC_|TORCH|PYTORCH_"
    r"|NPY_|NUMPY_|SCIPY_|SKLEARN_|PANDAS_|JOBLIB_|LOKY_)\w*|LANG|LANGUAGE"
)
# Python imports these before any script if it finds them.
_STARTUP_MODULES = {"sitecustomize", "usercustomize"}
_REFUSAL_RETRY_S = 600.0
_MAX_LOGGED_CHANGES = 8

log = logging.getLogger(__name__)


class WorkerSelection:
    """Finds or prepares a warm worker for one program.

    `python` is the environment's interpreter, `code` the folder of the program's code and `script` its entry point.
    `variables` are the environment variables that the job sets, and `packages` the names of packages that it has in
    front of those of the environment.
    """

    def __init__(
        self,
        spec: WarmSpec,
        *,
        python: str,
        code: Path,
        script: str,
        variables: Mapping[str, str],
        packages: Sequence[str] = (),
    ) -> None:
        self._spec = spec
        self._python = python
        self._code = code
        self._script = script
        self._variables = variables
        self._packages = packages

    def find_forker(self, visible_paths: Callable[[], Iterable[Path]]) -> "WorkerForker | None":
        """Return a worker that this program can be forked from, or None if it has to start cold.

        `visible_paths` returns the folders of this machine that the program will see.
        """
        try:
            worker = self._find_worker(visible_paths) if self._obstacle is None else None
            why = self._obstacle or (worker and self._find_shadowing(worker))
        except (OSError, KeyError, TypeError) as error:
            # The worker is being replaced, or its description has another form.
            why, worker = repr(error), None
        if why is not None:
            log.info("the program starts cold", extra={"why": why})
            return None
        return WorkerForker(worker, keep_s=self._spec.keep_s) if worker is not None else None

    def prepare_worker(self, environment: Mapping[str, str]) -> None:
        """Start a worker in the background, unless there is one or none is possible; `environment` is the program's."""
        if self._obstacle is not None or is_worker_running(self.folder) or self.refusal is not None:
            return
        orders = {
            "folder": str(self.folder.root),
            "python": self._python,
            "modules": self._code_summary.modules,
            "keep_s": self._spec.keep_s,
            "variables": {**_worker_variables(environment), "HOME": "/nonexistent"},
        }
        try:
            _spawn_starter(orders)
        except OSError as error:
            log.warning("cannot start a warm worker", extra={"why": error.strerror})
        else:
            log.info(
                "starting a warm worker", extra={"python": self._python, "frameworks": self._code_summary.frameworks}
            )

    @cached_property
    def refusal(self) -> str | None:
        """Why there is no worker although there should be one. It expires after a while, so that a new one is tried."""
        try:
            if time.time() - self.folder.refusal.stat().st_mtime > _REFUSAL_RETRY_S or is_worker_running(self.folder):
                return None
            return str(json.loads(self.folder.refusal.read_bytes())["why"])
        except (OSError, ValueError, KeyError):
            return None

    @cached_property
    def _code_summary(self) -> CodeSummary:
        try:
            return summarize_code(self._code, self._script)
        except OSError as error:
            log.info("cannot scan the code", extra={"why": error.strerror})
            return CodeSummary(is_complete=False)

    @cached_property
    def folder(self) -> WorkerFolder:
        """The folder of a worker for this program, whether or not there is one."""
        key = json.dumps([self._python, code_version(Path(PACKAGE)), self._code_summary.frameworks])
        return WorkerFolder(Path(self._spec.folder) / hashlib.sha256(key.encode()).hexdigest()[:16])

    @cached_property
    def _obstacle(self) -> str | None:
        """Why this program can never be forked from any worker."""
        late = sorted(name for name in self._variables if _IMPORT_TIME_VARIABLES.fullmatch(name))
        if late:
            return f"its environment sets {late[0]}"
        if not self._code_summary.is_complete:
            return "its code cannot be scanned completely"
        return None

    def _find_worker(self, visible_paths: Callable[[], Iterable[Path]]) -> WarmWorker | None:
        """Return the running worker if its context is unchanged; tell an outdated one to leave."""
        worker = read_worker(self.folder)
        if worker is None or not worker.is_alive:
            return None
        facts = worker.facts
        changed = context_changes(facts["circumstances"], process_context(), visible_paths=visible_paths)
        now = package_mtimes(facts["folders"])
        changed += [f"packages in {folder}" for folder, stamp in facts["folders"].items() if now.get(folder) != stamp]
        if not changed:
            return worker
        log.info("the warm worker is outdated", extra={"changed": changed[:_MAX_LOGGED_CHANGES]})
        dismiss_worker(self.folder)
        return None

    def _find_shadowing(self, worker: WarmWorker) -> str | None:
        """Return why this program cannot be forked from that worker: it brings its own copy of an imported module."""
        names, packages = set(worker.facts["names"]), set(worker.facts["packages"])
        code = self._code_summary
        shadowing = code.importable_names & (names | _STARTUP_MODULES) | code.all_names & packages
        shadowing |= {name.partition(".")[0] for name in self._packages} & names
        return f"it brings its own {min(shadowing)}" if shadowing else None


class WorkerForker:
    """Implements `sandbox.contract.Forker` with a warm worker."""

    def __init__(self, worker: WarmWorker, *, keep_s: int) -> None:
        self.pid = worker.pid
        self._folder = worker.folder
        self._keep_s = keep_s

    def fork(self, control: int, status: int, output: int, *namespaces: int) -> Forked:
        sent = (control, status, output, *namespaces)
        answer, descriptors = send_request(self._folder, {"do": FORK, "keep_s": self._keep_s}, sent)
        if len(descriptors) != 1:
            raise ConnectionResetError(f"the warm worker in {self._folder.root} did not fork: {answer}")
        return Forked(int(answer["pid"]), descriptors[0])


def _spawn_starter(orders: Mapping[str, object]) -> None:
    """Start it without anything of this process. It becomes the worker or exits, and nobody waits for it."""
    subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BOOT, PACKAGE, json.dumps(orders)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
    )


def _worker_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Select the variables that count at start, so that the worker starts as the program would."""
    # These belong to one job or one rank.
    own = ("PYTHONPATH", "TORCHELASTIC_")
    return {
        name: environment[name]
        for name in environment
        if _IMPORT_TIME_VARIABLES.fullmatch(name) and not name.startswith(own)
    }
