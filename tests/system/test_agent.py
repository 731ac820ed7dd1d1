"""A whole agent on the folder of one instance, with a real object store and a real sandbox."""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import regex

import trainyard
from tests.unit.instance.agent import samples
from tests.unit.instance.agent.private_index import PASSWORD, private_index
from tests.unit.instance.agent.samples import BUCKET, SPEC, changed, make_bucket, put_object, read_object, tar_gz
from tests.unit.instance.agent.wheels import PYPROJECT, make_source, make_wheel, package_files
from trainyard.engines.local.processes import Deadline
from trainyard.engines.local.sweep import sweep_instance
from trainyard.formats.logs import LogReader
from trainyard.formats.metrics import PointsFile, series_file
from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import NotFound
from trainyard.foundation.home import process_start
from trainyard.instance.agent.layout import ProgramUser
from trainyard.link.contract import (
    ChannelSpec,
    CommandKind,
    DebuggerSpec,
    Frame,
    FrameKind,
    LaunchSpec,
    LimitSpec,
    MetricSpec,
    ObjectsSpec,
    ProgramSpec,
    SyncSpec,
)
from trainyard.link.environments import EnvironmentCache
from trainyard.link.folders import InstanceFolder
from trainyard.link.specs import write_spec
from trainyard.link.spool import read_frames
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.eventually import eventually

JOB_UID = 54_331  # of jobs that root runs
USER_UID = 54_332  # of an ordinary user, when these tests run as root
PATIENCE_S = 60.0
NO_INDEX = {"PIP_NO_INDEX": "1"}

# Becomes another program where no further namespaces can be made, as on machines that forbid them.
WITHOUT_NAMESPACES = """
import ctypes, os, pathlib, sys
uid, gid = os.getuid(), os.getgid()
assert ctypes.CDLL(None).unshare(0x10000000) == 0
for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
    pathlib.Path("/proc/self", name).write_text(text)
pathlib.Path("/proc/sys/user/max_user_namespaces").write_text("0")
os.execv(sys.argv[1], sys.argv[1:])
"""


