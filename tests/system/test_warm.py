"""Programs forked from warm workers, by whole agents in real sandboxes. They must not notice it."""

import contextlib
import importlib.util
import io
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.system.fuzz.world import User
from tests.system.test_agent import JOB_UID, USER_UID, World, with_wheels
from tests.system.test_program_profiles import SCRIPT as PROFILED
from tests.system.trainees import Trainee
from tests.system.warm_programs import BESIDE, PROGRAMS
from tests.system.yards import remove_left
from tests.unit.instance.agent.samples import BUCKET, make_bucket, read_object
from tests.unit.instance.agent.wheels import make_wheel
from trainyard.formats.profiles.traces.reader import read_trace
from trainyard.foundation.home import process_start
from trainyard.instance.warm.trust import Untrusted, examine_environment
from trainyard.link.contract import CommandKind, FrameKind, ProfilerSpec, ProgramSpec, SyncSpec, WarmSpec
from trainyard.link.ledger import Ledger, LedgerKind
from trainyard.link.warm import (
    WarmWorker,
    WorkerFolder,
    dead_folders,
    dismiss_workers,
    extend_workers,
    sweep_dead_workers,
    warm_workers,
)
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import running_yard

WARM = "The program was started warm: forked from an interpreter that was ready for it."
# The yard takes it for a framework. It imports quickly and prints where it was imported.
FRAMEWORK = """
import os, warnings
imported_by = os.getpid()
def warn():
    warnings.warn("of the framework", stacklevel=1)
"""
HELLO = "import pandas, os\nprint('imported by', pandas.imported_by, 'here', os.getpid())\n"
WAIT = """
import os, time, pandas
print("waiting", flush=True)
while not os.path.exists("/opt/ml/output/data/go"):
    time.sleep(0.02)
print("gone on")
"""
STAY = "import time, pandas\nprint('waiting', flush=True)\ntime.sleep(600)\n"


class WarmYard:
    """A folder of warm workers, an environment with a framework, and jobs of a yard of root or an ordinary user."""

    def __init__(self, root: Path, *, is_root: bool) -> None:
        self.root = root
        self.warm = root / "home" / "warm"
        self.is_root = is_root
        self._worlds: list[World] = []
        self._numbers = itertools.count(1)
        self.base = self._world().interpreter
        self.python = self.make_environment("environment")

    @property
    def packages(self) -> Path:
        return next(Path(self.python).parent.parent.glob("lib/python*/site-packages"))

    def start(
        self,
        files: Mapping[str, str] | str,
        *,
        account: str = "111",
        keep_s: int | None = 600,
        wheel: Path | None = None,
        **members: Any,
    ) -> World:
        """Start a job. With `keep_s` None, the yard keeps nothing warm. The job can install only `wheel`."""
        world = self._world()
        if wheel is not None:
            members |= with_wheels(world, wheel) | {"environments": str(self.root / "environments")}
        members.setdefault(
            "program",
            ProgramSpec("train.py", "s3://yard/code/sourcedir.tar.gz", (), members.pop("python", self.python)),
        )
        members["warm"] = None if keep_s is None else WarmSpec(str(self.warm / account), keep_s)
        world.start({"train.py": files} if isinstance(files, str) else files, **members)
        return world

    def run(self, files: Mapping[str, str] | str, **members: Any) -> World:
        world = self.start(files, **members)
        world.verdict()
        return world

    def workers(self) -> list[WarmWorker]:
        return warm_workers(self.warm)

    def make_warm(self, **members: Any) -> WarmWorker:
        """Make sure that there is a worker for the framework, for the account if one is named."""
        account = members.get("account", "111")
        if not any(worker.account == account for worker in self.workers()):
            self.run(HELLO, **members)
            eventually(lambda: any(each.account == account for each in self.workers()), self._why_not())
        return next(worker for worker in self.workers() if worker.account == account)

    def close(self) -> None:
        for world in self._worlds:
            if world.agent is not None and world.agent.poll() is None:
                world.agent.kill()
                world.agent.wait()
        dismiss_workers(self.warm)
        for worker in self.workers():  # of another user, whom they do not listen to
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)

    def _world(self) -> World:
        root = self.root / str(next(self._numbers))
        root.mkdir()
        world = World(root, is_root=self.is_root)
        with world.store() as store:
            make_bucket(store)
        self._worlds.append(world)
        return world

    def make_environment(self, name: str) -> str:
        """Make an environment with the framework, and return its Python."""
        folder = self.root / name
        subprocess.run([self.base, "-I", "-m", "venv", "--without-pip", str(folder)], check=True)
        python = folder / "bin" / "python"
        package = next(folder.glob("lib/python*/site-packages")) / "pandas"
        package.mkdir()
        (package / "__init__.py").write_text(FRAMEWORK)
        return str(python)

    def _why_not(self) -> str:
        told = [path.read_text() for path in self.warm.glob("*/*/*") if path.name in ("log", "refused.json")]
        return f"a warm worker: {told}"


