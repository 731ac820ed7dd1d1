"""The container engine fulfils the contract of engines, with an image that the tests build."""

import io
import os
import signal
import socket
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from shutil import which

import pytest

from tests.images import ImageMissing, python_image, require_podman, run_options
from trainyard.engines.container import ContainerEngine
from trainyard.engines.contract import AttemptRef, Engine, InstanceRef
from trainyard.foundation.clock import utc_now
from trainyard.foundation.locations import BucketRef, Location
from trainyard.link.agent_process import ProcessIdentity, find_agent_process
from trainyard.link.containers import (
    abandoned_containers,
    containers_of,
    instances_with_containers,
    run_tool,
    written_folders,
)
from trainyard.link.contract import (
    ChannelSpec,
    CommandKind,
    ContainerSpec,
    DebuggerSpec,
    Frame,
    FrameKind,
    LimitSpec,
    MetricSpec,
    ProgramSpec,
    RuleSpec,
    SyncSpec,
)
from trainyard.link.folders import InstanceFolder
from trainyard.link.ledger import Ledger, LedgerKind
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.engines import EngineContract
from trainyard.testing.engines.contract import reports_to_the_end
from trainyard.testing.engines.samples import ACCOUNT, BUCKET, ENDLESS, REGION, SampleEnvironment, attempt_specs
from trainyard.testing.eventually import eventually
from trainyard.testing.objects import samples

JOB_USER = 20001  # of the jobs, when root runs the tests


@pytest.fixture(scope="module")
def image() -> str:
    try:
        return python_image()
    except ImageMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def jobs(home: Path) -> Path:
    return home / "jobs"


@pytest.fixture(scope="module")
def environment(home: Path, image: str) -> SampleEnvironment:
    with closing(FilesystemObjects(home / "objects")) as objects:
        objects.create_bucket(BucketRef(ACCOUNT, BUCKET), region=REGION, now=utc_now())
    return SampleEnvironment(home / "objects", uid=JOB_USER if os.geteuid() == 0 else None, image=image)


@pytest.fixture(scope="module")
def engine(home: Path, jobs: Path, image: str) -> Iterator[Engine]:
    yield from used(opened(home, jobs), jobs)


@pytest.mark.slow
class TestContainerEngine(EngineContract):
    @pytest.fixture
    def reopen(self, home: Path, tmp_path: Path, image: str) -> Callable[[], Engine]:
        return lambda: opened(home, tmp_path / "jobs")

    @pytest.fixture
    def engine(self, reopen: Callable[[], Engine], tmp_path: Path) -> Iterator[Engine]:
        yield from used(reopen(), tmp_path / "jobs")

    @pytest.fixture
    def kill(self, tmp_path: Path) -> Callable[[InstanceRef], None]:
        return lambda instance: os.kill(agent_of(instance.folder(tmp_path / "jobs")).pid, signal.SIGKILL)