class World:
    """An object store and the folder of an instance, owned by root or an ordinary user."""

    def __init__(self, root: Path, *, is_root: bool, job: str = "", instance: str = "algo-1") -> None:
        self.root = root
        self.is_root = is_root
        self.job = job or f"j-{uuid.uuid4().hex}"  # tests that run at the same time share a machine
        self.folder = InstanceFolder(root / "jobs" / self.job / "1" / instance)
        self.folder.root.mkdir(parents=True)
        self.agent: subprocess.Popen[bytes] | None = None
        self.prefix: list[str] = []
        self.interpreter = sys.executable if is_root or os.geteuid() != 0 else _interpreter_for_everybody()

    @contextlib.contextmanager
    def store(self) -> Iterator[FilesystemObjects]:
        with contextlib.closing(FilesystemObjects(self.root / "objects")) as store:
            yield store
        self._give_away()

    def start(self, files: Mapping[str, str] | str, **members: Any) -> None:
        """Start an agent on an instance with these files, or this train.py, as its code."""
        code = {"train.py": files} if isinstance(files, str) else files
        with self.store() as store:
            put_object(store, "code/sourcedir.tar.gz", tar_gz(code))
        name = members.pop("entry_point", "train.py")
        members.setdefault("program", ProgramSpec(name, "s3://yard/code/sourcedir.tar.gz", (), self.interpreter))
        members.setdefault("limits", LimitSpec())
        objects, uid = str(self.root / "objects"), JOB_UID if self.is_root else None
        given = {"job_id": self.job, "instance": self.folder.root.name, "objects": ObjectsSpec(objects), "uid": uid}
        write_spec(self.folder.root, changed(SPEC, **(given | members)))
        self._give_away()
        self.agent = self.spawn()

    def spawn(self) -> "subprocess.Popen[bytes]":
        """Start an agent on the folder as it is."""
        with self.folder.agent_log.open("ab") as log:
            return subprocess.Popen(
                [*self.prefix, self.interpreter, "-m", "trainyard.instance.agent.main", str(self.folder.root)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=self._environment,
                start_new_session=True,
                **self._identity(),
            )

    @property
    def _environment(self) -> dict[str, str]:
        sources = [Path(trainyard.__file__).parents[1], Path(regex.__file__).parents[1]]
        return {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(map(str, sources))}

    def _give_away(self) -> None:
        """Give the files to the user of the agent. Files of another agent have their user already and may vanish."""
        if os.geteuid() != 0 or self.is_root:
            return
        owner, job = ProgramUser(USER_UID), self.root / "jobs" / self.job
        for folder in (self.root, job.parent):
            owner.give_path(folder)
        for folder in (self.root / "objects", job):
            if folder.exists():
                with ConfinedFolder.open(folder) as opened:
                    owner.give_tree(opened)

    def _identity(self) -> Any:
        if os.geteuid() != 0 or self.is_root:
            return {}
        return {"user": USER_UID, "group": USER_UID, "extra_groups": []}

    def run(self, files: Mapping[str, str] | str, **members: Any) -> Mapping[str, Any]:
        """Run an instance to its end, and return the payload of its verdict."""
        self.start(files, **members)
        return self.verdict()

    def begin_again(self) -> None:
        """Clear the folder of the instance for another job."""
        shutil.rmtree(self.folder.root)
        self.folder.root.mkdir()

    def verdict(self) -> Mapping[str, Any]:
        assert self.agent is not None
        assert self.agent.wait(PATIENCE_S) == 0, self.folder.agent_log.read_text()
        last = self.frames()[-1]
        assert last.kind is FrameKind.ENDED, self.folder.agent_log.read_text()
        return last.payload

    def frames(self, kind: FrameKind | None = None) -> list[Frame]:
        frames = read_frames(self.folder.spool, 0).frames
        return [frame for frame in frames if kind is None or frame.kind is kind]

    def payloads(self, kind: FrameKind) -> list[Mapping[str, Any]]:
        return [frame.payload for frame in self.frames(kind)]

    def log(self) -> list[str]:
        return [event.message.decode(errors="replace") for event in LogReader(self.folder.logs).scan()]

    def stop(self, kind: CommandKind = CommandKind.STOP, reason: str = "user") -> None:
        """Send a command as the user of the yard."""
        program = (
            "import pathlib, sys\nfrom trainyard.link.mailbox import CommandKind, Mailbox\n"
            "Mailbox(pathlib.Path(sys.argv[1])).put(CommandKind(sys.argv[2]), {'reason': sys.argv[3]})"
        )
        command = [self.interpreter, "-c", program, str(self.folder.mailbox), kind.value, reason]
        subprocess.run(command, check=True, cwd="/", env=self._environment, **self._identity())

    def announce(self) -> None:
        """Write the process of the agent, as the agent does when an engine starts it."""
        assert self.agent is not None
        presence = {"pid": self.agent.pid, "started": process_start(self.agent.pid)}
        self.folder.agent.write_text(json.dumps(presence))
        self._give_away()

    def wait_for_line(self, line: str) -> None:
        eventually(lambda: line in self.log() or self._is_over(), f'the line "{line}"')
        assert line in self.log(), self.folder.agent_log.read_text()

    def archive(self, name: str) -> dict[str, bytes]:
        with self.store() as store:
            data = read_object(store, f"models/mnist-7/output/{name}")
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
            return {entry.name: _bytes(tar, entry) for entry in tar if entry.isfile()}

    def stored(self) -> list[str]:
        with self.store() as store:
            return [each.key for each in store.list_objects(BUCKET, prefix="models/").objects]

    def _is_over(self) -> bool:
        return self.agent is not None and self.agent.poll() is not None


def _bytes(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(entry)
    assert file is not None
    return file.read()


@pytest.fixture(params=["root", "ordinary user"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    is_root = request.param == "root"
    if is_root and os.geteuid() != 0:
        pytest.skip("only root can play root's yard")
    yield from _world(is_root=is_root)


@pytest.fixture
def bare_world() -> Iterator[World]:
    """A world without namespaces."""
    for made in _world(is_root=False):
        made.prefix = [made.interpreter, "-I", "-c", WITHOUT_NAMESPACES]
        yield made


def _world(*, is_root: bool) -> Iterator[World]:
    # Not pytest's own folder, which an ordinary user cannot get to when root runs the tests.
    root = Path(tempfile.mkdtemp(prefix="trainyard-agent-"))
    root.chmod(0o755)
    made = World(root, is_root=is_root)
    with made.store() as store:
        make_bucket(store)
    yield made
    if made.agent is not None and made.agent.poll() is None:
        made.agent.kill()
        made.agent.wait()
    shutil.rmtree(root)


def _interpreter_for_everybody() -> str:
    for candidate in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        program = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
        with contextlib.suppress(OSError):
            run = subprocess.run([candidate, "-I", "-c", program], user=USER_UID, check=False, cwd="/")
            if run.returncode == 0:
                return candidate
    pytest.skip("this machine has no Python that an ordinary user may start")


def with_wheels(world: World, *files: Path) -> dict[str, Any]:
    """Return the members of a spec with which only these files can be installed."""
    with world.store() as store:
        for file in files:
            put_object(store, f"wheels/{file.name}", file.read_bytes())
    channel = ChannelSpec("wheels", "File", "yard", "wheels", tuple(f"wheels/{file.name}" for file in files))
    return {"channels": (channel,), "environment": NO_INDEX | {"PIP_FIND_LINKS": "/opt/ml/input/data/wheels"}}


def environment_with(world: World, wheel: Path) -> str:
    """Return the Python of a new environment with this package."""
    subprocess.run([world.interpreter, "-m", "venv", "--without-pip", world.root / "base"], check=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(next((world.root / "base").glob("lib/python*/site-packages")))
    return str(world.root / "base" / "bin" / "python")


def processes_with(marker: str) -> list[int]:
    """Return the processes of this machine with the marker in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.mark.flow
def test_a_program_runs_from_its_channels_to_its_model(world: World) -> None:
    with world.store() as store:
        put_object(store, "data/train/a.csv", b"1,2\n")
        put_object(store, "data/train/sub/b.csv", b"3,4\n")
    program = """
import argparse, json, os, pathlib, sys
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--name")
print("arguments", parser.parse_args())
data = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"])
print("data", sorted(str(p.relative_to(data)) for p in data.rglob("*.csv")), (data / "sub/b.csv").read_text().strip())
(data / "unpacked").mkdir()
(data / "unpacked" / "new").write_text("mine")
print("hyperparameters", json.load(open("/opt/ml/input/config/hyperparameters.json"))["epochs"])
print("here", os.getcwd(), os.environ["GREETING"])
print("to stderr", file=sys.stderr)
pathlib.Path(os.environ["SM_MODEL_DIR"], "weights.bin").write_bytes(b"weights")
pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], "plots").mkdir()
pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], "plots", "a.txt").write_text("plot")
"""
    verdict = world.run(
        program,
        hyperparameters={"epochs": "3", "name": '"adam"', "sagemaker_program": "train.py"},
        environment={"GREETING": "hello"},
        channels=(ChannelSpec("train", "File", "yard", "data/train", ("data/train/a.csv", "data/train/sub/b.csv")),),
    )
    assert verdict == {"outcome": "completed", "reason": "", "card": None}
    assert world.log() == [
        "arguments Namespace(epochs=3, name='adam')",
        "data ['a.csv', 'sub/b.csv'] 3,4",
        "hyperparameters 3",
        "here /opt/ml/code hello",
        "to stderr",
    ]
    assert world.archive("model.tar.gz") == {"weights.bin": b"weights"}
    assert world.archive("output.tar.gz") == {"plots/a.txt": b"plot"}
    assert [each["status"] for each in world.payloads(FrameKind.STATUS)] == ["Downloading", "Training", "Uploading"]
    assert [each["kind"] for each in world.payloads(FrameKind.ARTIFACT)] == ["model", "output"]
    phases = [each["name"] for each in world.payloads(FrameKind.PHASE)]
    assert phases == ["download", "sandbox", "import", "train", "upload"]
    assert world.payloads(FrameKind.EXITED) == [{"code": 0, "signal": None, "is_oom": False}]
    with world.store() as store:
        assert store.verify(deep=True) == []
        assert read_object(store, "data/train/sub/b.csv") == b"3,4\n"


def test_an_exception_fails_the_instance_with_a_card(world: World) -> None:
    program = "print('epoch 1')\n\ndef step():\n    raise ValueError('loss is negative')\n\nstep()\n"
    verdict = world.run({"train.py": "import model", "model.py": program})
    assert verdict["outcome"] == "failed"
    assert verdict["reason"] == (
        "AlgorithmError: ExecuteUserScriptError:\nExitCode 1\n"
        'ErrorMessage "ValueError: loss is negative (/opt/ml/code/model.py, line 4)"\n'
        'Command "python train.py", exit code: 1'
    )
    card = verdict["card"]
    assert card["kind"] == "user error"
    assert card["exception"]["source"] == "raise ValueError('loss is negative')"
    assert card["exception"]["function"] == "step"
    assert card["last_lines"][0] == "epoch 1"
    assert world.payloads(FrameKind.EXITED) == [{"code": 1, "signal": None, "is_oom": False}]


def test_a_failed_program_leaves_its_output_but_no_model(world: World) -> None:
    program = (
        "open('/opt/ml/model/half', 'w')\nopen('/opt/ml/output/data/why.txt', 'w').write('x')\nraise SystemExit(3)"
    )
    assert world.run(program)["outcome"] == "failed"
    assert world.stored() == ["models/mnist-7/output/output.tar.gz"]
    assert world.archive("output.tar.gz") == {"why.txt": b"x"}


def test_a_code_other_than_zero_fails(world: World) -> None:
    verdict = world.run("import sys\nsys.exit(3)")
    assert verdict["outcome"] == "failed"
    assert verdict["reason"].endswith("exit code: 3")
    assert world.payloads(FrameKind.EXITED) == [{"code": 3, "signal": None, "is_oom": False}]


def test_a_signal_fails_and_is_named(world: World) -> None:
    verdict = world.run("import os, signal\nprint('going', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)")
    assert verdict["outcome"] == "failed"
    assert verdict["card"]["signal"] == "SIGSEGV"
    assert verdict["reason"].endswith("exit code: 139")
    assert world.payloads(FrameKind.EXITED) == [{"code": None, "signal": signal.SIGSEGV, "is_oom": False}]


def test_a_reason_in_output_failure_fails_a_program_that_exits_with_zero(world: World) -> None:
    verdict = world.run("open('/opt/ml/output/failure', 'w').write('the data is stale')")
    assert verdict["outcome"] == "failed"
    assert verdict["reason"] == "AlgorithmError: the data is stale, exit code: 0"


def test_a_stop_is_a_sigterm_and_what_was_saved_in_the_grace_is_kept(world: World) -> None:
    program = """
import signal, sys, time
def save(*_):
    open("/opt/ml/model/checkpoint", "w").write("step 7")
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True: time.sleep(0.1)
"""
    world.start(program, grace_s=60)
    world.wait_for_line("ready")
    asked = time.monotonic()
    world.stop()
    verdict = world.verdict()
    assert time.monotonic() - asked < 30
    assert verdict == {"outcome": "stopped", "reason": "user", "card": None}
    assert world.log() == ["ready", "saved"]
    assert world.archive("model.tar.gz") == {"checkpoint": b"step 7"}


def test_a_program_that_ignores_sigterm_is_killed_when_the_grace_is_over(world: World) -> None:
    marker = f"stubborn-{uuid.uuid4().hex}"
    program = f"""
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("no", flush=True))
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "{marker}"], start_new_session=True)
open("/opt/ml/model/part", "w").write("saved")
print("ready", flush=True)
while True: time.sleep(0.1)
"""
    world.start(program, grace_s=2)
    world.wait_for_line("ready")
    assert processes_with(marker)
    asked = time.monotonic()
    world.stop(reason="user")
    verdict = world.verdict()
    assert time.monotonic() - asked >= 2
    assert (verdict["outcome"], verdict["reason"]) == ("stopped", "user")
    assert world.payloads(FrameKind.EXITED) == [{"code": None, "signal": signal.SIGKILL, "is_oom": False}]
    assert world.archive("model.tar.gz") == {"part": b"saved"}
    assert processes_with(marker) == []


def test_a_kill_ends_everything_at_once_and_uploads_nothing(world: World) -> None:
    world.start("open('/opt/ml/model/a', 'w')\nprint('ready', flush=True)\nimport time\ntime.sleep(600)", grace_s=600)
    world.wait_for_line("ready")
    world.stop(CommandKind.KILL)
    assert world.verdict()["outcome"] == "stopped"
    assert world.stored() == []


def test_a_stop_before_the_program_starts_leaves_it_unstarted(world: World) -> None:
    with world.store() as store:
        put_object(store, "data/a", b"1")
    world.stop()
    verdict = world.run("print('never')", channels=(ChannelSpec("train", "File", "yard", "data", ("data/a",)),))
    assert (verdict["outcome"], verdict["reason"]) == ("stopped", "user")
    assert world.log() == []


def test_a_program_over_its_time_is_stopped_with_a_card(world: World) -> None:
    verdict = world.run("print('ready', flush=True)\nimport time\ntime.sleep(600)", max_runtime_s=1, grace_s=5)
    assert (verdict["outcome"], verdict["reason"]) == ("stopped", "max_runtime")
    assert verdict["card"]["kind"] == "time limit"


def test_metrics_are_stored_as_points_and_reported_as_they_arrive(world: World) -> None:
    program = """