def is_warm(world: World) -> bool:
    return WARM in [payload["text"] for payload in world.payloads(FrameKind.NOTE)]


def ended(world: World) -> Mapping[str, Any]:
    (payload,) = world.payloads(FrameKind.EXITED)
    return payload


def reachable(world: World) -> list[int]:
    """Return the living processes of the ledger."""
    entries = [entry.details for entry in Ledger(world.folder.ledger).entries() if entry.kind is LedgerKind.PROCESS]
    return [entry["pid"] for entry in entries if process_start(entry["pid"]) == entry["started"]]


@pytest.fixture(scope="module", params=["root", "ordinary user"])
def any_yard(request: pytest.FixtureRequest) -> Iterator[WarmYard]:
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("only root can play root's yard")
    yield from _yard(is_root=request.param == "root")


@pytest.fixture(scope="module")
def yard() -> Iterator[WarmYard]:
    yield from _yard(is_root=os.geteuid() == 0)


@pytest.fixture
def own_yard() -> Iterator[WarmYard]:
    """A yard that belongs to one test, which may damage it."""
    yield from _yard(is_root=os.geteuid() == 0)


def _yard(*, is_root: bool) -> Iterator[WarmYard]:
    # Not pytest's own folder, which an ordinary user cannot get to when root runs the tests.
    root = Path(tempfile.mkdtemp(prefix="trainyard-warm-"))
    root.chmod(0o755)
    if os.geteuid() == 0 and not is_root:
        os.chown(root, USER_UID, USER_UID)
    made = WarmYard(root, is_root=is_root)
    try:
        _require_trust(made.base)
        yield made
    finally:
        made.close()
        remove_left(root)


def _require_trust(python: str) -> None:
    try:
        examine_environment(Path(python))
    except Untrusted as error:
        pytest.skip(f"the Python that runs these tests cannot be a warm worker's: {error.message}")


