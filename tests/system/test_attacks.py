"""Attacks from inside training jobs, on a yard that root runs and on one that an ordinary user runs.

The attacks are listed in attacks.py, which is also the program that tries them.
"""

import json
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.system import attacks
from tests.system.attacks import ATTACKS
from tests.system.trainees import Trainee, packed
from tests.system.watching import folder_of
from tests.system.yards import KINDS, Place, place_for, trainee_of
from trainyard.link.specs import read_spec
from trainyard.link.spool import read_frames
from trainyard.link.warm import warm_workers
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard

CHANNEL = [
    {
        "ChannelName": "train",
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://data/train/"}},
    }
]
NEIGHBOUR = """
import sys, time
for folder in ("/opt/ml/model", "/tmp", "/dev/shm"):
    open(f"{folder}/" + sys.argv[-1], "w").write("secret")
print("ready", flush=True)
time.sleep(600)
"""


@dataclass
class Siege:
    """A yard with everything that an attacker may want to reach."""

    place: Place
    yard: RunningYard
    word: str
    anna: Trainee
    targets: dict[str, Any]

    @property
    def objects(self) -> Path:
        return self.yard.home.objects


@pytest.fixture(params=KINDS, scope="module")
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place_for(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def siege(place: Place) -> Iterator[Siege]:
    word = f"word{uuid.uuid4().hex}"
    with place.running(slots="4") as yard, ExitStack() as stack:
        administrator = trainee_of(yard).user
        anna, ben = (Trainee(administrator.add_user(name)).prepare() for name in ("anna", "ben"))
        targets = stack.enter_context(hosts_things(place, word))
        for trainee, name in ((anna, "neighbour"), (ben, "stranger")):
            trainee.start(name, NEIGHBOUR, **with_arguments(trainee, name, word))
            trainee.await_line(name, "ready")
        targets["secrets"] = secrets_of(place, yard, word)
        targets["pids"] += [yard.process.pid, *agents_of(yard)]
        yield Siege(place, yard, word, anna, targets)


@contextmanager
def hosts_things(place: Place, word: str) -> Iterator[dict[str, Any]]:
    """Provide things of the host that every process of the yard's user can reach."""
    path = str(place.folder / word[::-1])  # a file whose name is no secret
    key = int(word[-6:], 16)
    shared = Path("/dev/shm", word)
    with (
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
        victim(place, word, key) as pid,
        setuid_program(word),
    ):
        for listening, address in ((named, path), (abstract, f"\0{word}"), (datagrams, f"\0{word}-datagrams")):
            listening.bind(address)
        Path(path).chmod(0o777)
        named.listen()
        abstract.listen()
        shared.write_text("secret")
        place.give(shared)
        try:
            yield {
                "word": word,
                "pids": [pid],
                "socket": path,
                "abstract": word,
                "memory_key": key,
                "folder": "",
                "object": "/opt/ml/input/data/train/a.csv",
            }
        finally:
            shared.unlink()
            Path(path).unlink()


VICTIM = """
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
segment = libc.shmget(int(sys.argv[2]), 4096, 0o1666)
assert segment >= 0
secret = f"secret-{sys.argv[1]}".encode()
assert libc.syscall(ctypes.c_long(int(sys.argv[3])), b"user", secret, b"x", ctypes.c_size_t(1), ctypes.c_long(-4)) > 0
print("ready", flush=True)
sys.stdin.read()
libc.shmctl(segment, 0, None)
"""


@contextmanager
def victim(place: Place, word: str, key: int) -> Iterator[int]:
    """Run a process of the yard's user with shared memory, and a key in that user's keyring."""
    command = [place.python, "-I", "-c", VICTIM, word, str(key), str(attacks._SYSTEM_CALLS["add_key"])]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", **place.identity()
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.communicate()


@contextmanager
def setuid_program(word: str) -> Iterator[None]:
    """Create a setuid program that jobs can see, if the tests run as root and may write there."""
    program = Path("/usr/local/bin", f"setuid-{word}")
    try:
        if os.access(program.parent, os.W_OK):
            shutil.copy("/usr/bin/id", program)
            program.chmod(0o4755)
        yield
    finally:
        program.unlink(missing_ok=True)


def with_arguments(trainee: Trainee, name: str, word: str) -> dict[str, Any]:
    parameters = trainee.request(name, NEIGHBOUR)["HyperParameters"]
    return {"HyperParameters": parameters | {"word": word}}


def secrets_of(place: Place, yard: RunningYard, word: str) -> dict[str, str]:
    home = yard.home
    mine, other = (folder_of(yard, name) for name in ("neighbour", "stranger"))
    private = place.home_of_user / word
    private.write_text("secret")
    place.give(private)
    return {
        "the administrator's keys": str(home.credentials_file),
        "the database": str(home.records_file),
        "the private key of the certificate": str(next(home.certificates.glob("*key*"))),
        "the data file of a stored object": str(data_file(home.objects)),
        "the spool of a job": str(mine.spool),
        "a file of another job": str(mine.ml / "model" / word),
        "a file of another user's job": str(other.scratch / "tmp" / word),
        "a file in the home of a user": str(private),
    }


def data_file(objects: Path) -> Path:
    return next(path for path in objects.rglob("*") if path.is_file() and path.read_bytes() == b"1,2,3\n")


def agents_of(yard: RunningYard) -> list[int]:
    files = yard.home.jobs.glob("*/*/*/agent.json")
    return [json.loads(file.read_text())["pid"] for file in files]


@pytest.mark.parametrize("start", ["cold", "warm"])
def test_every_attack_from_inside_a_job_is_refused(siege: Siege, start: str) -> None:
    before, name = stored(siege), f"attacker-{start}"
    if start == "warm":
        await_worker(siege)
    told = siege.anna.run(name, "", **attacking(siege, start))
    assert told["TrainingJobStatus"] == "Completed", (told.get("FailureReason"), siege.anna.lines(name)[-5:])
    assert is_warm(siege, name) == (start == "warm")
    results = [json.loads(line) for line in siege.anna.lines(name) if line.startswith('{"attack"')]
    refused = {each["attack"]: each["refused"] for each in results}
    assert refused.keys() == ATTACKS.keys()
    assert {name: why for name, why in refused.items() if why.startswith("broken")} == {}
    succeeded = {name for name, why in refused.items() if not why}
    allowed = {name for name, each in ATTACKS.items() if each.is_judged_outside}
    assert succeeded - allowed == set()
    assert stored(siege) == before
    assert list(Path(siege.place.python).parents[1].glob("probe-*")) == []


def is_warm(siege: Siege, name: str) -> bool:
    """Tell whether a program was forked from a warm worker, from the notes of its agent."""
    frames = read_frames(folder_of(siege.yard, name).spool, 0).frames
    return any("The program was started warm" in str(frame.payload.get("text")) for frame in frames)


def await_worker(siege: Siege) -> None:
    """Wait for the warm worker that the first jobs leave."""
    folder = siege.yard.home.warm
    eventually(lambda: bool(warm_workers(folder)) or any(folder.glob("*/*/refused.json")))
    if not warm_workers(folder):
        refusal = next(folder.glob("*/*/refused.json"))
        pytest.skip(f"a warm worker does not trust the folder of these tests: {json.loads(refusal.read_text())['why']}")


def attacking(siege: Siege, start: str) -> dict[str, Any]:
    """Upload the code of the attacker, and return the members of its request."""
    files = {"train.py": Path(attacks.__file__).read_text(), "targets.json": json.dumps(siege.targets)}
    siege.anna.user.client("s3").put_object(Bucket="data", Key="attacker.tar.gz", Body=packed(files))
    parameters = {"sagemaker_program": "train.py", "sagemaker_submit_directory": "s3://data/attacker.tar.gz"}
    # A variable that is read while a framework is imported is of no use to an interpreter that has done so.
    environment = {"OMP_NUM_THREADS": "1"} if start == "cold" else {}
    return {"HyperParameters": parameters, "InputDataConfig": CHANNEL, "Environment": environment}


def stored(siege: Siege) -> tuple[list[Any], bytes, tuple[int, ...]]:
    """Return everything about an object that could be changed: its bytes and its file."""
    with closing(FilesystemObjects(siege.objects)) as objects:
        problems = list(objects.verify(deep=True))
    found = data_file(siege.objects).stat()
    body = siege.anna.user.client("s3").get_object(Bucket="data", Key="train/a.csv")["Body"].read()
    return problems, body, (found.st_uid, found.st_gid, found.st_mode, found.st_size, found.st_mtime_ns)


def test_the_same_attacks_succeed_outside_of_a_sandbox(place: Place) -> None:
    """This proves that the sandbox refuses them, and that a hole in it would be noticed."""
    word = f"decoy{uuid.uuid4().hex}"
    with hosts_things(place, word) as targets:
        targets = decoys(place, targets, word)
        file = place.folder / "decoys.json"
        file.write_text(json.dumps(targets))
        program = place.folder / "attacks.py"
        shutil.copy(attacks.__file__, program)
        command = [place.python, str(program), "control", str(file)]
        if place.is_root:
            command = ["unshare", "--mount", "--uts", *command]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/", **place.identity())
    refused = {each["attack"]: each["refused"] for each in map(json.loads, done.stdout.splitlines())}
    expected = {name for name, each in ATTACKS.items() if place.kind in each.works_for}
    assert len(expected) > len(ATTACKS) / 3
    assert {name: why for name, why in refused.items() if name in expected and why} == {}


def decoys(place: Place, targets: dict[str, Any], word: str) -> dict[str, Any]:
    folder = place.folder / "decoys" / "deep"
    folder.mkdir(parents=True)
    for each in (folder.parent, folder):
        place.give(each)
    files: dict[str, str] = {}
    for secret in attacks.SECRETS:
        file = folder / f"{word}-{len(files)}"
        file.write_text("secret")
        files[secret] = str(place.give(file))
    decoy = folder / "object"
    decoy.write_bytes(b"1,2,3\n")
    place.give(decoy)
    return targets | {"secrets": files, "object": str(decoy), "folder": str(folder)}


LEAVES = """
import os, socket
os.chdir("/opt/ml/model")
open("weights", "w").write("mine")
os.symlink("SECRET", "link")
os.symlink("/etc/shadow", "shadow")
os.symlink("loop", "loop")
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
open(b"odd\\xff\\nname", "w").write("odd")
open("setuid", "w").write("s")
os.chmod("setuid", 0o6777)
open("closed", "w").write("closed")
os.chmod("closed", 0)
os.makedirs("shut/in")
open("shut/in/file", "w").write("shut")
os.chmod("shut", 0)
os.rmdir("/opt/ml/output/data")
os.symlink("SECRETS", "/opt/ml/output/data")
os.chmod("/opt/ml/model", 0)
"""


@pytest.mark.flow
def test_a_model_is_packed_as_it_is_without_the_targets_of_its_links(siege: Siege) -> None:
    """The agent may be root, and packs what the program left."""
    secret = siege.targets["secrets"]["the administrator's keys"]
    script = LEAVES.replace("SECRETS", str(Path(secret).parent)).replace("SECRET", secret)
    told = siege.anna.run("leaves", script)
    assert told["TrainingJobStatus"] == "Completed", told
    assert siege.anna.keys("out/leaves/") == ["out/leaves/output/model.tar.gz"]
    entries = siege.anna.archive("out/leaves/output/model.tar.gz")
    files = {name: content for name, content in entries.items() if content is not None}
    assert files == {
        "weights": b"mine",
        "odd\udcff\nname": b"odd",
        "setuid": b"s",
        "closed": b"closed",
        "shut/in/file": b"shut",
    }
    assert entries.keys() - files.keys() == {"link", "shadow", "loop", "shut", "shut/in"}
    assert nothing_is_left(siege, "leaves")


DEEP = """
import os
os.chdir("/opt/ml/PLACE")
for _ in range(2500):
    os.mkdir("deeper")
    os.chdir("deeper")
"""


@pytest.mark.parametrize("where", ["model", "checkpoints"])
def test_folders_without_end_are_cleared_away(siege: Siege, where: str) -> None:
    told = siege.anna.run(f"deep-{where}", DEEP.replace("PLACE", where))
    if where == "model":
        assert told["FailureReason"] == "AlgorithmError: Folders nested more than 200 deep cannot be stored."
    else:
        assert told["TrainingJobStatus"] == "Completed", told
    assert nothing_is_left(siege, f"deep-{where}")


def test_a_file_of_nothing_but_holes_does_not_keep_the_agent_busy(siege: Siege) -> None:
    told = siege.anna.run(
        "holes", "import os\nos.truncate(os.open('/opt/ml/model/holes', os.O_CREAT | os.O_RDWR), 1 << 42)"
    )
    assert '"holes" claims to have 4398046511104 bytes but is nearly empty' in told["FailureReason"]
    assert siege.anna.keys("out/holes/") == []
    assert nothing_is_left(siege, "holes")


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("os.mkfifo(path)", ""),
        ("os.mkdir(path)", ""),
        ("os.symlink('SECRET', path)", ""),
        ("os.symlink('/dev/zero', path)", ""),
        ("os.truncate(os.open(path, os.O_CREAT | os.O_RDWR), 1 << 42)", "AlgorithmError: \0\0"),
        (
            "open(path, 'wb').write(b'\\x1b[2J\\xff\\r\\n{\"level\": \"forged\"}\\n' * 9999)",
            "AlgorithmError: \x1b[2J\ufffd",
        ),
    ],
)
def test_the_reason_that_a_program_writes_is_read_as_text_and_no_further(siege: Siege, how: str, reason: str) -> None:
    name = f"reason-{uuid.uuid4().hex[:8]}"
    script = f"import os\npath = '/opt/ml/output/failure'\n{how}"
    told = siege.anna.run(name, script.replace("SECRET", siege.targets["secrets"]["the administrator's keys"]))
    assert told["TrainingJobStatus"] == ("Failed" if reason else "Completed"), told
    assert told.get("FailureReason", "").startswith(reason)
    assert len(told.get("FailureReason", "")) <= 1024
    assert nothing_is_left(siege, name)