import sys, time
for step in range(200):
    print(f"step {step} loss={200 - step} acc={step / 200:.3f}", end="\\r" if step % 2 else "\\n")
print("loss=nan")
"""
    definitions = (MetricSpec("loss", r"loss=(\S+)"), MetricSpec("acc", "acc=([0-9.]+)"), MetricSpec("none", "nothing"))
    world.run(program, metrics=definitions)
    batches = PointsFile(series_file(world.folder.metrics, "loss")).read(0, 2**62)
    assert [value for batch in batches for value in batch.sums] == [200.0 - step for step in range(200)]
    last = {each["name"]: each for each in world.payloads(FrameKind.METRIC)}
    assert (last["loss"]["value"], last["loss"]["count"]) == (1.0, 200)
    assert (last["acc"]["value"], last["acc"]["count"]) == (0.995, 200)
    assert "none" not in last
    assert any("Metric loss captured something" in each["text"] for each in world.payloads(FrameKind.NOTE))


FLOOD = """
import os
print("ready", flush=True)
piece = b"1\\n" * 32768
while True:
    os.write(1, piece)
"""
# Of each four one finds a value in every line, one takes exponential time, and two are ordinary.
MANY_DEFINITIONS = tuple(
    MetricSpec(f"metric-{number}", (r"(\d)", r"(?:(\d)|\d\d|1)*x?$", r"loss=([0-9.]+)", r"(?<!acc)=(\S+)")[number % 4])
    for number in range(40)
)


def test_a_flood_that_cannot_be_searched_for_metrics_delays_no_stop_and_takes_no_memory(world: World) -> None:
    world.start(FLOOD, metrics=MANY_DEFINITIONS, log_limit_bytes=1 << 26)
    assert world.agent is not None
    eventually(lambda: log_bytes(world) > 40 << 20, "a log of more than twice what may wait to be searched")
    eventually(lambda: bool(world.payloads(FrameKind.METRIC)), "a value, while the flood goes on")
    world.stop()
    eventually(lambda: bool(unsearched(world)), "the end of the search")
    peak = peak_memory(world.agent.pid)
    verdict = world.verdict()
    assert (verdict["outcome"], verdict["reason"]) == ("stopped", "user")
    assert unsearched(world) > 16 << 20, "the stop came before all was searched"
    assert peak < 128 << 20
    assert {each["value"] for each in world.payloads(FrameKind.METRIC)} == {1.0}


def test_a_flood_that_cannot_be_searched_for_metrics_delays_no_time_limit(world: World) -> None:
    verdict = world.run(FLOOD, metrics=MANY_DEFINITIONS, max_runtime_s=2, log_limit_bytes=1 << 26)
    assert (verdict["outcome"], verdict["reason"]) == ("stopped", "max_runtime")
    assert unsearched(world) > 0, "the stop came before all was searched"


def unsearched(world: World) -> int:
    """Return how many bytes were not searched for metrics, from the job's notes."""
    texts = [each["text"] for each in world.payloads(FrameKind.NOTE) if "not searched for metrics" in each["text"]]
    return sum(int(text.split()[0]) for text in texts)


def log_bytes(world: World) -> int:
    return sum(file.stat().st_size for file in world.folder.logs.glob("*.log"))