@pytest.mark.flow
def test_the_first_job_of_an_environment_starts_cold_and_the_next_is_forked(any_yard: WarmYard) -> None:
    worker = any_yard.make_warm()
    world = any_yard.run(HELLO)
    assert is_warm(world)
    assert world.log() == [f"imported by {worker.pid} here 2"]
    assert (worker.python, worker.memory_bytes > 0) == (any_yard.python, True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_cannot_tell_that_it_was_forked(yard: WarmYard, name: str) -> None:
    yard.make_warm()
    code = {"train.py": PROGRAMS[name], **BESIDE}
    cold, warm = yard.run(code, keep_s=None), yard.run(code)
    assert (is_warm(cold), is_warm(warm)) == (False, True)
    assert lines(warm) == lines(cold)
    assert ended(warm) == ended(cold)
    assert card(warm) == card(cold)
    assert output_of(warm) == output_of(cold)


def lines(world: World) -> list[str]:
    """Return the output of a program without the addresses of objects."""
    return [re.sub(r"0x[0-9a-f]{6,}", "0x…", line) for line in world.log()]


def card(world: World) -> Any:
    """Return the failure card without its time."""
    last: Mapping[str, Any] = world.frames()[-1].payload
    return last["outcome"], last["reason"], {**(last["card"] or {}), "at_us": None}


def output_of(world: World) -> dict[str, bytes]:
    folder = world.folder.ml / "output" / "data"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_two_programs_of_one_worker_draw_different_numbers(yard: WarmYard) -> None:
    yard.make_warm()
    script = """
import multiprocessing, os, random, secrets, tempfile, uuid, pandas
print(random.random(), secrets.token_hex(8), uuid.uuid4(), tempfile.mktemp(), multiprocessing.current_process().authkey)
"""
    runs = [yard.run(script) for _ in range(2)]
    assert all(map(is_warm, runs))
    words = [run.log()[0].split(" ", 4) for run in runs]
    assert all(one != other for one, other in zip(*words, strict=True))


@pytest.mark.parametrize(
    ("variable", "value"), [("OMP_NUM_THREADS", "1"), ("PYTHONHASHSEED", "0"), ("LD_LIBRARY_PATH", "/usr/lib")]
)
def test_a_variable_that_is_read_at_import_starts_a_program_cold(yard: WarmYard, variable: str, value: str) -> None:
    yard.make_warm()
    world = yard.run(f"import os, pandas\nprint(os.environ[{variable!r}])", environment={variable: value})
    assert (is_warm(world), world.log()) == (False, [value])


def test_other_variables_of_the_job_do_not(yard: WarmYard) -> None:
    yard.make_warm()
    script = "import os, time, pandas\nprint(os.environ['COLOUR'], time.tzname)"
    world = yard.run(script, environment={"COLOUR": "blue", "TZ": "Asia/Tokyo"})
    assert (is_warm(world), world.log()) == (True, ["blue ('JST', 'JST')"])


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("pandas.py", "pandas"),
        ("pandas/__init__.py", "pandas"),
        ("vendor/pandas/__init__.py", "pandas"),
        ("json.py", "json"),
        ("sitecustomize.py", "sitecustomize"),
    ],
)
def test_code_with_a_module_of_the_same_name_as_one_of_the_worker_gets_its_own(
    yard: WarmYard, file: str, name: str
) -> None:
    yard.make_warm()
    script = "import sys\nsys.path.insert(1, '/opt/ml/code/vendor')\nimport pandas\n"
    script += f"import {name}\nprint({name}.OWN, {name}.__file__)"
    world = yard.run({"train.py": script, file: "OWN = 'own'"})
    assert (is_warm(world), world.log()) == (False, [f"own /opt/ml/code/{file}"])


WITH_REQUIREMENTS = """
import importlib.metadata, site, subprocess, sys, sysconfig, pandas, yardtoy
print(yardtoy.version, yardtoy.__file__, pandas.__file__, importlib.metadata.version("yardtoy"))
print(sys.executable, sys.prefix, sys.exec_prefix, sys.base_prefix, sys._base_executable)
print(sys.path, site.PREFIXES, site.ENABLE_USER_SITE, sysconfig.get_path("purelib"), sysconfig.get_config_var("prefix"))
subprocess.run([sys.executable, "-c", "import sys, yardtoy; print(yardtoy.version, sys.path)"], check=True)
"""


def test_a_program_with_requirements_is_forked_and_sees_what_was_installed(any_yard: WarmYard, tmp_path: Path) -> None:
    any_yard.make_warm()
    code = {"train.py": WITH_REQUIREMENTS, "requirements.txt": "yardtoy==1.5\n"}
    wheel = make_wheel(tmp_path, "yardtoy", "1.5")
    any_yard.run(code, wheel=wheel)
    cold, warm = any_yard.run(code, wheel=wheel, keep_s=None), any_yard.run(code, wheel=wheel)
    assert (is_warm(cold), is_warm(warm)) == (False, True), warm.folder.agent_log.read_text()
    assert warm.log() == cold.log()
    assert warm.log()[0].startswith("1.5 /opt/ml/.trainyard/environment/lib/")