def test_no_line_of_a_program_gets_into_a_journal_as_one_of_its_own(siege: Siege) -> None:
    forged = '{"at": "2026-01-01T00:00:00.000+00:00", "level": "error", "source": "forged", "message": "forged"}'
    siege.anna.run("forger", f"print('''{forged}''')\nraise ValueError('''\\n{forged}\\n''')")
    assert forged in siege.anna.lines("forger")
    journals = [siege.yard.home.server_log, folder_of(siege.yard, "forger").agent_log]
    for journal in journals:
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        assert lines
        assert "forged" not in {line["source"] for line in lines}


def test_the_credentials_of_a_job_rule_nothing_and_end_with_it(siege: Siege) -> None:
    """Not even those of a job of the administrator, whose own credentials could do anything."""
    boss = trainee_of(siege.yard)
    boss.user.client("s3").create_bucket(Bucket="boss")
    boss = Trainee(boss.user, bucket="boss")
    boss.start("ruler", "import time\nprint('ready', flush=True)\ntime.sleep(600)")
    boss.await_line("ruler", "ready")
    client = clients_of(siege.yard, "ruler")
    refused: list[Callable[[], Any]] = [
        lambda: client("iam").create_user(UserName="mallory"),
        lambda: client("iam").create_access_key(UserName="anna"),
        lambda: client("s3").list_objects_v2(Bucket="data", ExpectedBucketOwner=siege.anna.user.account),
        lambda: client("sagemaker").describe_training_job(TrainingJobName="neighbour"),
    ]
    for call in refused:
        with pytest.raises(ClientError):
            call()
    assert client("sts").get_caller_identity()["Account"] == boss.user.account
    boss.sagemaker.stop_training_job(TrainingJobName="ruler")
    boss.reach("ruler", "Stopped")
    with pytest.raises(ClientError, match=r"InvalidClientTokenId|ExpiredToken|InvalidToken"):
        client("sts").get_caller_identity()


def clients_of(yard: RunningYard, name: str) -> Callable[[str], Any]:
    """Return clients with the credentials from the environment of a job."""
    given = read_spec(folder_of(yard, name).root).environment
    session = boto3.Session(
        given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"], given["AWS_SESSION_TOKEN"], given["AWS_REGION"]
    )
    return lambda service: session.client(service, endpoint_url=yard.http)


def nothing_is_left(siege: Siege, name: str) -> bool:
    """Tell whether the folders of an ended job are gone."""
    folder = folder_of(siege.yard, name)
    assert not folder.ml.exists()
    assert not folder.scratch.exists()
    siege.anna.sagemaker.delete_training_job(TrainingJobName=name)
    return not folder.root.exists()