def peak_memory(pid: int) -> int:
    """Return the peak memory of a process, in bytes."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


def test_the_last_line_before_the_exit_is_found_behind_much_output(world: World) -> None:
    program = "for n in range(100_000): print('step', n, 'of an ordinary training')\nprint('loss=0.25', end='')"
    world.run(program, metrics=(MetricSpec("loss", "loss=([0-9.]+)"), MetricSpec("step", "step ([0-9]+)")))
    last = {each["name"]: (each["value"], each["count"]) for each in world.payloads(FrameKind.METRIC)}
    assert last == {"loss": (0.25, 1), "step": (99_999.0, 100_000)}


def test_a_flood_of_output_is_kept_whole_and_in_order(world: World) -> None:
    program = (
        "import sys\nfor n in range(200000): print(n, file=sys.stderr if n % 7 == 0 else sys.stdout, flush=n % 7 == 0)"
    )
    program = f"import os\nos.environ.pop('PYTHONUNBUFFERED')\n{program}"
    assert world.run(program, log_limit_bytes=1 << 30)["outcome"] == "completed"
    assert sorted(map(int, world.log())) == list(range(200000))


def test_binary_output_and_endless_lines_are_kept(world: World) -> None:
    program = "import os\nos.write(1, b'\\xff\\x00\\x1b[31m' * 10)\nos.write(1, b'x' * 300000)\nos.write(2, b'\\nend')"
    world.run(program)
    events = [event.message for event in LogReader(world.folder.logs).scan()]
    assert events == [b"\xff\x00\x1b[31m" * 10 + b"x" * 300000, b"end"]


def test_the_program_dies_with_an_agent_that_is_killed(world: World) -> None:
    marker = f"orphan-{uuid.uuid4().hex}"
    program = f"""
import os, subprocess, sys, time
command = [sys.executable, "-c", "import time; time.sleep(600)", "{marker}"]
subprocess.Popen(command)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, command)
    os._exit(0)
print("ready", flush=True)
time.sleep(600)
"""
    world.start(program)
    world.wait_for_line("ready")
    eventually(lambda: len(processes_with(marker)) == 2, "both children")
    assert world.agent is not None
    world.agent.send_signal(signal.SIGKILL)
    world.agent.wait()
    eventually(lambda: processes_with(marker) == [], "the end of the program's processes")
    assert FrameKind.ENDED not in {frame.kind for frame in world.frames()}
    assert "ready" in world.log()


def test_a_program_over_its_memory_limit_is_reported(world: World) -> None:
    program = "print('ready', flush=True)\nheld = [bytearray(b'x') * 10_000_000 for _ in range(100)]\nprint('too much')"
    verdict = world.run(program, limits=LimitSpec(memory_bytes=200 * 1024**2))
    assert verdict["outcome"] == "failed"
    assert verdict["card"]["kind"] == "out of memory"
    assert world.log() == ["ready"]


def test_instances_find_each_other_by_name_and_places_outside_can_be_written(world: World) -> None:
    program = """
import os, socket
print(socket.gethostname(), len({socket.gethostbyname(host) for host in ("algo-1", "algo-2")}))
open("/state/checkpoint", "w").write("1")
print(os.listdir("/state"))
"""
    verdict = world.run(program, hosts=("algo-1", "algo-2"), extra_paths=("/state",), uploads=False)
    assert verdict["outcome"] == "completed", world.log()
    assert world.log() == ["algo-1 2", "['checkpoint']"]


@pytest.mark.flow
def test_every_file_and_variable_of_the_container_contract_is_there(world: World) -> None:
    with world.store() as store:
        put_object(store, "data/a.csv", b"1")
    program = """
import json, os, pathlib
ml = pathlib.Path("/opt/ml")
def look(path):
    return json.loads((ml / "input/config" / path).read_text())
found = {
    "files": {name: look(f"{name}.json") for name in ("hyperparameters", "inputdataconfig", "resourceconfig")},
    "channel": (ml / "input/data/train/a.csv").read_text(),
    "variables": dict(os.environ),
}
for name in ("model", "output", "output/data", "output/intermediate", "checkpoints", "code", "/tmp", "/dev/shm"):
    (ml / name / "mine").write_text("can be written")
    (ml / name / "mine").unlink()
print(json.dumps(found))
"""
    given = {"AWS_ENDPOINT_URL": "http://127.0.0.1:4780", "AWS_SESSION_TOKEN": "token", "MINE": "1"}
    channel = ChannelSpec("train", "File", "yard", "data", ("data/a.csv",), content_type="text/csv")
    hyperparameters = {"epochs": "3", "sagemaker_program": '"train.py"', "sagemaker_job_name": '"mnist-7"'}
    assert world.run(program, environment=given, channels=(channel,), hyperparameters=hyperparameters)["outcome"] == (
        "completed"
    ), world.log()
    found = json.loads(world.log()[-1])
    assert found["channel"] == "1"
    assert found["files"]["hyperparameters"] == hyperparameters
    assert found["files"]["inputdataconfig"] == {
        "train": {
            "TrainingInputMode": "File",
            "S3DistributionType": "FullyReplicated",
            "RecordWrapperType": "None",
            "ContentType": "text/csv",
        }
    }
    assert found["files"]["resourceconfig"]["hosts"] == ["algo-1"]
    assert found["files"]["resourceconfig"]["current_group_name"] == "homogeneousCluster"
    variables = found["variables"]
    assert variables.items() >= given.items()
    assert variables["TRAINING_JOB_NAME"] == "mnist-7"
    assert variables["TRAINING_JOB_ARN"].endswith("training-job/mnist-7")
    assert variables["AWS_REGION"] == variables["AWS_DEFAULT_REGION"] == "us-west-2"
    assert variables["SAGEMAKER_METRICS_DIRECTORY"] == "/opt/ml/output/metrics/sagemaker"
    recorded = json.loads((Path(samples.__file__).parent / "toolkit-5.1.4.json").read_text())
    names = {name for each in recorded.values() for name in each["variables"]}
    assert {name for name in names if not name.startswith(("SM_HP_", "SM_CHANNEL_"))} <= set(variables)
    assert (variables["SM_HP_EPOCHS"], variables["SM_CHANNEL_TRAIN"]) == ("3", "/opt/ml/input/data/train")


WRITE = """
import os, pathlib
host = os.environ["SM_CURRENT_HOST"]
for folder in ("/opt/ml/model", "/opt/ml/output/data"):
    pathlib.Path(folder, f"of-{host}").write_text(host)
    pathlib.Path(folder, "shared").write_text(host)