def test_a_forked_program_installs_packages_and_imports_them(any_yard: WarmYard, tmp_path: Path) -> None:
    any_yard.make_warm()
    program = (
        "import importlib.util, pandas, subprocess, sys\n"
        "assert importlib.util.find_spec('yardtoy') is None\n"
        "subprocess.run([sys.executable, '-m', 'pip', 'install', '--user', 'yardtoy'], check=True)\n"
        "import yardtoy\nprint('toy', yardtoy.version)\n"
    )
    world = any_yard.run(program, wheel=make_wheel(tmp_path, "yardtoy", "1.5"))
    assert is_warm(world)
    assert world.log()[-1] == "toy 1.5"
    assert not list(any_yard.packages.glob("yardtoy*"))


def test_requirements_that_replace_the_framework_start_a_program_cold(yard: WarmYard, tmp_path: Path) -> None:
    yard.make_warm()
    code = {"train.py": "import pandas\nprint(pandas.version)", "requirements.txt": "pandas==9.5\n"}
    world = yard.run(code, wheel=make_wheel(tmp_path, "pandas", "9.5"))
    assert (is_warm(world), world.log()[-1]) == (False, "9.5")


def test_a_program_that_is_not_a_python_script_starts_cold(yard: WarmYard) -> None:
    yard.make_warm()
    program = ProgramSpec("", "s3://yard/code/sourcedir.tar.gz", (yard.python, "train.py"), yard.python)
    assert not is_warm(yard.run(HELLO, program=program))


def test_a_yard_that_keeps_nothing_warm_makes_no_worker(own_yard: WarmYard) -> None:
    assert own_yard.run(HELLO, keep_s=None).log() == ["imported by 2 here 2"]
    assert not own_yard.warm.exists()


def test_code_without_a_framework_has_a_worker_that_imports_none(own_yard: WarmYard) -> None:
    script = "import sys\nprint('pandas' in sys.modules)"
    own_yard.make_warm()
    assert not is_warm(own_yard.run(script))
    eventually(lambda: len(own_yard.workers()) == 2, "another worker")
    world = own_yard.run(script)
    assert (is_warm(world), world.log()) == (True, ["False"])


def test_a_worker_imports_no_module_because_a_program_names_it(own_yard: WarmYard) -> None:
    for name in ("__main__", "tool"):
        told = own_yard.root / f"imported {name}"
        (own_yard.packages / "pandas" / f"{name}.py").write_text(f"open({str(told)!r}, 'w')\n")
    own_yard.run(f"{HELLO}if 0:\n    import pandas.__main__\n    from pandas.tool import everything\n")
    eventually(lambda: bool(own_yard.workers()), "a worker")
    world = own_yard.run(HELLO)
    assert is_warm(world)
    assert [path.name for path in own_yard.root.glob("imported *")] == []


def test_two_users_never_share_a_worker(yard: WarmYard) -> None:
    first, second = yard.make_warm(), yard.make_warm(account="222")
    assert first.pid != second.pid
    for account, worker in (("111", first), ("222", second)):
        assert yard.run(HELLO, account=account).log() == [f"imported by {worker.pid} here 2"]


def test_the_fourth_environment_of_a_user_gets_a_worker_and_the_least_recently_used_one_leaves(
    own_yard: WarmYard,
) -> None:
    pythons = [own_yard.make_environment(f"environment-{number}") for number in range(4)]
    for python in pythons:
        own_yard.run(HELLO, python=python)
        eventually(lambda: python in [worker.python for worker in own_yard.workers()], "a worker for each")  # noqa: B023
    eventually(lambda: {worker.python for worker in own_yard.workers()} == set(pythons[1:]))


