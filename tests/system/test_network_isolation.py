"""Jobs with EnableNetworkIsolation, on a yard that root runs and on one that an ordinary user runs.

What an isolated job cannot reach, another job, or where that is confined as well the host itself, does reach.
"""

import io
import json
import os
import signal
import socket
import sysconfig
import tarfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.system import reaching
from tests.system.reaching import ATTEMPTS, REACHED, WORD
from tests.system.trainees import Trainee
from tests.system.watching import folder_of
from tests.system.yards import KINDS, USER, Place, place_for, trainee_of
from tests.unit.instance.agent.wheels import make_wheel
from trainyard.link.agent_process import find_agent_process
from trainyard.link.contract import FrameKind
from trainyard.link.folders import InstanceFolder
from trainyard.link.spool import read_frames
from trainyard.link.warm import warm_workers
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard

SETS, PACKAGES = "fs-0123456789abcdef0", "fs-0123456789abcdef1"
NEIGHBOUR = f"""
import os, socket
with socket.create_server((os.environ["SM_CURRENT_HOST"], 0)) as listener:
    print(*listener.getsockname(), flush=True)
    while True:
        listener.accept()[0].sendall({WORD!r})
"""
# Beyond what a sandbox without isolation shuts out already: the host itself is the control of these two.
CONFINED = {"abstract_socket", "socket_file"}


@dataclass
class Camp:
    """A yard, one of its users, and things of the host that a job might reach."""

    place: Place
    yard: RunningYard
    anna: Trainee
    targets: dict[str, Any]

    def reached(self, name: str, **changed: Any) -> dict[str, str]:
        """Return the outcome of each attempt of a job with these members."""
        told = self.anna.run(name, Path(reaching.__file__).read_text(), **self._trying(name), **changed)
        assert told["TrainingJobStatus"] == "Completed", (told.get("FailureReason"), self.anna.lines(name)[-5:])
        found: dict[str, str] = json.loads(self.anna.printed(name)[-1])
        return found

    def _trying(self, name: str) -> dict[str, Any]:
        parameters = self.anna.request(name, "")["HyperParameters"]
        return {
            "HyperParameters": parameters | {"targets": json.dumps(json.dumps(self.targets))},
            "InputDataConfig": [file_system("sets", SETS, "rw")],
        }