"""


def start_pair(world: World, first: str, second: str, **members: Any) -> World:
    """Start both instances of a job with different programs, and return the second instance."""
    other = World(world.root, is_root=world.is_root, job=world.job, instance="algo-2")
    programs = {"algo-1": first, "algo-2": second}
    script = f"import os\nexec({programs!r}[os.environ['SM_CURRENT_HOST']])"
    for each in (world, other):
        each.start(script, hosts=tuple(programs), uploads=each is world, **members)
    return other


def test_what_all_instances_wrote_becomes_one_archive(world: World) -> None:
    other = start_pair(world, WRITE, f"import time\ntime.sleep(1)\n{WRITE}")
    assert [each.verdict()["outcome"] for each in (world, other)] == ["completed", "completed"]
    both = {"of-algo-1": b"algo-1", "of-algo-2": b"algo-2", "shared": b"algo-2"}
    assert world.stored() == ["models/mnist-7/output/model.tar.gz", "models/mnist-7/output/output.tar.gz"]
    assert world.archive("model.tar.gz") == both
    assert world.archive("output.tar.gz") == both
    assert [each["kind"] for each in world.payloads(FrameKind.ARTIFACT)] == ["model", "output"]
    assert other.payloads(FrameKind.ARTIFACT) == []
    assert any("such as shared" in each["text"] for each in world.payloads(FrameKind.NOTE))


def test_where_one_instance_fails_there_is_no_model_but_the_output_of_all_that_ended(world: World) -> None:
    failing = f"import time\ntime.sleep(1)\n{WRITE}\nraise SystemExit(3)"
    other = start_pair(world, WRITE, failing)
    assert [each.verdict()["outcome"] for each in (world, other)] == ["completed", "failed"]
    assert world.stored() == ["models/mnist-7/output/output.tar.gz"]
    assert world.archive("output.tar.gz") == {"of-algo-1": b"algo-1", "of-algo-2": b"algo-2", "shared": b"algo-2"}


def test_the_first_instance_does_not_wait_for_one_that_is_lost(world: World) -> None:
    other = start_pair(world, WRITE, "print('ready', flush=True)\nimport time\ntime.sleep(600)")
    other.wait_for_line("ready")
    other.announce()
    assert other.agent is not None
    other.agent.kill()
    other.agent.wait()
    assert world.verdict()["outcome"] == "completed"
    assert world.stored() == ["models/mnist-7/output/output.tar.gz"]
    assert world.archive("output.tar.gz") == {"of-algo-1": b"algo-1", "shared": b"algo-1"}


def test_a_kill_ends_the_wait_for_the_others(world: World) -> None:
    other = start_pair(world, WRITE, "print('ready', flush=True)\nimport time\ntime.sleep(600)")
    eventually(lambda: world.frames(FrameKind.EXITED) != [], "the end of the first program")
    world.stop(CommandKind.KILL)
    assert world.verdict()["outcome"] == "stopped"
    assert world.stored() == []
    other.stop(CommandKind.KILL)
    other.verdict()


def test_a_stop_waits_for_what_the_others_save(world: World) -> None:
    saving = f"""
import signal, sys, time
def save(*_):
    time.sleep(1)
    exec({WRITE!r})
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True: time.sleep(0.1)
"""
    other = start_pair(world, WRITE, saving, grace_s=60)
    other.wait_for_line("ready")
    eventually(lambda: world.frames(FrameKind.EXITED) != [], "the end of the first program")
    for each in (world, other):
        each.stop()
    assert other.verdict()["outcome"] == "stopped"
    assert world.verdict()["outcome"] == "completed"
    assert world.archive("model.tar.gz")["of-algo-2"] == b"algo-2"


def test_a_program_that_saved_no_model_leaves_none_and_a_note_says_so(world: World) -> None:
    assert world.run("pass")["outcome"] == "completed"
    assert world.stored() == []
    assert any("there is no model.tar.gz" in each["text"] for each in world.payloads(FrameKind.NOTE))


def test_the_log_begins_with_what_stands_in_place_of_what_was_asked_for(world: World) -> None:
    world.run("print('first')", notes=("The image a:1 maps to an environment with b 2.",))
    assert world.log() == ["[trainyard] The image a:1 maps to an environment with b 2.", "first"]


def test_a_shell_script_runs_with_its_arguments(world: World) -> None:
    verdict = world.run(
        {"scripts/run.sh": "echo got $1 $2; echo $SM_MODEL_DIR; exit 0"},
        entry_point="scripts/run.sh",
        hyperparameters={"epochs": "3"},
    )
    assert verdict["outcome"] == "completed"
    assert world.log() == ["got --epochs 3", "/opt/ml/model"]


def test_a_command_runs_without_code(world: World) -> None:
    program = ProgramSpec(command=("/bin/sh", "-c", "echo from a command"), interpreter=world.interpreter)
    assert world.run("", program=program)["outcome"] == "completed"
    assert world.log() == ["from a command"]


@pytest.mark.flow
def test_requirements_are_installed_before_the_program_runs(world: World, tmp_path: Path) -> None:
    verdict = world.run(
        {"train.py": "import yardtoy; print('toy', yardtoy.version)", "requirements.txt": "yardtoy==1.5\n"},
        **with_wheels(world, make_wheel(tmp_path, "yardtoy", "1.5")),
    )
    assert verdict["outcome"] == "completed", verdict
    assert world.log()[0] == "[trainyard] Installing requirements.txt."
    assert world.log()[-1] == "toy 1.5"
    assert "environment" in [each["name"] for each in world.payloads(FrameKind.PHASE)]


def test_the_next_job_has_the_packages_of_an_earlier_one_at_once_whatever_that_did_to_them(
    world: World, tmp_path: Path
) -> None:
    program = """
import pathlib, subprocess, sys, yardtoy
print("toy", yardtoy.version)
print(subprocess.run(["yardtoy-script"], capture_output=True, text=True).stdout.strip())
pathlib.Path(yardtoy.__file__).write_text("spoiled")
print(pathlib.Path(yardtoy.__file__).read_text())
"""
    files = {"train.py": program, "requirements.txt": "yardtoy==1.5\n"}
    members = with_wheels(world, make_wheel(tmp_path, "yardtoy", "1.5"))
    members |= {"environments": str(world.root / "environments")}
    lines = ["toy 1.5", "script 1.5", "spoiled"]
    for number in (1, 2):
        assert world.run(files, **members)["outcome"] == "completed", world.log()
        assert world.log()[-3:] == lines
        assert len(world.log()) == 3 or number == 1
        world.begin_again()
    (only,) = EnvironmentCache(world.root / "environments").entries()
    assert only.size_bytes > 0
    files["requirements.txt"] = "yardtoy>=1\n"
    assert world.run(files, **members)["outcome"] == "completed", world.log()
    assert len(EnvironmentCache(world.root / "environments").entries()) == 2


def test_two_jobs_that_need_the_same_install_it_once(world: World, tmp_path: Path) -> None:
    files = {"train.py": "import yardtoy; print('toy', yardtoy.version)", "requirements.txt": "yardtoy==1.5\n"}
    members = with_wheels(world, make_wheel(tmp_path, "yardtoy", "1.5"))
    members |= {"environments": str(world.root / "environments")}
    world.start(files, **members)
    other = World(world.root, is_root=world.is_root)
    other.start(files, **members)
    assert [each.verdict()["outcome"] for each in (world, other)] == ["completed", "completed"], other.log()
    assert [each.log()[-1] for each in (world, other)] == ["toy 1.5", "toy 1.5"]
    said = [line for line in world.log() + other.log() if line == "[trainyard] Installing requirements.txt."]
    assert len(said) == 1


def test_an_agent_that_is_killed_while_it_installs_leaves_nothing_half_used(world: World, tmp_path: Path) -> None:
    slow = make_source(tmp_path, "yardslow", "1.0", backend="import time\ntime.sleep(600)\n")
    members = with_wheels(world, slow) | {"environments": str(world.root / "environments")}
    world.start({"train.py": "", "requirements.txt": "yardslow\n"}, **members)
    kept = EnvironmentCache(world.root / "environments")
    eventually(lambda: any((world.root / "environments").glob(".*/bin/python")), "an environment being made")
    assert world.agent is not None
    world.agent.kill()
    world.agent.wait()
    assert kept.entries() == []
    assert len(kept.leftovers()) == 1
    eventually(lambda: not processes_with("installer.py"), "the end of the installation")
    kept.trim(1 << 30)
    assert kept.leftovers() == []


def test_a_job_whose_requirements_are_there_installs_nothing(world: World) -> None:
    have = subprocess.run(
        [
            world.interpreter,
            "-c",
            "import importlib.metadata as m; print(next(iter(m.distributions())).metadata['Name'])",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    files = {"train.py": "import sys; print(sys.prefix)", "requirements.txt": f"# nothing new\n{have}\n"}
    assert world.run(files)["outcome"] == "completed"
    (prefix,) = world.log()
    assert Path(world.interpreter).is_relative_to(prefix)


def test_a_framework_in_another_version_fails_with_both_named(world: World, tmp_path: Path) -> None:
    python = environment_with(world, make_wheel(tmp_path, "torch", "2.0"))
    members = with_wheels(world, make_wheel(tmp_path, "torch", "1.0"))
    program = ProgramSpec("train.py", "s3://yard/code/sourcedir.tar.gz", (), python)
    verdict = world.run({"train.py": "", "requirements.txt": "torch==1.0\n"}, program=program, **members)
    assert verdict["outcome"] == "failed"
    assert "InstallRequirementsError: requirements.txt: This asks for torch==1.0, but the " in verdict["reason"]
    assert "environment of this job has torch 2.0, which jobs do not replace" in verdict["reason"]
    assert "`trainyard images map IMAGE /path/to/python`" in verdict["reason"]


@pytest.mark.parametrize("entry_point", ["yardcode.train", "-m yardcode.train", "train.py"])
def test_code_that_is_a_package_is_installed_and_run_as_one(world: World, entry_point: str) -> None:
    files = {**package_files(), "setup.py": "", "train.py": "import yardcode; print('file', yardcode.__file__)"}
    verdict = world.run(files, entry_point=entry_point, hyperparameters={"epochs": "3"}, environment=NO_INDEX)
    assert verdict["outcome"] == "completed", world.log()
    assert world.log()[0] == "[trainyard] Installing setup.py."
    if entry_point == "train.py":
        assert world.log()[-1] == "file /opt/ml/code/yardcode/__init__.py"  # the code comes first, as everywhere
    else:
        assert world.log()[-1] == "module __main__ ['--epochs', '3']"


SPY = """
import pathlib
def seen():
    for process in pathlib.Path("/proc").iterdir():
        for name in ("environ", "cmdline"):
            try:
                yield (process / name).read_text(errors="replace")
            except OSError:
                pass