def test_a_program_outlives_its_worker(own_yard: WarmYard) -> None:
    worker = own_yard.make_warm()
    world = own_yard.start(WAIT)
    world.wait_for_line("waiting")
    assert is_warm(world)
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: not worker.is_alive, "the end of the worker")
    (world.folder.ml / "output" / "data" / "go").touch()
    assert world.verdict()["outcome"] == "completed"
    assert world.log() == ["waiting", "gone on"]
    assert reachable(world) == []
    later = own_yard.run(HELLO)
    assert (is_warm(later), later.log()) == (False, ["imported by 2 here 2"])
    assert own_yard.make_warm().pid != worker.pid


@pytest.mark.parametrize("killed", ["agent", "keeper"])
def test_a_forked_program_dies_with_its_agent_and_with_its_keeper(yard: WarmYard, killed: str) -> None:
    worker = yard.make_warm()
    world = yard.start(STAY)
    world.wait_for_line("waiting")
    assert is_warm(world)
    (init,) = reachable(world)
    assert world.agent is not None
    os.kill(world.agent.pid if killed == "agent" else parent_of(init), signal.SIGKILL)
    eventually(lambda: not reachable(world), "the end of the program")
    assert worker.is_alive
    if killed == "keeper":
        assert world.verdict()["outcome"] == "failed"


def parent_of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("PPid:"))


def test_a_stop_reaches_a_forked_program(yard: WarmYard) -> None:
    yard.make_warm()
    world = yard.start(
        """
import signal, sys, time, pandas
signal.signal(signal.SIGTERM, lambda *_: sys.exit("saved"))
print("waiting", flush=True)
time.sleep(600)
"""
    )
    world.wait_for_line("waiting")
    world.stop(CommandKind.STOP)
    assert world.verdict()["outcome"] == "stopped"
    assert (is_warm(world), world.log(), ended(world)["code"]) == (True, ["waiting", "saved"], 1)


def test_workers_that_are_asked_to_leave_let_their_programs_end(own_yard: WarmYard) -> None:
    if os.geteuid() == 0 and not own_yard.is_root:
        pytest.skip("a worker listens to its own user only")
    worker = own_yard.make_warm()
    world = own_yard.start(WAIT)
    world.wait_for_line("waiting")
    dismiss_workers(own_yard.warm)
    eventually(lambda: not own_yard.workers(), "the leaving of the worker")
    assert worker.is_alive
    (world.folder.ml / "output" / "data" / "go").touch()
    assert world.verdict()["outcome"] == "completed"
    eventually(lambda: not worker.is_alive, "the end of the worker")
    assert dead_folders(own_yard.warm) == [worker.folder.root]
    sweep_dead_workers(own_yard.warm)
    assert dead_folders(own_yard.warm) == []
    assert not is_warm(own_yard.run(HELLO))


def test_a_worker_that_is_asked_to_leave_before_it_serves_ends_too(own_yard: WarmYard) -> None:
    (own_yard.packages / "pandas" / "__init__.py").write_text("import time\ntime.sleep(1)\n")
    own_yard.run(HELLO.replace("pandas.imported_by", "0"))
    (folder,) = (WorkerFolder(path) for path in (own_yard.warm / "111").iterdir())
    dismiss_workers(own_yard.warm)
    eventually(lambda: dead_folders(own_yard.warm) == [folder.root], "the end of the worker")
    assert not folder.description.exists()


def test_a_worker_ends_by_itself_when_nobody_has_used_it_for_long(own_yard: WarmYard) -> None:
    worker = own_yard.make_warm(keep_s=1)
    eventually(lambda: not worker.is_alive, "the end of the worker")


def test_a_worker_that_is_asked_to_stay_outlives_its_time(own_yard: WarmYard) -> None:
    worker = own_yard.make_warm(keep_s=5)
    extend_workers(own_yard.warm, "111", seconds=600)
    other = own_yard.make_warm(keep_s=5, account="222")
    eventually(lambda: not other.is_alive, "the end of the worker that nobody keeps")
    assert worker.is_alive


