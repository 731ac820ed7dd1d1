"""Whether the program of a job is forked from a warm worker, and the making of one for the next program."""

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

from trainyard.instance.sandbox.contract import Forked
from trainyard.instance.warm.circumstances import changes, circumstances, code_version, state_of
from trainyard.instance.warm.frameworks import Source, read_source
from trainyard.link.contract import WarmSpec
from trainyard.link.warm import FORK, WarmWorker, WorkerFolder, ask, is_held, read_worker, tell_to_leave

_PACKAGE = Path(__file__).resolve().parents[2]
_BOOT = (
    "import sys; package = sys.modules['trainyard'] = type(sys)('trainyard'); package.__path__ = sys.argv[1:2]; "
    "from trainyard.instance.warm.starter import main; main()"
)
# Variables that an interpreter or a framework reads when it starts or is imported: those of a job come too late.
_IMPORT_TIME = re.compile(
    r"(PYTHON|LD_|LC_|OMP_|GOMP_|KMP_|MKL_|OPENBLAS_|GOTO_|BLIS_|VECLIB_|NUMEXPR_|MALLOC_|GLIBC_|TORCH|PYTORCH_"
    r"|NPY_|NUMPY_|SCIPY_|SKLEARN_|PANDAS_|JOBLIB_|LOKY_)\w*|LANG|LANGUAGE"
)
_STARTED_BY_PYTHON = {"sitecustomize", "usercustomize"}  # imported before any script, if they are found
_REFUSED_FOR_S = 600.0
_CHANGES_TOLD = 8

log = logging.getLogger(__name__)


class Warmth:
    """What one program of a Python environment has of warm workers.

    `python` is the environment's interpreter, `code` the folder of the program's code and `script` its entry point;
    `variables` is what the job sets in its environment, and `packages` the names in a folder of packages that it has
    before those of the environment.
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

    def forker(self, shown: Callable[[], Iterable[Path]]) -> "WorkerForker | None":
        """A worker that this program can be forked from; None when it has to start cold.

        `shown` tells which folders of this machine the program is to see.
        """
        try:
            worker = self._worker(shown) if self._obstacle is None else None
            why = self._obstacle or (worker and self._shadowed(worker))
        except (OSError, KeyError, TypeError) as error:  # of a worker that is being replaced, or wrote something else
            why, worker = repr(error), None
        if why is not None:
            log.info("the program starts cold", extra={"why": why})
            return None
        return WorkerForker(worker, keep_s=self._spec.keep_s) if worker is not None else None

    def make_ready(self, environment: Mapping[str, str]) -> None:
        """Have a worker made in the background, unless there is one or can be none; `environment` is the program's."""
        if self._obstacle is not None or is_held(self.folder) or self.refusal is not None:
            return
        orders = {
            "folder": str(self.folder.root),
            "python": self._python,
            "modules": self._source.modules,
            "keep_s": self._spec.keep_s,
            "variables": {**_worker_variables(environment), "HOME": "/nonexistent"},
        }
        try:
            _spawn_starter(orders)
        except OSError as error:
            log.warning("no warm worker can be made", extra={"why": error.strerror})
        else:
            log.info("a warm worker is made", extra={"python": self._python, "frameworks": self._source.frameworks})

    @cached_property
    def refusal(self) -> str | None:
        """Why there is no worker though there should be one; asked anew after a while."""
        try:
            if time.time() - self.folder.refusal.stat().st_mtime > _REFUSED_FOR_S or is_held(self.folder):
                return None
            return str(json.loads(self.folder.refusal.read_bytes())["why"])
        except (OSError, ValueError, KeyError):
            return None

    @cached_property
    def _source(self) -> Source:
        try:
            return read_source(self._code, self._script)
        except OSError as error:
            log.info("the code cannot be looked through", extra={"why": error.strerror})
            return Source(is_whole=False)

    @cached_property
    def folder(self) -> WorkerFolder:
        """Where a worker for this program lives, if there is one."""
        key = json.dumps([self._python, code_version(_PACKAGE), self._source.frameworks])
        return WorkerFolder(Path(self._spec.folder) / hashlib.sha256(key.encode()).hexdigest()[:16])

    @cached_property
    def _obstacle(self) -> str | None:
        """Why this program can never be forked from a worker."""
        read = sorted(name for name in self._variables if _IMPORT_TIME.fullmatch(name))
        if read:
            return f"its environment sets {read[0]}"
        if not self._source.is_whole:
            return "its code cannot be looked through whole"
        return None

    def _worker(self, shown: Callable[[], Iterable[Path]]) -> WarmWorker | None:
        """The worker that serves, if what it stands on is what it was; one that is out of date is told to leave."""
        worker = read_worker(self.folder)
        if worker is None or not worker.is_alive:
            return None
        facts = worker.facts
        changed = changes(facts["circumstances"], circumstances(), shown=shown)
        now = state_of(facts["folders"])
        changed += [f"packages in {folder}" for folder, stamp in facts["folders"].items() if now.get(folder) != stamp]
        if not changed:
            return worker
        log.info("a warm worker is out of date", extra={"changed": changed[:_CHANGES_TOLD]})
        tell_to_leave(self.folder)
        return None

    def _shadowed(self, worker: WarmWorker) -> str | None:
        """Why this program cannot be forked from that worker: it brings a module that the worker has imported."""
        names, packages = set(worker.facts["names"]), set(worker.facts["packages"])
        found = self._source.top & (names | _STARTED_BY_PYTHON) | self._source.inner & packages
        found |= {name.partition(".")[0] for name in self._packages} & names
        return f"it brings its own {min(found)}" if found else None


class WorkerForker:
    """Implements `sandbox.contract.Forker` over a warm worker."""

    def __init__(self, worker: WarmWorker, *, keep_s: int) -> None:
        self.pid = worker.pid
        self._folder = worker.folder
        self._keep_s = keep_s

    def fork(self, control: int, status: int, output: int, *namespaces: int) -> Forked:
        given = (control, status, output, *namespaces)
        answer, descriptors = ask(self._folder, {"do": FORK, "keep_s": self._keep_s}, given)
        if len(descriptors) != 1:
            raise ConnectionResetError(f"the warm worker in {self._folder.root} forked nothing: {answer}")
        return Forked(int(answer["pid"]), descriptors[0])


def _spawn_starter(orders: Mapping[str, object]) -> None:
    """Start it with nothing of this process; it ends or becomes the worker, and nobody waits for it."""
    subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BOOT, str(_PACKAGE), json.dumps(orders)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
    )


def _worker_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Of the program's variables, those that count at its start, so that the worker starts as the program would."""
    own = ("PYTHONPATH", "TORCHELASTIC_")  # of one job, or one rank
    return {
        name: environment[name] for name in environment if _IMPORT_TIME.fullmatch(name) and not name.startswith(own)
    }