pathlib.Path("/opt/ml/output/data/seen").write_text("\\n".join(seen()))
"""


def test_a_package_build_cannot_read_the_password_of_the_index(world: World, tmp_path: Path) -> None:
    files = package_files(needs="yardtoy")
    files |= {"backend.py": f"{SPY}{files['backend.py']}", "setup.py": ""}
    files["train.py"] = "import yardtoy\nprint(yardtoy.version)\nprint(open('/opt/ml/output/data/seen').read())"
    with private_index([make_wheel(tmp_path, "yardtoy", "1.0")]) as index:
        world.prefix = ["/usr/bin/env", f"PIP_INDEX_URL={index.url}", "UV_PUBLISH_TOKEN=of-the-yard"]
        verdict = world.run(files)
    assert verdict["outcome"] == "completed", world.log()
    log = "\n".join(world.log())
    assert "1.0" in world.log()
    assert "PIP_INDEX_URL=http://127.0.0.1:" in log, "it did see what the installer was told"
    assert PASSWORD not in log
    assert "of-the-yard" not in log


def test_a_pyproject_that_cannot_be_built_is_passed_over_with_a_note(world: World) -> None:
    files = {"pyproject.toml": PYPROJECT, "backend.py": "", "train.py": "print('ready')"}
    assert world.run(files, environment=NO_INDEX)["outcome"] == "completed"
    assert world.log()[-1] == "ready"
    assert any(each["text"].startswith("pyproject.toml cannot be ins") for each in world.payloads(FrameKind.NOTE))


# The code of a package that fails to build, which runs in the sandbox of the installation, and what it leaves there.
TRAPS_OF_A_BUILD = """
import os, shutil
victim = "{victim}"
shutil.rmtree("/opt/ml/.trainyard", ignore_errors=True)
for path, place in {{
    "/opt/ml/.trainyard": victim,
    "/opt/ml/checkpoints": victim,
    "/opt/ml/model": victim,
    "/opt/ml/output/data": victim,
    "/opt/ml/output/tensorboard": victim,
}}.items():
    shutil.rmtree(path, ignore_errors=True)
    try:
        os.symlink(place, path)
    except OSError:
        pass
os.mkfifo("/opt/ml/output/failure")
raise ValueError("no build today")
"""


def victim_of(world: World) -> Path:
    """Create a folder of the host that belongs to the user of the yard."""
    victim = world.root / "victim"
    (victim / "environment" / "lib").mkdir(parents=True)
    (victim / "installer.py").write_text("kept")
    (victim / "secret").write_text("a secret of the host")
    for path in (victim, *victim.rglob("*")):
        os.chown(path, 0 if world.is_root else world.root.stat().st_uid, -1)
    return victim


def state_of(folder: Path) -> dict[str, tuple[int, int, str]]:
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        status = path.lstat()
        text = path.read_text() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (status.st_uid, status.st_mode, text)
    return found


def test_links_that_a_failed_build_leaves_lead_the_agent_nowhere(world: World, tmp_path: Path) -> None:
    """The installation runs again without the package, and then the program."""
    victim = victim_of(world)
    before = state_of(victim)
    files = {
        "pyproject.toml": PYPROJECT,
        "backend.py": TRAPS_OF_A_BUILD.format(victim=victim),
        "requirements.txt": "yardtoy==1.5\n",
        "train.py": "import yardtoy; print('toy', yardtoy.version)",
    }
    members = with_wheels(world, make_wheel(tmp_path, "yardtoy", "1.5"))
    members |= {"checkpoint": SyncSpec("s3://yard/ck", "/opt/ml/checkpoints")}
    members |= {"tensorboard": SyncSpec("s3://yard/tb", "/opt/ml/output/tensorboard")}
    verdict = world.run(files, **members)
    assert state_of(victim) == before
    assert verdict["outcome"] == "completed", (verdict, world.log())
    assert world.log()[-1] == "toy 1.5"
    with world.store() as store:
        kept = [each.key for each in store.list_objects(BUCKET).objects]
    assert [key for key in kept if not key.startswith(("code/", "wheels/"))] == []


TRAPS_OF_A_PROGRAM = """
import os, shutil
victim = "{victim}"
os.mkfifo("/opt/ml/output/failure")
for path in ("/opt/ml/model", "/opt/ml/checkpoints", "/opt/ml/output/tensors", "/opt/ml/.trainyard"):
    shutil.rmtree(path, ignore_errors=True)
    os.symlink(victim, path)
os.chdir("/opt/ml/output/data")
for _ in range(3000):
    os.mkdir("deeper")
    os.chdir("deeper")
os.chdir("/tmp")
for _ in range(3000):
    os.mkdir("deeper")
    os.chdir("deeper")