@pytest.fixture(params=KINDS, scope="module")
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place_for(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def camp(place: Place) -> Iterator[Camp]:
    with place.running(slots="8") as yard, TemporaryDirectory() as folder, ExitStack() as stack:
        shared = Path(folder)  # not below /opt, where every job is kept from sockets
        shared.chmod(0o755)
        (shared / "sets").mkdir()
        (shared / "sets").chmod(0o755)
        table = place.home / "file_systems.toml"
        packages = Path(sysconfig.get_path("purelib"))
        table.write_text(f'[file_systems]\n"{SETS}" = "{shared}"\n"{PACKAGES}" = "{packages.parent}"\n')
        place.give(table)
        anna = trainee_of(yard).prepare()
        targets = stack.enter_context(hosts_things(place, shared / "sets"))
        host, port = yard.http.removeprefix("http://").split(":")
        targets["yard"] = [host, int(port)]
        anna.start("neighbour", NEIGHBOUR)
        address, port = eventually(lambda: anna.printed("neighbour"))[0].split()
        targets["neighbour"] = [address, int(port)]
        yield Camp(place, yard, anna, targets)
        anna.sagemaker.stop_training_job(TrainingJobName="neighbour")
        anna.reach("neighbour", "Stopped")


@contextmanager
def hosts_things(place: Place, shared: Path) -> Iterator[dict[str, Any]]:
    """Run listeners on the host that answer whoever reaches them."""
    word = uuid.uuid4().hex
    files = [place.folder / f"{word}.socket", shared / f"{word}.socket"]
    streams = [socket.create_server(("127.0.0.1", 0))]
    for address in (f"\0{word}", *map(str, files)):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen()
        streams.append(listener)
    for file in files:
        file.chmod(0o777)
    datagrams = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for each in datagrams:
        each.bind(("127.0.0.1", 0))
    for listener in streams:
        serve(partial(greet, listener))
    serve(lambda: datagrams[0].sendto(*received(datagrams[0])))
    serve(lambda: answer_question(datagrams[1]))
    try:
        yield {
            "tcp": streams[0].getsockname()[1],
            "udp": datagrams[0].getsockname()[1],
            "dns": datagrams[1].getsockname()[1],
            "abstract": word,
            "file": str(files[0]),
            "shared": str(files[1]),
            "address": own_address(),
        }
    finally:
        for each in (*streams, *datagrams):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def serve(once: Callable[[], object]) -> None:
    def loop() -> None:
        with suppress(OSError):
            while True:
                once()

    threading.Thread(target=loop, daemon=True).start()


def greet(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection, suppress(OSError):
        connection.sendall(WORD)


def received(server: socket.socket) -> tuple[bytes, Any]:
    data, sender = server.recvfrom(512)
    if sender is None:
        raise ConnectionAbortedError("it was shut down")
    return data, sender


def answer_question(server: socket.socket) -> None:
    question, asking = received(server)
    record = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04" + socket.inet_aton(reaching.ANSWER)
    server.sendto(question[:2] + b"\x81\x80\0\x01\0\x01\0\0\0\0" + question[12:] + record, asking)


def own_address() -> str:
    """Return an address of this machine outside the loopback, if it has a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        with suppress(OSError):
            asking.connect(("198.51.100.1", 80))
        return str(asking.getsockname()[0])


def file_system(directory: str, identifier: str, access: str) -> dict[str, Any]:
    """Return a channel that is a folder of the host with the name of the channel."""
    source = {
        "FileSystemId": identifier,
        "FileSystemType": "EFS",
        "FileSystemAccessMode": access,
        "DirectoryPath": f"/{directory}",
    }
    return {"ChannelName": directory, "DataSource": {"FileSystemDataSource": source}}


def instances(count: int) -> dict[str, Any]:
    return {"InstanceType": "ml.m5.large", "InstanceCount": count, "VolumeSizeInGB": 1}


def test_an_isolated_job_does_not_reach_what_other_jobs_do(camp: Camp) -> None:
    by_host = reaching.outcomes(camp.targets)
    names = {attempt.__name__ for attempt in ATTEMPTS}
    way = {"metadata", "elsewhere", "refusal_of_the_host", "icmp", "machine_of_this_machine"}
    assert {name for name in names - way if by_host[name] != REACHED} == set()
    by_job = camp.reached("open")
    assert {name: by_job[name] for name in names - CONFINED} == {name: by_host[name] for name in names - CONFINED}
    isolated = camp.reached("isolated", EnableNetworkIsolation=True)
    assert {name for name in names if isolated[name] == REACHED} == set()
    assert camp.anna.describe("isolated")["EnableNetworkIsolation"] is True


def test_isolated_instances_that_start_warm_reach_nobody_else_either(camp: Camp) -> None:
    members = {"EnableNetworkIsolation": True, "ResourceConfig": instances(2)}
    camp.reached("isolated-cold", **members)  # has a worker made
    eventually(lambda: warm_workers(camp.yard.home.warm))
    isolated = camp.reached("isolated-warm", **members)
    assert REACHED not in isolated.values()
    first = folder_of(camp.yard, "isolated-warm").root
    assert all("started warm" in " ".join(notes(first.with_name(name))) for name in ("algo-1", "algo-2"))


def notes(folder: Path) -> list[str]:
    frames = read_frames(InstanceFolder(folder).spool, 0).frames
    return [frame.payload["text"] for frame in frames if frame.kind is FrameKind.NOTE]


MEETING = """
import json, os, socket, sys, time
hosts, me = json.loads(os.environ["SM_HOSTS"]), os.environ["SM_CURRENT_HOST"]
word = os.environ["WORD"].encode()
stream = socket.create_server((me, 7000))
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind((me, 7000))
datagrams.settimeout(0.2)
heard = set()
def connect(host):
    while True:
        try:
            return socket.create_connection((host, 7000), timeout=60)
        except ConnectionRefusedError:
            time.sleep(0.05)
calls = [connect(host) for host in hosts]
for call in calls:
    call.sendall(word + me.encode())
for _ in hosts:
    heard.add(stream.accept()[0].recv(100))
assert heard == {word + host.encode() for host in hosts}, heard
heard = set()
deadline = time.monotonic() + 60
while len(heard) < len(hosts) or time.monotonic() < deadline - 59:
    assert time.monotonic() < deadline, heard
    for host in hosts:
        datagrams.sendto(word + me.encode(), (host, 7000))
    try:
        heard.add(datagrams.recv(100))
    except TimeoutError:
        pass
assert heard == {word + host.encode() for host in hosts}, heard
print(socket.gethostbyname(me), os.environ["SM_NETWORK_INTERFACE_NAME"], [name for _, name in socket.if_nameindex()])
"""


def test_instances_meet_by_name_and_two_isolated_jobs_with_the_same_addresses_never_mix(camp: Camp) -> None:
    names = ("meeting-a", "meeting-b")
    for name in names:
        members = {"EnableNetworkIsolation": True, "Environment": {"WORD": name}, "ResourceConfig": instances(3)}
        camp.anna.start(name, MEETING, **members)
    for name in names:
        told = camp.anna.reach(name, "Completed", "Failed")
        assert told["TrainingJobStatus"] == "Completed", (told.get("FailureReason"), camp.anna.lines(name)[-5:])
        for number in range(3):
            line = f"10.200.0.{number + 1} eth0 ['lo', 'eth0']"
            assert camp.anna.printed(name, instance=number)[-1] == line


REDUCING = """
import json, os, torch, torch.distributed as dist
hosts = json.loads(os.environ["SM_HOSTS"])
rank = hosts.index(os.environ["SM_CURRENT_HOST"])
dist.init_process_group("gloo", init_method=f"tcp://{hosts[0]}:7001", rank=rank, world_size=len(hosts))
values = torch.full((1_000_000,), float(rank + 1))
dist.all_reduce(values)
assert values.eq(6.0).all()
print("reduced")
"""


def test_two_isolated_jobs_of_three_instances_reduce_at_once(camp: Camp) -> None:
    names = ("reduce-a", "reduce-b")
    for name in names:
        members = {"EnableNetworkIsolation": True, "ResourceConfig": instances(3), **with_torch(camp.place)}
        camp.anna.start(name, REDUCING, **members)
    for name in names:
        told = camp.anna.reach(name, "Completed", "Failed", within_s=240)
        assert told["TrainingJobStatus"] == "Completed", (told.get("FailureReason"), camp.anna.lines(name)[-5:])
        assert [camp.anna.printed(name, instance=number)[-1] for number in range(3)] == ["reduced"] * 3


def with_torch(place: Place) -> dict[str, Any]:
    """Provide torch to jobs of the ordinary user, whose environment has none."""
    if place.is_root:
        return {}
    return {
        "InputDataConfig": [file_system("site-packages", PACKAGES, "ro")],
        "Environment": {"PYTHONPATH": "/opt/ml/input/data/site-packages"},
    }


LASTING = """
import os, time
print("ready", os.environ["SM_CURRENT_HOST"], flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("victim", ["algo-1", "algo-2"])
def test_nothing_of_a_network_is_left_when_an_agent_is_killed(camp: Camp, victim: str) -> None:
    before, name = socket.if_nameindex(), f"killed-{victim}"
    camp.anna.start(name, LASTING, EnableNetworkIsolation=True, ResourceConfig=instances(2))
    camp.anna.await_line(name, "ready algo-1")
    eventually(lambda: camp.anna.printed(name, instance=1))
    folder = folder_of(camp.yard, name).root
    first, agent = (find_agent_process(folder.with_name(each)) for each in ("algo-1", victim))
    assert first is not None
    assert agent is not None
    namespaces = held_by(first.pid)
    assert len(namespaces) == 3  # the bridge's and two instances'
    assert all(who_has(each) for each in namespaces)
    os.kill(agent.pid, signal.SIGKILL)
    assert camp.anna.reach(name, "Failed")["TrainingJobStatus"] == "Failed"
    eventually(lambda: not any(map(who_has, namespaces)))
    assert socket.if_nameindex() == before


def held_by(pid: int) -> set[str]:
    """Return the network namespaces that a process has open."""
    links = [str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()]
    return {link for link in links if link.startswith("net:")}


def who_has(namespace: str) -> list[int]:
    """Return the processes that are in a network namespace or have it open."""
    found = []
    for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        with suppress(OSError):
            if namespace in {str(Path(f"/proc/{pid}/ns/net").readlink()), *held_by(pid)}:
                found.append(pid)
    return found


@pytest.mark.slow
def test_an_isolated_job_outlives_its_yard(place: Place) -> None:
    """The instances meet while no yard runs, and their results are stored afterwards."""
    other = Place(place.kind, place.folder, place.python, place.uid, name="short-lived")
    yard = other.start(slots="2")
    anna = trainee_of(yard).prepare()
    script = MEETING.replace("calls = ", "open('/opt/ml/model/a', 'w').write(me); time.sleep(3); calls = ")
    members = {"EnableNetworkIsolation": True, "Environment": {"WORD": "alone"}, "ResourceConfig": instances(2)}
    anna.start("alone", script, **members)
    anna.reach("alone", "Training")
    yard.kill()
    with other.running(slots="2") as again:
        anna = trainee_of(again)
        told = anna.reach("alone", "Completed", "Failed")
        assert told["TrainingJobStatus"] == "Completed", (told.get("FailureReason"), anna.lines("alone")[-5:])
        assert anna.keys("out/alone/") == ["out/alone/output/model.tar.gz"]


@pytest.mark.flow
def test_data_and_results_move_though_the_job_is_cut_off(camp: Camp) -> None:
    script = """
import os
assert not [name for name in os.environ if name.startswith("AWS_") and "REGION" not in name and "META" not in name]
text = open("/opt/ml/input/data/train/a.csv").read()
open("/opt/ml/model/copy.csv", "w").write(text)
open("/opt/ml/checkpoints/one", "w").write(text)
print("accuracy=0.5;")
"""
    train = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://data/train/"}}
    algorithm = camp.anna.request("moved", "")["AlgorithmSpecification"]
    told = camp.anna.run(
        "moved",
        script,
        EnableNetworkIsolation=True,
        AlgorithmSpecification=algorithm
        | {"MetricDefinitions": [{"Name": "accuracy", "Regex": r"accuracy=([0-9.]+);"}]},
        InputDataConfig=[{"ChannelName": "train", "DataSource": train}],
        CheckpointConfig={"S3Uri": "s3://data/moved/checkpoints"},
    )
    assert told["TrainingJobStatus"] == "Completed", (told.get("FailureReason"), camp.anna.lines("moved")[-5:])
    assert camp.anna.archive("out/moved/output/model.tar.gz")["copy.csv"] == b"1,2,3\n"
    assert camp.anna.keys("moved/checkpoints/") == ["moved/checkpoints/one"]
    assert [metric["MetricName"] for metric in told["FinalMetricDataList"]] == ["accuracy"]


@pytest.mark.slow
def test_code_in_a_channel_and_wheels_in_the_code_are_installed(camp: Camp, tmp_path: Path) -> None:
    """SDKs send isolated jobs this way, so that the job has nothing to fetch."""
    wheel = make_wheel(tmp_path, "yardtoy", "1.5")
    (tmp_path / "train.py").write_text("import yardtoy; print(yardtoy.version)")
    (tmp_path / "requirements.txt").write_text(f"./{wheel.name}\n")
    told = camp.anna.run("wheels", "", **brought_by_channel(camp, tmp_path), EnableNetworkIsolation=True)
    assert told["TrainingJobStatus"] == "Completed", (told.get("FailureReason"), camp.anna.lines("wheels")[-5:])
    assert camp.anna.printed("wheels")[-1] == "1.5"


def test_a_requirement_that_would_have_to_be_fetched_fails_and_says_why(camp: Camp, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "requirements.txt").write_text("no-such-package-of-the-yard\n")
    told = camp.anna.run("fetching", "", **brought_by_channel(camp, tmp_path), EnableNetworkIsolation=True)
    assert told["TrainingJobStatus"] == "Failed"
    assert "the job has EnableNetworkIsolation, so nothing can be downloaded" in told["FailureReason"]


def brought_by_channel(camp: Camp, folder: Path) -> dict[str, Any]:
    """Return the members of a request whose code comes from the channel "code"."""
    buffer, key = io.BytesIO(), f"{uuid.uuid4().hex}/sourcedir.tar.gz"
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for file in sorted(folder.iterdir()):
            archive.add(file, file.name)
    camp.anna.user.client("s3").put_object(Bucket="data", Key=key, Body=buffer.getvalue())
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://data/{key}"}}
    return {
        "HyperParameters": {
            "sagemaker_program": '"train.py"',
            "sagemaker_submit_directory": '"/opt/ml/input/data/code/sourcedir.tar.gz"',
        },
        "InputDataConfig": [{"ChannelName": "code", "DataSource": source}],
    }


# As Python starts, but where no further namespaces can be made, as on machines that forbid them.
WITHOUT_NAMESPACES = """#!{python} -I
import ctypes, os, pathlib, sys
uid, gid = os.getuid(), os.getgid()
assert ctypes.CDLL(None).unshare(0x10000000) == 0
for name, text in (("setgroups", "deny"), ("uid_map", f"{{uid}} {{uid}} 1"), ("gid_map", f"{{gid}} {{gid}} 1")):
    pathlib.Path("/proc/self", name).write_text(text)
pathlib.Path("/proc/sys/user/max_user_namespaces").write_text("0")
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


@pytest.fixture
def confined_place() -> Iterator[Place]:
    """Provide a place of an ordinary user; a test cannot take namespaces from root."""
    with place_for(USER) as place:
        python = place.folder / "python-without-namespaces"
        python.write_text(WITHOUT_NAMESPACES.format(python=place.python))
        python.chmod(0o755)
        yield replace(place, python=str(python))


def test_a_yard_that_cannot_isolate_jobs_refuses_them(confined_place: Place) -> None:
    with confined_place.running(slots="2") as yard:
        anna = trainee_of(yard).prepare()
        for count in (1, 2):
            with pytest.raises(ClientError, match="EnableNetworkIsolation is not available here, because this machine"):
                anna.start(f"refused-{count}", "", EnableNetworkIsolation=True, ResourceConfig=instances(count))
        assert anna.sagemaker.list_training_jobs()["TrainingJobSummaries"] == []
        assert anna.run("plain", "print('ran')")["TrainingJobStatus"] == "Completed"
