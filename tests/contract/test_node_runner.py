"""Runners of instances on nodes, which are folders of this machine, with real agents."""

import io
import os
import signal
import tarfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from trainyard.engines.cluster import mirror
from trainyard.engines.cluster.contract import PullResult
from trainyard.engines.cluster.node_runner import NodeRunner
from trainyard.engines.contract import InstanceRef
from trainyard.engines.local import LocalEngine
from trainyard.formats.logs import LogReader
from trainyard.foundation.clock import utc_now
from trainyard.foundation.errors import Conflict, InvalidRequest, Unavailable
from trainyard.foundation.locations import BucketRef, Location
from trainyard.link.agent_process import ProcessIdentity, find_agent_process
from trainyard.link.contract import (
    Command,
    CommandKind,
    DebuggerSpec,
    Frame,
    FrameKind,
    InstanceSpec,
    RuleSpec,
    SyncSpec,
)
from trainyard.link.folders import InstanceFolder
from trainyard.link.lease import Lease
from trainyard.link.spool import read_frames
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.engines.samples import ACCOUNT, BUCKET, ENDLESS, REGION, SampleEnvironment, attempt_specs
from trainyard.testing.eventually import eventually

JOB_USER = 20001  # of the jobs, when root runs the tests
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); time.sleep(3600)"
SAVES = (
    "import signal, sys, time, pathlib\n"
    "def save(*_):\n"
    "    pathlib.Path('/opt/ml/checkpoints/last').write_text('saved')\n"
    "    pathlib.Path('/opt/ml/model/weights').write_text('saved')\n"
    "    sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, save); print('ready'); time.sleep(3600)"
)
GLOO = """
import os, pathlib, torch, torch.distributed as dist
rank = int(os.environ["SM_CURRENT_HOST"][-1]) - 1
dist.init_process_group("gloo", rank=rank, world_size=2)
value = torch.tensor([rank + 1.0])
dist.all_reduce(value)
value = value.item()
"""
SOCKETS = """
import os, pathlib, socket, time
master = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["SM_CURRENT_HOST"] == "algo-1":
    other, (address, _) = socket.create_server(master).accept()
    other.sendall(b"3.0")
    value = other.recv(3).decode()
else:
    while True:
        try:
            other = socket.create_connection(master)
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    value = other.recv(3).decode()
    other.sendall(b"3.0")
"""
WRITE = """
import os, pathlib, time
tensors = pathlib.Path("/opt/ml/output/tensors")
(tensors / "ended.json").symlink_to("SECRET")
(tensors / "steps/worker_1").mkdir(parents=True)
(tensors / "steps/worker_1/1-0.arrows").write_text("row")
(tensors / f"worker_{os.environ['SM_CURRENT_HOST']}.manifest.json").write_text("{}")
time.sleep(3600)
"""
LEAVE = """
host = os.environ["SM_CURRENT_HOST"]
pathlib.Path(f"/opt/ml/model/{host}").write_text(str(value))
pathlib.Path(f"/opt/ml/output/data/{host}").write_text(pathlib.Path("/etc/hosts").read_text())
"""


@pytest.fixture
def environment(tmp_path: Path) -> SampleEnvironment:
    with closing(FilesystemObjects(tmp_path / "objects")) as objects:
        objects.create_bucket(BucketRef(ACCOUNT, BUCKET), region=REGION, now=utc_now())
    return SampleEnvironment(tmp_path / "objects", uid=JOB_USER if os.geteuid() == 0 else None)