os.close(os.open("huge", os.O_CREAT | os.O_WRONLY))
os.truncate("huge", 1 << 40)
os.mkfifo("/run/trainyard/launch/failures.json")
print("trapped")
"""


def test_traps_that_a_program_leaves_neither_mislead_nor_block_the_agent(world: World) -> None:
    victim = victim_of(world)
    before = state_of(victim)
    debugger = DebuggerSpec({}, SyncSpec("s3://yard/tensors", "/opt/ml/output/tensors"))
    checkpoint = SyncSpec("s3://yard/ck", "/opt/ml/checkpoints")
    verdict = world.run(TRAPS_OF_A_PROGRAM.format(victim=victim), checkpoint=checkpoint, debugger=debugger)
    assert "Folders nested more than 200 deep cannot be stored" in verdict["reason"]
    assert world.log()[-1] == "trapped"
    assert state_of(victim) == before
    sweep_instance(world.folder, Deadline(PATIENCE_S))
    assert not world.folder.ml.exists()
    assert not world.folder.scratch.exists()
    with world.store() as store:
        kept = [each.key for each in store.list_objects(BUCKET).objects]
    assert [key for key in kept if not key.startswith("code/")] == []


def test_code_whose_setup_fails_fails_the_job(world: World) -> None:
    files = {**package_files(), "setup.py": "", "backend.py": "raise ValueError('no build today')", "train.py": ""}
    verdict = world.run(files, environment=NO_INDEX)
    assert verdict["outcome"] == "failed"
    assert verdict["reason"].startswith("AlgorithmError: InstallModuleError: setup.py cannot be installed")


def test_requirements_that_cannot_be_had_fail_with_pips_words(world: World) -> None:
    files = {"train.py": "", "requirements.txt": "no-such-package-of-the-yard\n"}
    verdict = world.run(files, environment=NO_INDEX)
    assert verdict["outcome"] == "failed"
    assert verdict["reason"].startswith("AlgorithmError: InstallRequirementsError: ")
    assert "no-such-package-of-the-yard" in verdict["reason"]


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"channels": (ChannelSpec("train", "File", "yard", "data", ("data/lost",)),)}, "ClientError: The object"),
        (
            {"channels": (ChannelSpec("sets", "File", "", "", folder="/no/such", directory="faces"),), "node": "n7"},
            "ClientError: Channel sets is the folder /no/such/faces of a file system, which does not exist on node n7 "
            "or cannot be read by the yard's user. Mount it at the same path on every node",
        ),
        ({"entry_point": "missing.py"}, 'AlgorithmError: There is no entry point "missing.py"'),
        ({"output_path": "s3://missing/models"}, "AlgorithmError: The model cannot be stored as s3://missing/models/"),
    ],
)
def test_a_failed_start_is_reported(world: World, members: Mapping[str, Any], reason: str) -> None:
    verdict = world.run("open('/opt/ml/model/a', 'w').write('1')", **members)
    assert verdict["outcome"] == "failed"
    assert verdict["reason"].startswith(reason)


def test_why_a_program_failed_is_not_hidden_by_an_output_that_cannot_be_stored(world: World) -> None:
    program = "open('/opt/ml/output/data/a', 'w').write('1')\nraise ValueError('boom')"
    verdict = world.run(program, output_path="s3://missing/models")
    assert "ValueError: boom" in verdict["reason"]
    assert any("The output is not stored" in each["text"] for each in world.payloads(FrameKind.NOTE))


def test_hostile_code_is_refused_and_touches_nothing(world: World) -> None:
    verdict = world.run({"train.py": "", "../../../escaped.py": "x"})
    assert verdict["outcome"] == "failed"
    assert "is refused" in verdict["reason"]
    assert list(world.root.rglob("escaped.py")) == []


def test_links_a_program_leaves_lead_nowhere(world: World) -> None:
    """The agent may be root, and packs what the program left."""
    secret = world.root / "secret"
    secret.write_text("secret of the yard")
    secret.chmod(0o600)
    program = f"""
import os, shutil
os.symlink({str(secret)!r}, "/opt/ml/model/link")
shutil.rmtree("/opt/ml/output")
os.symlink({str(world.root)!r}, "/opt/ml/output")
"""
    (world.root / "failure").write_text("secret of the yard")
    (world.root / "data").mkdir()
    (world.root / "data" / "x").write_text("secret of the yard")
    assert world.run(program)["outcome"] == "completed"
    assert world.stored() == ["models/mnist-7/output/model.tar.gz"]
    assert world.archive("model.tar.gz") == {}


def test_an_instance_is_not_run_twice(world: World) -> None:
    world.run("print('once')")
    assert world.spawn().wait(PATIENCE_S) == 1
    assert json.loads(world.folder.agent_log.read_text().splitlines()[-1])["message"] == (
        "this instance was started before"
    )
    assert world.log() == ["once"]


def test_a_spec_that_cannot_be_read_is_a_verdict(world: World) -> None:
    world.folder.spec.write_text("{}")
    with world.store():
        pass
    assert world.spawn().wait(PATIENCE_S) == 0
    (frame,) = world.frames()
    assert frame.payload["outcome"] == "failed"
    assert frame.payload["reason"].startswith("InternalServerError: ")


def test_without_namespaces_a_program_runs_with_the_paths_of_the_host(bare_world: World) -> None:
    program = """
import json, os, pathlib
print("code", os.getcwd() == os.environ["SM_MODEL_DIR"].replace("/model", "/code"))
print("channel", pathlib.Path(os.environ["SM_CHANNEL_TRAIN"], "a").read_text())
pathlib.Path(os.environ["SM_MODEL_DIR"], "weights").write_text("w")
"""
    with bare_world.store() as store:
        put_object(store, "data/a", b"1")
    verdict = bare_world.run(program, channels=(ChannelSpec("train", "File", "yard", "data", ("data/a",)),))
    assert verdict["outcome"] == "completed", bare_world.folder.agent_log.read_text()
    assert bare_world.log() == ["code True", "channel 1"]
    assert bare_world.archive("model.tar.gz") == {"weights": b"w"}
    assert any("not" in each["text"] for each in bare_world.payloads(FrameKind.NOTE))


def test_without_namespaces_an_isolated_program_does_not_run(bare_world: World) -> None:
    verdict = bare_world.run("print('ran')", is_isolated=True)
    assert verdict["outcome"] == "failed"
    assert "EnableNetworkIsolation, which needs namespaces" in verdict["reason"]
    assert bare_world.log() == []


def test_without_namespaces_a_fast_file_channel_is_guarded_by_its_modes_and_the_job_says_so(bare_world: World) -> None:
    program = """
import os, pathlib
for change in (lambda path: path.write_text("mine"), pathlib.Path.unlink):
    try:
        change(pathlib.Path(os.environ["SM_CHANNEL_TRAIN"], "a"))
        print("changed")
    except PermissionError:
        print("refused")
print(pathlib.Path(os.environ["SM_CHANNEL_SETS"], "b").read_text())
"""
    with bare_world.store() as store:
        put_object(store, "data/a", b"1")
    shared = bare_world.root / "shared"
    shared.mkdir()
    (shared / "b").write_text("2")
    sets = ChannelSpec("sets", "File", "", "", folder=str(shared), is_writable=False)
    verdict = bare_world.run(program, channels=(ChannelSpec("train", "FastFile", "yard", "data", ("data/a",)), sets))
    assert verdict["outcome"] == "completed", bare_world.folder.agent_log.read_text()
    assert bare_world.log() == ["refused", "refused", "2"]
    notes = [each["text"] for each in bare_world.payloads(FrameKind.NOTE)]
    assert any(note.startswith("Channel train is read-only only by the modes of its files") for note in notes)
    assert any(note.startswith("The folder of channel sets is not read-only") for note in notes)


def test_without_overlay_mounts_a_program_finds_its_files_in_place(world: World) -> None:
    program = """