@pytest.mark.slow
class TestDockerClient:
    """The Docker client, connected to podman: the tests run without a Docker Engine."""

    @pytest.fixture
    def engine(self, home: Path, tmp_path: Path, image: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
        docker = which("docker")
        if docker is None:
            pytest.skip("the Docker client is not installed")
        address = f"unix://{tmp_path}/podman.sock"
        monkeypatch.setenv("DOCKER_HOST", address)
        with subprocess.Popen([require_podman(), "system", "service", "--time", "0", address]) as service:
            eventually((tmp_path / "podman.sock").exists)
            jobs = tmp_path / "jobs"
            engine = ContainerEngine(jobs, home / "docker-agents", tool=docker, options=run_options())
            yield from used(engine, jobs)
            service.terminate()

    def test_a_job_runs_with_its_data_and_a_script_in_an_image_without_a_toolkit(
        self, engine: Engine, environment: SampleEnvironment, tmp_path: Path
    ) -> None:
        script = b"import os; print(open(os.environ['SM_CHANNEL_TRAIN'] + '/one.txt').read())"
        put(environment, "docker/one.txt", b"1")
        put(environment, "docker.tar.gz", packed("train.py", script))
        (spec,) = attempt_specs(environment)
        channel = ChannelSpec("train", "File", BUCKET, "docker/", ("docker/one.txt",))
        program = ProgramSpec("train.py", f"s3://{BUCKET}/docker.tar.gz")

        (instance,) = engine.start(
            [replace(spec, program=program, channels=(channel,), container=ContainerSpec(environment.image))]
        )

        assert reports_to_the_end(engine, instance)[-1].payload["outcome"] == "completed"
        assert log_of(tmp_path / "jobs", instance).splitlines()[-1] == "1"

    def test_a_program_that_is_stopped_ends_with_its_own_exit_code(
        self, engine: Engine, environment: SampleEnvironment, tmp_path: Path
    ) -> None:
        code = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print('ready', flush=True)"
        (instance,) = engine.start(attempt_specs(environment, f"{code}; time.sleep(600)"))
        eventually(lambda: "ready" in log_of(tmp_path / "jobs", instance))

        engine.command(instance, CommandKind.STOP, {"reason": "user"})

        frames = reports_to_the_end(engine, instance)
        assert frames[-1].payload["outcome"] == "stopped"
        assert exit_of(frames)["code"] == 7


def opened(home: Path, jobs: Path) -> Engine:
    return ContainerEngine(jobs, home / "agents", tool=require_podman(), options=run_options(), slots=4)


def used(engine: Engine, jobs: Path) -> Iterator[Engine]:
    """Provide an engine, end its jobs afterwards, and check that they leave nothing behind."""
    yield engine
    for attempt in jobs.glob("*/*"):
        engine.end(AttemptRef(attempt.parent.name, int(attempt.name)))
    assert instances_with_containers(require_podman(), jobs) == []


def test_a_program_in_its_image_has_its_configuration_its_data_and_a_model_folder(
    engine: Engine, environment: SampleEnvironment, jobs: Path
) -> None:
    put(environment, "numbers/one.txt", b"1")
    code = """
import json, os, sys
told = json.load(open("/opt/ml/input/config/hyperparameters.json"))
place = "/opt/ml/input/data/train/one.txt"
said = told["epochs"], os.environ["TRAINING_JOB_NAME"], os.environ["SECRET"], open(place).read()
os.write(1, " ".join(said).encode() + b"\\n")
os.write(2, b"then an error\\n")
os.write(1, b"loss=0.25\\n")
open(place, "w").write("changed")
open("/opt/ml/model/weights", "w").write("w")
"""
    (spec,) = attempt_specs(environment, code)
    channel = ChannelSpec("train", "File", BUCKET, "numbers/", ("numbers/one.txt",))
    spec = replace(
        spec,
        hyperparameters={"epochs": "3"},
        environment={"SECRET": 'with "quotes" and\n two lines'},
        channels=(channel,),
        metrics=(MetricSpec("loss", "loss=([0-9.]+)"),),
    )

    (instance,) = engine.start([spec])
    frames = reports_to_the_end(engine, instance)

    assert frames[-1].payload["outcome"] == "completed", frames[-1]
    lines = log_of(jobs, instance).splitlines()
    assert lines == ['3 sample with "quotes" and', " two lines 1", "then an error", "loss=0.25"]
    assert [frame.payload["kind"] for frame in frames if frame.kind is FrameKind.ARTIFACT] == ["model"]
    assert [frame.payload["value"] for frame in frames if frame.kind is FrameKind.METRIC][-1] == 0.25
    assert get(environment, "numbers/one.txt") == b"1"


@pytest.mark.slow
def test_pipes_checkpoints_and_read_only_channels_work_as_in_every_job(
    engine: Engine, environment: SampleEnvironment, jobs: Path
) -> None:
    for name in ("pipe", "fast", "saved"):
        put(environment, f"{name}/file", name.encode())
    code = """
import json
print(open("/opt/ml/input/data/pipe_0").read(), open("/opt/ml/input/data/fast/file").read())
print(open("/opt/ml/kept/deep/file").read(), json.load(open("/opt/ml/input/config/checkpointconfig.json"))["LocalPath"])
open("/opt/ml/kept/deep/file", "w").write("newer")
try:
    open("/opt/ml/input/data/fast/file", "w")
except OSError as error:
    print(error.strerror)
"""
    (spec,) = attempt_specs(environment, code)
    pipe = ChannelSpec("pipe", "Pipe", BUCKET, "pipe/", ("pipe/file",))
    fast = ChannelSpec("fast", "FastFile", BUCKET, "fast/", ("fast/file",))
    kept = SyncSpec(f"s3://{BUCKET}/saved", "/opt/ml/kept/deep")

    (instance,) = engine.start([replace(spec, channels=(pipe, fast), checkpoint=kept)])

    assert reports_to_the_end(engine, instance)[-1].payload["outcome"] == "completed"
    lines = log_of(jobs, instance).splitlines()
    assert lines == ["pipe fast", "saved /opt/ml/kept/deep", "Read-only file system"]
    assert get(environment, "saved/file") == b"newer"


@pytest.mark.slow
def test_writes_to_an_image_and_its_channels_are_on_the_watched_disk(
    engine: Engine, environment: SampleEnvironment, jobs: Path
) -> None:
    put(environment, "train/file", b"1")
    code = "import time; open('/to-image', 'w'); open('/opt/ml/input/data/train/to-channel', 'w')"
    (spec,) = attempt_specs(environment, f"{code}; print('ready', flush=True); time.sleep(600)")
    channel = ChannelSpec("train", "File", BUCKET, "train/", ("train/file",))
    (instance,) = engine.start([replace(spec, channels=(channel,))])
    eventually(lambda: "ready" in log_of(jobs, instance))

    folder = InstanceFolder(instance.folder(jobs).root)
    (container,) = containers_of(require_podman(), folder.root)
    watched = [folder.ml, folder.scratch, *written_folders(require_podman(), container)]
    assert {path.name for place in watched for path in place.rglob("to-*")} >= {"to-image", "to-channel"}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount what it has opened")
def test_a_directory_of_a_file_system_that_is_swapped_for_a_link_leads_nowhere(
    home: Path, environment: SampleEnvironment, tmp_path: Path
) -> None:
    """Another job may write to the file system, and swap the directory between the check of the path and its use."""
    shared = tmp_path / "shared"
    for folder, word in ((shared / "sets", "own"), (tmp_path / "host", "secret")):
        folder.mkdir(parents=True)
        (folder / "word").write_text(word)
    tool = tmp_path / "podman"
    swap = f"mv {shared}/sets {shared}/aside && ln -s {tmp_path}/host {shared}/sets"
    tool.write_text(
        f'#!/bin/sh\n[ "$1" != run ] || [ -e {shared}/aside ] || {{ {swap}; }}\nexec {require_podman()} "$@"\n'
    )
    tool.chmod(0o755)
    jobs = tmp_path / "jobs"
    swapping = ContainerEngine(jobs, home / "agents", tool=str(tool), options=run_options(), slots=4)
    (spec,) = attempt_specs(environment, "print(open('/opt/ml/input/data/sets/word').read())")
    channel = ChannelSpec("sets", "File", "", "", folder=str(shared), directory="sets")

    for engine in used(swapping, jobs):
        (instance,) = engine.start([replace(spec, channels=(channel,))])
        assert reports_to_the_end(engine, instance)[-1].payload["outcome"] == "completed"
        assert (shared / "sets").is_symlink()
        assert log_of(jobs, instance).splitlines() == ["own"]
    assert str(jobs) not in Path("/proc/self/mountinfo").read_text()
    assert (shared / "aside" / "word").read_text() == "own"


@pytest.mark.slow
def test_the_debugger_says_that_it_does_not_watch_programs_in_images(
    engine: Engine, environment: SampleEnvironment, jobs: Path
) -> None:
    (spec,) = attempt_specs(environment)
    tensors = SyncSpec(f"s3://{BUCKET}/tensors", "/opt/ml/output/tensors")
    debugger = DebuggerSpec({}, tensors, [RuleSpec("loss", "LossNotDecreasing")])

    (instance,) = engine.start([replace(spec, debugger=debugger)])
    frames = reports_to_the_end(engine, instance)

    assert frames[-1].payload["outcome"] == "completed"
    (rule,) = [frame.payload for frame in frames if frame.kind is FrameKind.RULE]
    assert (rule["rule"], rule["status"]) == ("loss", "Error")
    assert "tensors are captured only if" in log_of(jobs, instance)


def test_a_program_that_is_stopped_ends_with_its_own_exit_code(
    engine: Engine, environment: SampleEnvironment, jobs: Path
) -> None:
    code = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
time.sleep(600)
"""
    (instance,) = engine.start(attempt_specs(environment, code))
    eventually(lambda: "ready" in log_of(jobs, instance))

    engine.command(instance, CommandKind.STOP, {"reason": "user"})

    frames = reports_to_the_end(engine, instance)
    assert frames[-1].payload["outcome"] == "stopped"
    assert exit_of(frames) == {"code": 7, "signal": None, "is_oom": False}


@pytest.mark.slow
def test_a_program_that_will_not_stop_is_killed_when_its_grace_is_over(
    engine: Engine, environment: SampleEnvironment, jobs: Path
) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
    (instance,) = engine.start([replace(each, grace_s=1) for each in attempt_specs(environment, code)])
    eventually(lambda: "ready" in log_of(jobs, instance))

    engine.command(instance, CommandKind.STOP, {"reason": "user"})

    frames = reports_to_the_end(engine, instance)
    assert frames[-1].payload["outcome"] == "stopped"
    assert exit_of(frames) == {"code": None, "signal": 9, "is_oom": False}


@pytest.mark.slow
def test_limits_hold_and_a_program_that_takes_too_much_memory_is_reported(
    engine: Engine, environment: SampleEnvironment, jobs: Path
) -> None:
    why_not = engine.capabilities().limits
    if why_not:
        pytest.skip(why_not)
    code = """
import os
def read(*paths):
    return next(open(path).read().strip() for path in paths if os.path.exists(path))
print(read("/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max"))
print(read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu.max").split()[0], flush=True)
bytearray(500 << 20)
"""
    limits = LimitSpec(cpus=0.5, memory_bytes=96 << 20, processes=50)

    (instance,) = engine.start([replace(each, limits=limits) for each in attempt_specs(environment, code)])
    frames = reports_to_the_end(engine, instance)

    assert log_of(jobs, instance).splitlines() == ["50", "50000"]
    assert exit_of(frames) == {"code": None, "signal": 9, "is_oom": True}
    assert "more memory than its instance has" in frames[-1].payload["reason"]


def test_isolated_instances_reach_each_other_and_nothing_else(
    engine: Engine, environment: SampleEnvironment, jobs: Path
) -> None:
    why_not = engine.why_not_isolated(2)
    if why_not:
        pytest.skip(why_not)
    code = """
import os, socket, time
host = os.environ["CURRENT_HOST"]
if host == "algo-1":
    listener = socket.create_server(("algo-1", 5000))
    print("heard", listener.accept()[0].recv(10).decode())
else:
    while True:
        try:
            socket.create_connection(("algo-1", 5000), 1).sendall(b"algo-2")
            break
        except OSError:
            time.sleep(0.05)
for address in OUTSIDE:
    try:
        socket.create_connection((address, PORT), 0.5)
        print("reached", address)
    except OSError:
        print("cut off")
"""
    with closing(socket.create_server(("0.0.0.0", 0))) as outside:
        addresses = ["127.0.0.1", "10.200.0.254", own_address()]
        code = code.replace("OUTSIDE", repr(addresses)).replace("PORT", str(outside.getsockname()[1]))
        specs = [replace(each, is_isolated=True) for each in attempt_specs(environment, code, count=2)]
        instances = engine.start(specs)
        ends = [reports_to_the_end(engine, instance)[-1].payload["outcome"] for instance in instances]

    assert ends == ["completed", "completed"]
    assert log_of(jobs, instances[0]).splitlines() == ["heard algo-2", *["cut off"] * 3]
    assert log_of(jobs, instances[1]).splitlines() == ["cut off"] * 3


def test_a_path_from_a_job_is_never_an_option_of_the_tool(
    engine: Engine, environment: SampleEnvironment, jobs: Path, tmp_path: Path
) -> None:
    """podman would present any folder of the machine as output of the job, and let it be changed."""
    canary = tmp_path / "canary"
    canary.mkdir()
    (tmp_path / "work").mkdir()
    (canary / "secret").write_text("secret of the host")
    path = f"/state:O,upperdir={canary},workdir={tmp_path}/work"
    code = "print(open('/state/secret').read()); open('/state/left', 'w').close()"
    (spec,) = attempt_specs(environment, code)
    kept = SyncSpec(f"s3://{BUCKET}/state", path)

    (instance,) = engine.start([replace(spec, checkpoint=kept, extra_paths=(path,))])

    last = reports_to_the_end(engine, instance)[-1].payload
    assert last["outcome"] == "failed"
    assert "path with a colon" in last["reason"]
    assert "secret of the host" not in log_of(jobs, instance)
    assert [each.name for each in canary.iterdir()] == ["secret"]


def test_a_missing_image_fails_the_job_and_says_how_to_pull_it(engine: Engine, environment: SampleEnvironment) -> None:
    (instance,) = engine.start(attempt_specs(replace(environment, image="localhost/no-such-image:7")))

    end = reports_to_the_end(engine, instance)[-1]

    assert end.payload["outcome"] == "failed"
    assert "podman build --tag localhost/no-such-image:7" in end.payload["reason"]
    assert "trainyard images map" in end.payload["reason"]


@pytest.mark.slow
def test_an_image_without_train_and_a_job_without_a_script_say_what_is_missing(
    engine: Engine, environment: SampleEnvironment
) -> None:
    (spec,) = attempt_specs(environment)

    (instance,) = engine.start([replace(spec, container=ContainerSpec(environment.image))])

    end = reports_to_the_end(engine, instance)[-1]
    assert end.payload["outcome"] == "failed"
    assert "`train`" in end.payload["reason"]
    assert "ContainerEntrypoint" in end.payload["reason"]


@pytest.mark.slow
def test_a_script_runs_with_the_python_of_an_image_that_has_no_toolkit(
    engine: Engine, environment: SampleEnvironment, jobs: Path
) -> None:
    script = b"import os, sys; print(os.environ['SM_HP_LR'], sys.argv[1:], os.getcwd())"
    put(environment, "code/source.tar.gz", packed("train.py", script))
    (spec,) = attempt_specs(environment)
    program = ProgramSpec("train.py", f"s3://{BUCKET}/code/source.tar.gz")
    told = {"lr": "0.1", "sagemaker_program": "train.py"}

    (instance,) = engine.start(
        [replace(spec, program=program, hyperparameters=told, container=ContainerSpec(environment.image))]
    )

    assert reports_to_the_end(engine, instance)[-1].payload["outcome"] == "completed"
    assert log_of(jobs, instance).splitlines()[-1] == "0.1 ['--lr', '0.1'] /opt/ml/code"


@pytest.mark.slow
def test_a_container_dies_with_its_agent(engine: Engine, environment: SampleEnvironment, jobs: Path) -> None:
    (instance,) = engine.start(attempt_specs(environment, ENDLESS))
    folder = instance.folder(jobs)
    wait_for_exactly_one_container(folder)

    os.kill(agent_of(folder).pid, signal.SIGKILL)

    eventually(lambda: containers_of(require_podman(), folder.root) == [])
    assert engine.reports(instance, 0).frames[-1].kind is not FrameKind.ENDED


@pytest.mark.slow
def test_ending_an_attempt_removes_a_container_whose_agent_and_supervisor_were_killed(
    engine: Engine, environment: SampleEnvironment, jobs: Path
) -> None:
    (instance,) = engine.start(attempt_specs(environment, ENDLESS))
    folder = instance.folder(jobs)
    wait_for_exactly_one_container(folder)
    entries = Ledger(folder.ledger).entries()
    (supervisor,) = [entry.details["pid"] for entry in entries if entry.kind is LedgerKind.SUPERVISOR]
    agent = agent_of(folder)

    # The agent is stopped first, so that it cannot notice.
    for pid in (agent.pid, supervisor):
        os.kill(pid, signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    os.kill(agent.pid, signal.SIGKILL)

    assert len(containers_of(require_podman(), folder.root)) == 1
    eventually(lambda: abandoned_containers(jobs) == [(require_podman(), folder.root)])
    engine.end(instance.attempt)
    assert containers_of(require_podman(), folder.root) == []
    assert not folder.ml.exists()


def agent_of(folder: InstanceFolder) -> ProcessIdentity:
    found = find_agent_process(folder.root)
    assert found is not None
    return found


def wait_for_exactly_one_container(folder: InstanceFolder) -> None:
    """Wait until the container runs and its supervisor has told the agent, which writes it to its spool."""
    eventually(lambda: running(folder) == 1)


def running(folder: InstanceFolder) -> int:
    label = f"label=trainyard.instance={folder.root}"
    return len(run_tool(require_podman(), "ps", "--quiet", "--filter", label).split())


def log_of(jobs: Path, instance: InstanceRef) -> str:
    folder = instance.folder(jobs).logs
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log"))).decode()


def exit_of(frames: list[Frame]) -> Mapping[str, object]:
    (found,) = [frame.payload for frame in frames if frame.kind is FrameKind.EXITED]
    return found


def put(environment: SampleEnvironment, key: str, body: bytes) -> None:
    with closing(FilesystemObjects(environment.objects_root)) as objects:
        samples.put(objects, Location(BucketRef(ACCOUNT, BUCKET), key), body)


def get(environment: SampleEnvironment, key: str) -> bytes:
    with closing(FilesystemObjects(environment.objects_root)) as objects:
        return samples.body_of(objects, Location(BucketRef(ACCOUNT, BUCKET), key))


def packed(name: str, body: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(body)
        archive.addfile(member, io.BytesIO(body))
    return file.getvalue()


def own_address() -> str:
    """Return the address of this machine for other machines; loopback if there are none."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