class Visit:
    """One instance on its node, with the mirror of its folder and the frames that the yard received."""

    def __init__(self, place: Path, spec: InstanceSpec, *, agents: Path) -> None:
        self.spec = spec
        self.instance = InstanceRef.of(spec)
        self.node = place / spec.node
        self.folder = self.instance.folder(self.node / "jobs")
        self.mirror = self.instance.folder(place / "yard")
        self.others: dict[str, NodeRunner] = {}
        self.engine = LocalEngine(self.node / "jobs", agents, forks=False, orphans=True)
        self.runner = self.make_runner()
        self.heard = ""
        # While true, nothing from the yard renews the lease.
        self.is_cut_off = False

    def make_runner(self) -> NodeRunner:
        return NodeRunner(self.node, self.instance, engine=self.engine, siblings=lambda name, _: self.others[name])

    def start(self) -> None:
        prepared = self.runner.prepare(self.spec)
        self.heard = prepared.stamp
        self.spec = replace(self.spec, master_port=self.spec.master_port or prepared.port)
        self.runner.start(self.spec, heard=self.heard)

    def pull(self, *commands: Command, wait_s: float = 0.2) -> PullResult:
        heard = "" if self.is_cut_off else self.heard
        pulled = self.runner.pull(mirror.mirrored_sizes(self.mirror), commands, wait_s=wait_s, heard=heard)
        self.heard = pulled.stamp
        mirror.apply_chunks(self.mirror, pulled.chunks)
        return pulled

    def pull_until(self, is_so: Callable[[PullResult], object]) -> PullResult:
        def once() -> PullResult | None:
            pulled = self.pull()
            return pulled if is_so(pulled) else None

        return eventually(once)  # type: ignore[return-value]

    def pull_to_the_end(self) -> PullResult:
        return self.pull_until(lambda pulled: not pulled.is_alive and pulled.is_all)

    def wait_for(self, line: str) -> None:
        self.pull_until(lambda _: line in self.log)

    @property
    def log(self) -> list[str]:
        return [event.text for event in LogReader(self.mirror.logs).scan()]

    @property
    def frames(self) -> tuple[Frame, ...]:
        return read_frames(self.mirror.spool, 0).frames

    @property
    def agent(self) -> ProcessIdentity:
        presence = find_agent_process(self.folder.root)
        assert presence is not None
        return presence


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of agents, copied once."""
    return tmp_path_factory.mktemp("agents")


@pytest.fixture
def visit(tmp_path: Path, agents: Path) -> Iterator[Callable[[InstanceSpec], Visit]]:
    made: list[Visit] = []

    def make(spec: InstanceSpec) -> Visit:
        made.append(Visit(tmp_path, replace(spec, node=spec.node or "node-1"), agents=agents))
        return made[-1]

    yield make
    for each in made:
        with suppress(ProcessLookupError, AssertionError):
            os.kill(each.agent.pid, signal.SIGCONT)
        each.runner.end(patience_s=20)


def one(environment: SampleEnvironment, code: str, *, lease_s: int = 60, grace_s: int = 5) -> InstanceSpec:
    (spec,) = attempt_specs(environment, code)
    return replace(spec, lease_s=lease_s, grace_s=grace_s)


def test_an_instance_is_mirrored_to_its_end_and_forgotten(
    visit: Callable[[InstanceSpec], Visit], environment: SampleEnvironment
) -> None:
    there = visit(one(environment, "print('hello')"))
    there.start()

    last = there.pull_to_the_end()

    assert there.log == ["hello"]
    assert there.frames[-1].payload["outcome"] == "completed"
    assert not last.has_lost_node
    for path, size in mirror.mirrored_sizes(there.folder).items():
        assert (there.mirror.root / path).read_bytes() == (there.folder.root / path).read_bytes(), f"{size} of {path}"
    there.runner.end(patience_s=10)
    there.runner.forget()
    assert not there.folder.root.exists()
    assert not there.pull().is_known
    with pytest.raises(Conflict):
        there.runner.start(there.spec, heard=there.heard)


def test_a_new_runner_continues_and_a_repeated_command_counts_once(
    visit: Callable[[InstanceSpec], Visit], environment: SampleEnvironment
) -> None:
    there = visit(one(environment, f"print('up', flush=True); {ENDLESS}"))
    there.start()
    there.wait_for("up")
    before = there.agent

    there.runner = there.make_runner()
    there.start()
    assert there.pull().is_alive
    assert there.agent == before
    stop = Command(1, CommandKind.STOP, {"reason": "user"})
    there.pull(stop)
    there.pull(stop)
    there.pull_to_the_end()

    assert len(list(there.folder.mailbox.iterdir())) == 1
    assert (there.frames[-1].payload["outcome"], there.frames[-1].payload["reason"]) == ("stopped", "user")


def test_neither_the_agent_nor_its_lease_watchdog_is_a_child_of_the_runner(
    visit: Callable[[InstanceSpec], Visit], environment: SampleEnvironment
) -> None:
    there = visit(one(environment, ENDLESS))
    there.start()
    there.pull_until(lambda _: any(frame.kind is FrameKind.STATUS for frame in there.frames))

    pids = [there.agent.pid, *watchdogs(there.folder)]

    assert len(pids) == 2
    assert os.getpid() not in map(parent_of, pids)


def test_a_start_that_arrives_after_its_lease_starts_nothing(
    visit: Callable[[InstanceSpec], Visit], environment: SampleEnvironment
) -> None:
    there = visit(one(environment, ENDLESS))
    prepared = there.runner.prepare(there.spec)
    seconds, _, boot = prepared.stamp.partition("@")

    for late in (f"{float(seconds) - 61:.3f}@{boot}", f"{seconds}@another-boot", ""):
        with pytest.raises(Unavailable, match="lease"):
            there.runner.start(there.spec, heard=late)

    assert not there.pull().is_alive
    assert find_agent_process(there.folder.root) is None


@pytest.mark.slow
def test_a_program_without_a_lease_saves_and_is_stopped_in_time(
    visit: Callable[[InstanceSpec], Visit], environment: SampleEnvironment, tmp_path: Path
) -> None:
    spec = one(environment, SAVES, lease_s=6, grace_s=3)
    there = visit(replace(spec, checkpoint=SyncSpec(f"s3://{BUCKET}/ck", "/opt/ml/checkpoints")))
    there.start()
    there.wait_for("ready")
    lease = Lease.of(there.folder)
    there.is_cut_off = True

    last = there.pull_to_the_end()

    assert lease.left_s > 0
    assert last.has_lost_node
    assert FrameKind.ENDED not in [frame.kind for frame in there.frames]
    assert "The yard could not be reached" in there.frames[-1].payload["text"]
    with closing(FilesystemObjects(tmp_path / "objects")) as objects:
        keys = [each.key for each in objects.list_objects(BucketRef(ACCOUNT, BUCKET)).objects]
    # There is no model.
    assert keys == ["ck/last"]


@pytest.mark.parametrize("is_agent_stopped", [False, True])
def test_nothing_runs_after_the_lease(
    visit: Callable[[InstanceSpec], Visit], environment: SampleEnvironment, is_agent_stopped: bool
) -> None:
    mark = uuid.uuid4().hex
    there = visit(one(environment, f"{DEAF}  # {mark}", lease_s=4, grace_s=2))
    there.start()
    there.wait_for("deaf")
    if is_agent_stopped:
        os.kill(there.agent.pid, signal.SIGSTOP)
    lease = Lease.of(there.folder)

    eventually(lambda: lease.left_s == 0 or not pids_running(mark))
    eventually(lambda: not pids_running(mark), within=timedelta(seconds=1))

    last = there.pull_to_the_end()
    assert last.has_lost_node
    assert not there.agent.is_alive
    assert FrameKind.ENDED not in [frame.kind for frame in there.frames]
    # The lease may have just expired.
    with suppress(Unavailable):
        there.runner.start(there.spec, heard=there.heard)
    assert not there.pull().is_alive


@pytest.mark.parametrize("code", [SOCKETS, pytest.param(GLOO, marks=pytest.mark.slow)], ids=["sockets", "gloo"])
def test_instances_on_two_nodes_work_together_and_the_first_packs_what_both_left(
    visit: Callable[[InstanceSpec], Visit], environment: SampleEnvironment, tmp_path: Path, code: str
) -> None:
    specs = attempt_specs(environment, code + LEAVE, count=2)
    addresses = ("127.0.0.11", "127.0.0.12")
    first, second = (
        visit(replace(spec, node=f"node-{number}", addresses=addresses, lease_s=60))
        for number, spec in enumerate(specs, 1)
    )
    first.others = {"algo-2": second.runner}
    first.start()
    second.spec = replace(second.spec, master_port=first.spec.master_port)
    second.start()

    second.pull_to_the_end()
    first.pull_to_the_end()

    assert [each.frames[-1].payload["outcome"] for each in (first, second)] == ["completed"] * 2
    model, output = (packed(tmp_path, f"jobs/sample/output/{name}.tar.gz") for name in ("model", "output"))
    assert model == {"algo-1": "3.0", "algo-2": "3.0"}
    assert all("127.0.0.11 algo-1\n127.0.0.12 algo-2\n" in hosts for hosts in output.values())


def test_other_instances_get_only_the_files_meant_for_them(
    visit: Callable[[InstanceSpec], Visit], environment: SampleEnvironment
) -> None:
    there = visit(one(environment, "print('hello')"))

    for path in ("spec.json", "../..", "ml", "agent.log"):
        with pytest.raises(InvalidRequest):
            there.runner.part(path, 0)


def test_the_tensors_of_an_instance_reach_the_node_of_the_first_while_its_program_runs(
    visit: Callable[[InstanceSpec], Visit], environment: SampleEnvironment, tmp_path: Path
) -> None:
    rule = RuleSpec("stalled", "StalledTrainingRule", is_beside=True)
    debugger = DebuggerSpec({}, SyncSpec(f"s3://{BUCKET}/tensors", "/opt/ml/output/tensors"), [rule])
    (tmp_path / "secret").write_text("secret")
    specs = attempt_specs(environment, WRITE.replace("SECRET", str(tmp_path / "secret")), count=2)
    addresses = ("127.0.0.11", "127.0.0.12")
    first, second = (
        visit(replace(spec, node=f"node-{number}", addresses=addresses, lease_s=60, debugger=debugger))
        for number, spec in enumerate(specs, 1)
    )
    first.others = {"algo-2": second.runner}
    assert second.runner.part("tensors", 0) == b"null"
    first.start()
    second.spec = replace(second.spec, master_port=first.spec.master_port)
    second.start()
    brought = InstanceFolder(first.folder.root.with_name("algo-2")).tensors

    eventually(lambda: (brought / "worker_algo-2.manifest.json").exists())

    assert (brought / "steps/worker_1/1-0.arrows").read_text() == "row"
    assert first.pull().is_alive
    assert sorted(path.name for path in brought.iterdir()) == ["steps", "worker_algo-2.manifest.json"]
    # A runner that is root could follow it.
    assert (second.folder.ml / "output/tensors/ended.json").is_symlink()
    for path in ("tensors/spec.json", "tensors/0/../../spec.json"):
        with pytest.raises(InvalidRequest):
            second.runner.part(path, 0)


def packed(tmp_path: Path, key: str) -> dict[str, str]:
    with closing(FilesystemObjects(tmp_path / "objects")) as objects:
        with closing(objects.open(Location(BucketRef(ACCOUNT, BUCKET), key))) as body:
            data = body.read(0, body.info.size)
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            files = [(each.name, archive.extractfile(each)) for each in archive if each.isfile()]
            return {name: file.read().decode() for name, file in files if file is not None}


def watchdogs(folder: InstanceFolder) -> list[int]:
    return [pid for pid in pids_running(str(folder.root)) if b"cluster.lease_watchdog" in command_of(pid)]


def pids_running(mark: str) -> list[int]:
    """Return the processes whose command line contains a mark."""
    pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if mark.encode() in command_of(pid)]


def command_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