import os
data = "/opt/ml/input/data/train/"
print(open(data + "a").read())
os.unlink(data + "a")
open(data + "a", "w").write("mine")
print(open(data + "a").read())
"""
    with world.store() as store:
        put_object(store, "data/a", b"1")
    elsewhere = world.root / "elsewhere"
    elsewhere.mkdir()
    changes = world.folder.scratch / "channels/train"
    changes.mkdir(parents=True)
    (changes / "upper").symlink_to(elsewhere)  # which leads nowhere in a sandbox, so no kernel makes layers of it
    verdict = world.run(program, channels=(ChannelSpec("train", "File", "yard", "data", ("data/a",)),))
    assert verdict["outcome"] == "completed", world.folder.agent_log.read_text()
    assert world.log() == ["1", "mine"]
    assert (world.folder.ml / "input/data/train/a").read_text() == "mine"
    with world.store() as store:
        assert read_object(store, "data/a") == b"1"


def test_without_namespaces_what_a_job_installs_is_its_own(bare_world: World, tmp_path: Path) -> None:
    """Without mounts, nothing can be placed at the path that the scripts of an environment name."""
    members = with_wheels(bare_world, make_wheel(tmp_path, "yardtoy", "1.5"))
    members["environment"] = NO_INDEX | {"PIP_FIND_LINKS": str(bare_world.folder.ml / "input/data/wheels")}
    program = (
        "import subprocess, yardtoy; print('toy', yardtoy.version, flush=True); subprocess.run(['yardtoy-script'])"
    )
    files = {"train.py": program, "requirements.txt": "yardtoy==1.5\n"}
    verdict = bare_world.run(files, **members, environments=str(bare_world.root / "environments"))
    assert verdict["outcome"] == "completed", bare_world.log()
    assert bare_world.log()[-2:] == ["toy 1.5", "script 1.5"]
    assert EnvironmentCache(bare_world.root / "environments").entries() == []


def test_without_namespaces_what_a_program_left_behind_is_killed_with_it(bare_world: World) -> None:
    marker = f"left-{uuid.uuid4().hex}"
    program = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "{marker}"], start_new_session=True)
print("ready", flush=True)
time.sleep(600)
"""
    bare_world.start(program, grace_s=2)
    bare_world.wait_for_line("ready")
    bare_world.stop()
    assert bare_world.verdict()["outcome"] == "stopped"
    assert processes_with(marker) == []


def test_without_namespaces_an_exception_is_reported_with_its_line(bare_world: World) -> None:
    verdict = bare_world.run("raise ValueError('boom')")
    assert verdict["card"]["exception"]["file"].endswith("train.py")
    assert verdict["card"]["exception"]["line"] == 1


def test_before_the_program_starts_the_agent_loads_only_the_standard_library_and_ours() -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); import trainyard.instance.agent.main; print(*sys.modules)"
    source = Path(trainyard.__file__).parents[1]
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, source], capture_output=True, text=True, check=True
    )
    foreign = {name.partition(".")[0] for name in run.stdout.split()} - sys.stdlib_module_names
    assert foreign == {"trainyard", "__main__"}


def test_checkpoints_are_restored_as_files_of_the_program_and_stored_while_it_runs(world: World) -> None:
    with world.store() as store:
        put_object(store, "ck/deep/old.pt", b"old")
    program = """
import os, time
assert open("/state/deep/old.pt", "r+b").read() == b"old"
os.remove("/state/deep/old.pt")
half = open("/state/half.pt", "wb", 0)
half.write(b"half")
open("/state/new.pt", "wb").write(b"new")
print("saved", flush=True)
while not os.path.exists("/opt/ml/go"):
    time.sleep(0.02)
half.write(b" and half")
"""
    world.start(program, checkpoint=SyncSpec("s3://yard/ck", "/state"), extra_paths=("/state",))
    world.wait_for_line("saved")
    eventually(lambda: checkpoints(world) == {"ck/new.pt": b"new"}, "the sync")
    (world.folder.ml / "go").touch()
    assert world.verdict()["outcome"] == "completed"
    assert checkpoints(world) == {"ck/half.pt": b"half and half", "ck/new.pt": b"new"}


def test_without_namespaces_checkpoints_are_in_the_folder_that_stands_for_opt_ml(bare_world: World) -> None:
    program = 'import os\nopen(os.environ["SAGEMAKER_BASE_DIR"] + "/checkpoints/a.pt", "w").write("a")\n'
    verdict = bare_world.run(program, checkpoint=SyncSpec("s3://yard/ck", "/opt/ml/checkpoints"))
    assert verdict["outcome"] == "completed"
    assert checkpoints(bare_world) == {"ck/a.pt": b"a"}


def test_without_namespaces_no_folder_can_be_shown_elsewhere(bare_world: World) -> None:
    spec = SyncSpec("s3://yard/ck", "/state")
    verdict = bare_world.run("print(1)", checkpoint=spec, extra_paths=("/state",))
    assert verdict["outcome"] == "failed"
    assert "no namespaces, so no folder can be mounted as /state" in verdict["reason"]


def checkpoints(world: World) -> dict[str, bytes]:
    with world.store() as store:
        found = {}
        for each in store.list_objects(BUCKET, prefix="ck/").objects:
            with contextlib.suppress(NotFound):  # deleted after it was listed
                found[each.key] = read_object(store, each.key)
        return found


RANK = """
import os, sys
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "at", os.environ["MASTER_ADDR"].split(".")[0])
sys.exit(int(os.environ["RANK"]) * int(os.environ.get("FAILS", "0")))
"""
TWO_RANKS = LaunchSpec("torchrun", {"algo-1": 2})


def test_a_launcher_runs_the_ranks_of_an_instance_and_tells_which_failed(world: World) -> None:
    assert world.run(RANK, launch=TWO_RANKS, master_port=20000)["outcome"] == "completed"
    assert sorted(world.log()) == ["rank 0 of 2 at algo-1", "rank 1 of 2 at algo-1"]
    world.begin_again()
    verdict = world.run(RANK, launch=TWO_RANKS, master_port=20000, environment={"FAILS": "7"})
    assert (verdict["card"]["rank"], verdict["card"]["exit_code"]) == (1, 7)
    assert "rank 1 on algo-1: rank 1 of 2 at algo-1" in verdict["reason"]


def test_ranks_run_without_namespaces_too_and_reach_each_other_by_address(bare_world: World) -> None:
    assert bare_world.run(RANK, launch=TWO_RANKS, master_port=20000)["outcome"] == "completed"
    assert sorted(bare_world.log()) == ["rank 0 of 2 at 127", "rank 1 of 2 at 127"]


def test_a_stop_reaches_all_ranks(world: World) -> None:
    script = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('saved by', os.environ['RANK'])))\n"
        "print('ready')\ntime.sleep(600)"
    )
    world.start(script, launch=TWO_RANKS, master_port=20000)
    eventually(lambda: world.log().count("ready") == 2, "the start of both ranks")
    world.stop()
    assert world.verdict()["outcome"] == "stopped"
    assert sorted(world.log())[-2:] == ["saved by 0", "saved by 1"]