def test_a_worker_whose_environment_has_changed_is_replaced(own_yard: WarmYard) -> None:
    worker = own_yard.make_warm()
    (own_yard.packages / "pandas" / "__init__.py").write_text("imported_by = 'another version'\n")
    (own_yard.packages / "pandas-2.dist-info").mkdir()
    world = own_yard.run(HELLO)
    assert (is_warm(world), world.log()) == (False, ["imported by another version here 2"])
    eventually(lambda: not worker.is_alive, "the end of the worker")
    own_yard.make_warm()
    world = own_yard.run(HELLO)
    assert (is_warm(world), world.log()) == (True, ["imported by another version here 2"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("spoiled", ["owner", "mode"])
def test_an_environment_that_others_can_change_is_never_imported_by_a_worker(own_yard: WarmYard, spoiled: str) -> None:
    file = own_yard.packages / "pandas" / "__init__.py"
    file.write_text(f"open('{own_yard.root}/imported', 'w').close() if __import__('os').getuid() == 0 else 0\n")
    os.chown(file, USER_UID, USER_UID) if spoiled == "owner" else file.chmod(0o666)
    own_yard.run("import pandas")
    eventually(lambda: bool(dead_folders(own_yard.warm)), "the refusal")
    notes = [payload["text"] for payload in own_yard.run("import pandas").payloads(FrameKind.NOTE)]
    assert [note for note in notes if note.startswith("Programs are not started warm") and str(file) in note]
    assert not (own_yard.root / "imported").exists()
    assert own_yard.workers() == []


def test_a_job_has_no_way_to_its_worker(any_yard: WarmYard) -> None:
    worker = any_yard.make_warm()
    script = f"""
import os, signal, socket, sys, pandas

def refused(what, action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        return
    print(what, "is allowed")

def connect(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(path)

refused("the socket", connect, {str(worker.folder.socket)!r})
refused("the folder", os.listdir, {str(worker.folder.root)!r})
refused("a signal", os.kill, {worker.pid}, signal.SIGKILL)
refused("its memory", open, "/proc/{worker.pid}/mem")
for name in ("mem", "environ", "maps", "root", "cwd", "fd"):
    refused("of pid 1, " + name, os.listdir if name in ("root", "cwd", "fd") else open, "/proc/1/" + name)
refused("the executable", open, "/proc/self/exe", "r+b")
refused("its mode", os.chmod, "/proc/self/exe", 0o777)
refused("mounting", os.mkdir, "/mounted")
print(sorted(os.listdir("/proc/self/fd"))[:3], len(os.listdir("/proc/self/fd")))
print([line for line in open("/proc/self/status") if line.startswith("Cap") and int(line.split()[1], 16)])
print(sorted(name for name in os.listdir("/proc") if name.isdigit()), os.getuid())
"""
    world = any_yard.run(script)
    assert is_warm(world)
    uid = JOB_UID if any_yard.is_root else (USER_UID if os.geteuid() == 0 else os.geteuid())
    # Besides its streams and that of the listing, it has the file for its stacks open.
    assert world.log() == ["['0', '1', '2'] 5", "[]", f"['1', '2'] {uid}"]
    assert worker.is_alive


def test_nothing_of_one_job_is_in_the_memory_of_another(any_yard: WarmYard) -> None:
    any_yard.make_warm()
    secret = "".join(("sesame", "-", "8731"))
    any_yard.run(HELLO, environment={"TOKEN": secret})
    search = """
import re, pandas
wanted = ("sesame" + "-" + "87").encode()
found = 0
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
    for line in maps:
        if "rw" not in line.split()[1]:
            continue
        first, last = (int(each, 16) for each in line.split()[0].split("-"))
        memory.seek(first)
        try:
            found += memory.read(last - first).count(wanted + b"31")
        except OSError:
            pass
print("found", found)
"""
    world = any_yard.run(search)
    assert (is_warm(world), world.log()) == (True, ["found 0"])


def test_a_yard_keeps_workers_for_each_of_its_users_until_it_is_stopped(tmp_path: Path) -> None:
    _require_trust(sys.executable)
    with running_yard(tmp_path / "yard") as running:
        known, warm = running.credentials, running.home.warm
        administrator = User(
            running.http, known.account, known.user, known.access_key_id, known.secret_access_key, known.region
        )
        anna, bert = (Trainee(administrator.add_user(name)).prepare() for name in ("anna", "bert"))
        anna.run("first", "print('hello')")
        eventually(lambda: len(warm_workers(warm)) == 1, "a warm worker")
        (worker,) = warm_workers(warm)
        anna.run("second", "print('hello')")
        assert anna.lines("second")[-1] == "hello"
        assert warm_workers(warm)[0].last_used > worker.last_used
        used = warm_workers(warm)[0].last_used
        bert.run("first", "print('hello')")
        eventually(lambda: len(warm_workers(warm)) == 2, "a warm worker of the other user")
        assert {each.account for each in warm_workers(warm)} == {anna.user.account, bert.user.account}
        assert {each.last_used for each in warm_workers(warm) if each.pid == worker.pid} == {used}
        pids = [each.pid for each in warm_workers(warm)]
    eventually(lambda: not any(process_start(pid) for pid in pids), "the end of the workers")


needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or os.geteuid() != 0,
    reason="torch is not installed, or the environment it is in is not root's",
)

TORCH = """
import torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    data = TensorDataset(torch.arange(8.0).reshape(8, 1), torch.arange(8.0))
    for method in ("fork", "spawn", "forkserver"):
        loader = DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context=method)
        print(method, sum(float(y.sum()) for _, y in loader))
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.Adam(model.parameters())
    loss = torch.nn.functional.mse_loss(model(data.tensors[0]), data.tensors[1].unsqueeze(1))
    loss.backward()
    optimizer.step()
    print("sum of a parallel operation", float((torch.ones(512, 512) @ torch.ones(512, 512)).sum()))
    torch.save(model.state_dict(), "/opt/ml/model/model.pt")
    print("seed", torch.initial_seed())

if __name__ == "__main__":
    main()
"""


@needs_torch
@pytest.mark.slow
def test_torch_trains_with_its_workers_and_a_seed_of_its_own(own_yard: WarmYard) -> None:
    cold = own_yard.run(TORCH, python=sys.executable)
    eventually(lambda: bool(own_yard.workers()), "a warm worker")
    runs = [own_yard.run(TORCH, python=sys.executable) for _ in range(2)]
    assert all(map(is_warm, runs)), runs[0].folder.agent_log.read_text()
    told = [[line for line in run.log() if "Warning" not in line] for run in (cold, *runs)]
    assert told[0][:4] == told[1][:4] == told[2][:4]
    assert told[0][3] == "sum of a parallel operation 134217728.0"
    seeds = [each[4].split()[-1] for each in told]
    assert len(set(seeds)) == 3


@needs_torch
@pytest.mark.slow
def test_torch_is_profiled_in_a_forked_program_as_in_a_cold_one(own_yard: WarmYard) -> None:
    output = SyncSpec("s3://yard/profiles", "/opt/ml/output/profiler")
    window = {"DetailedProfilingConfig": '{"StartStep": 3, "NumSteps": 2}'}
    members: dict[str, Any] = {
        "python": sys.executable,
        "profiler": ProfilerSpec(output, parameters=window),
        "environment": {"STEPS": "10"},
    }
    cold = own_yard.run(PROFILED, **members)
    eventually(lambda: bool(own_yard.workers()), "a warm worker")
    warm = own_yard.run(PROFILED, **members)
    assert is_warm(warm), warm.folder.agent_log.read_text()
    for world in (cold, warm):
        with world.store() as store:
            keys = [each.key for each in store.list_objects(BUCKET, prefix="profiles/").objects]
            (trace,) = (read_object(store, key) for key in keys if key.endswith(".pt.trace.json.gz"))
        assert read_trace(io.BytesIO(trace)).steps.numbers.tolist() == [3, 4]
