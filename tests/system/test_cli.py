"""The command line with real processes, real yards and real faults."""

import json
import os
import pty
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions
import pytest

from trainyard.foundation.home import FORMAT, Home
from trainyard.testing.eventually import eventually

Output = subprocess.CompletedProcess[str]
LIMIT_S = 90
TRUST = json.dumps({"Statement": {"Effect": "Allow", "Principal": {"Service": "x"}, "Action": "sts:AssumeRole"}})


class CommandLine:
    """`trainyard` for a user with their own home."""

    def __init__(self, user_home: Path) -> None:
        self.user_home = user_home
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TRAINYARD_"))}
        self.environment = kept | {"HOME": str(user_home), "TRAINYARD_HOME": str(user_home / "yard")}
        self.home = Home(user_home / "yard")
        self.program = [sys.executable, "-m", "trainyard.cli"]

    def __call__(self, *arguments: str, before: tuple[str, ...] = ()) -> Output:
        command = [*before, *self.program, *arguments]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    def up(self, *arguments: str) -> dict[str, Any]:
        """Start a yard and return its status."""
        started = self("up", "--detach", "--port", "0", *arguments)
        assert started.returncode == 0, started.stderr
        status: dict[str, Any] = json.loads(self("status", "--json").stdout)
        return status

    def client(self, service: str, variables: dict[str, str] | None = None) -> Any:
        """Return a boto3 client with the variables of `trainyard env`."""
        variables = variables or json.loads(self("env", "--json").stdout)["Variables"]
        return boto3.client(
            service,
            endpoint_url=variables["AWS_ENDPOINT_URL"],
            aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
            region_name=variables["AWS_REGION"],
        )


@pytest.fixture
def trainyard(tmp_path: Path) -> Iterator[CommandLine]:
    command_line = CommandLine(tmp_path)
    yield command_line
    runtime = command_line.home.runtime()
    if runtime is not None:
        os.kill(runtime.pid, signal.SIGKILL)


def has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.flow
def test_a_yard_is_started_used_and_stopped(trainyard: CommandLine) -> None:
    started = trainyard("up", "--detach", "--port", "0")
    assert started.returncode == 0, started.stderr
    assert started.stdout == ""
    status = json.loads(trainyard("status", "--json").stdout)
    assert f"The yard is running at {status['Http']} and {status['Https']}" in started.stderr
    assert status["Home"] == str(trainyard.home.root)

    s3 = trainyard.client("s3")
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="key", Body=b"bytes")
    assert s3.get_object(Bucket="bucket", Key="key")["Body"].read() == b"bytes"

    stopped = trainyard("down")
    assert stopped.returncode == 0
    assert stopped.stderr == f"Stopped the yard (process {status['Pid']}).\n"
    assert has_ended(status["Pid"])
    assert not trainyard.home.runtime_file.exists()
    assert trainyard("status").returncode == 4


def test_stored_objects_survive_a_restart(trainyard: CommandLine) -> None:
    trainyard.up()
    trainyard.client("s3").create_bucket(Bucket="bucket")
    trainyard("down")

    trainyard.up()

    assert [bucket["Name"] for bucket in trainyard.client("s3").list_buckets()["Buckets"]] == ["bucket"]


def test_a_shell_that_evaluates_env_reaches_the_yard(trainyard: CommandLine) -> None:
    trainyard.up()
    identify = 'import boto3; print(boto3.client("sts").get_caller_identity()["Account"])'
    command = shlex.join(trainyard.program)

    for options in ("", "--https"):
        result = subprocess.run(
            ["/bin/sh", "-c", f'eval "$({command} env {options})"; {shlex.join([sys.executable, "-c", identify])}'],
            env=trainyard.environment | {"AWS_SESSION_TOKEN": "stale", "AWS_PROFILE": "absent"},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert result.stdout.strip() == trainyard.home.credentials().account, result.stderr


def test_the_home_is_for_its_owner_alone_after_the_first_start(trainyard: CommandLine) -> None:
    trainyard.up()

    modes = {path.name: path.stat().st_mode & 0o777 for path in trainyard.home.root.iterdir()}
    assert trainyard.home.root.stat().st_mode & 0o777 == 0o700
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}


def test_a_yard_in_the_foreground_greets_and_stops_at_an_interrupt(trainyard: CommandLine) -> None:
    command = [*trainyard.program, "up", "--port", "0"]
    with subprocess.Popen(command, env=trainyard.environment, stderr=subprocess.PIPE, text=True) as parent:
        eventually(lambda: trainyard.home.runtime() is not None)
        assert parent.stderr is not None
        eventually(lambda: "Press Ctrl-C to stop it." in (parent.stderr.readline() if parent.stderr else ""))
        runtime = trainyard.home.runtime()
        assert runtime is not None

        parent.send_signal(signal.SIGINT)

        assert parent.wait(timeout=LIMIT_S) == 0
    assert has_ended(runtime.pid)
    assert trainyard.home.runtime() is None


def test_a_yard_in_the_foreground_does_not_outlive_a_killed_parent(trainyard: CommandLine) -> None:
    command = [*trainyard.program, "up", "--port", "0"]
    with subprocess.Popen(command, env=trainyard.environment, stderr=subprocess.DEVNULL) as parent:
        eventually(lambda: trainyard.home.runtime() is not None)
        runtime = trainyard.home.runtime()
        assert runtime is not None
        parent.kill()
    eventually(lambda: has_ended(runtime.pid))


def neighbouring_ports() -> socket.socket:
    """A server on a port; the port below it is free."""
    while True:
        server = socket.create_server(("127.0.0.1", 0))
        try:
            socket.create_server(("127.0.0.1", server.getsockname()[1] - 1)).close()
        except OSError:
            server.close()
            continue
        return server


@pytest.mark.parametrize("offset", [0, 1])
def test_a_port_in_use_is_said_with_what_to_do(trainyard: CommandLine, offset: int) -> None:
    with closing(neighbouring_ports()) as other:
        taken = other.getsockname()[1]

        result = trainyard("up", "--detach", "--port", str(taken - offset))

    assert result.returncode == 1
    assert f"port {taken}" in result.stderr
    assert "--port" in result.stderr
    assert "Traceback" not in result.stderr
    assert trainyard("status").returncode == 4


def test_a_second_yard_on_the_same_home_names_the_first(trainyard: CommandLine) -> None:
    first = trainyard.up()

    by_command = trainyard("up", "--detach", "--port", "0")
    # Also if the server is started directly, without the check of the command line.
    server = [sys.executable, "-m", "trainyard.server.main", "--home", str(trainyard.home.root), "--port", "0"]
    by_server = subprocess.run(server, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    for result in (by_command, by_server):
        assert result.returncode == 1
        assert f"process {first['Pid']} at {first['Http']}" in result.stderr
        assert "Traceback" not in result.stderr
    assert json.loads(trainyard("status", "--json").stdout)["Pid"] == first["Pid"]


def test_a_killed_yard_leaves_a_home_that_starts_again(trainyard: CommandLine) -> None:
    first = trainyard.up()
    trainyard.client("s3").create_bucket(Bucket="bucket")
    os.kill(first["Pid"], signal.SIGKILL)
    eventually(lambda: trainyard("status").returncode == 4)
    assert trainyard.home.runtime_file.exists()

    second = trainyard.up()

    assert second["Pid"] != first["Pid"]
    assert trainyard.client("s3").head_bucket(Bucket="bucket")


def test_a_newer_home_is_refused_by_every_command_and_not_touched(trainyard: CommandLine) -> None:
    trainyard.home.root.mkdir()
    trainyard.home.version_file.write_text(json.dumps({"format": FORMAT + 1, "made_by": "9.1.0"}))
    before = tree(trainyard.home.root)

    for command in (["up", "--detach"], ["up"], ["status"], ["env"], ["down"], ["gc"], ["backup", "x"], ["user", "ls"]):
        result = trainyard(*command)
        assert result.returncode == 1, command
        assert "Trainyard 9.1.0" in result.stderr
        assert "Traceback" not in result.stderr
    assert tree(trainyard.home.root) == before


def test_a_folder_of_something_else_is_refused_and_not_touched(trainyard: CommandLine) -> None:
    trainyard.home.root.mkdir()
    (trainyard.home.root / "thesis.tex").write_text("mine")

    result = trainyard("up", "--detach")

    assert result.returncode == 1
    assert "not a home folder of Trainyard" in result.stderr
    assert tree(trainyard.home.root) == {"thesis.tex": b"mine"}


def without_the_powers_of_root() -> tuple[str, ...]:
    """Return a command prefix with which file modes also apply to root."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("root heeds no file modes, and setpriv, which would make it, is not installed")
    return ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")


@pytest.mark.parametrize("options", [["--detach"], []])
def test_a_read_only_home_is_said_with_what_to_do(trainyard: CommandLine, options: list[str]) -> None:
    trainyard.home.root.mkdir(mode=0o500)

    result = trainyard("up", "--port", "0", *options, before=without_the_powers_of_root())

    trainyard.home.root.chmod(0o700)
    assert result.returncode == 1
    assert "cannot be written" in result.stderr
    assert "--home" in result.stderr
    assert "Traceback" not in result.stderr
    assert tree(trainyard.home.root) == {}


def test_a_full_disk_is_said_with_what_to_do(trainyard: CommandLine) -> None:
    folder = trainyard.user_home / "disk"
    folder.mkdir()
    mount = f'mount -t tmpfs -o size=16k tmpfs {folder} && head -c 16k /dev/zero > {folder}/server.log; exec "$@"'
    namespace = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh")
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a small disk in a user namespace")

    result = trainyard("up", "--port", "0", "--home", str(folder), before=namespace)

    assert result.returncode == 1
    assert f"The disk of {folder} is full; free some space" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_damaged_database_is_said_with_how_to_restore(trainyard: CommandLine) -> None:
    trainyard.up()
    trainyard("down")
    trainyard.home.records_file.write_bytes(b"no database any more " * 1000)

    result = trainyard("up", "--detach", "--port", "0")

    assert result.returncode == 1
    assert str(trainyard.home.records_file) in result.stderr
    assert "restore" in result.stderr
    assert "Traceback" not in result.stderr
    check = json.loads(trainyard("doctor", "--json").stdout)
    assert any(not row["Ok"] and "records.sqlite" in row["Detail"] for row in check["Home"])


@pytest.mark.parametrize("name", ["kept", "kept.tar"])
def test_a_restored_backup_answers_as_the_yard_did(trainyard: CommandLine, name: str) -> None:
    trainyard.up()
    bodies = fill(trainyard)
    before = answers(trainyard)
    target = trainyard.user_home / name

    kept = trainyard("backup", str(target), "--json")
    assert kept.returncode == 0, kept.stderr
    assert json.loads(kept.stdout)["Objects"] == len(bodies)
    trainyard.client("s3").delete_object(Bucket="bucket", Key="key/1")
    trainyard("down")
    other = str(trainyard.user_home / "other")
    restored = trainyard("restore", str(target), "--home", other)
    assert restored.returncode == 0, restored.stderr

    trainyard.environment["TRAINYARD_HOME"] = other
    trainyard.home = Home(Path(other))
    trainyard.up()
    assert answers(trainyard) == before
    s3 = trainyard.client("s3")
    assert {key: s3.get_object(Bucket="bucket", Key=key)["Body"].read() for key in bodies} == bodies
    doctor = trainyard("doctor", "--json", "--thorough")
    assert doctor.returncode == 0, doctor.stdout


def fill(trainyard: CommandLine) -> dict[str, bytes]:
    """Create one of every kind of data that a yard stores."""
    s3, logs, iam = trainyard.client("s3"), trainyard.client("logs"), trainyard.client("iam")
    bodies = {f"key/{number}": os.urandom(100_000 * number) for number in range(4)}
    s3.create_bucket(Bucket="bucket")
    for key, body in bodies.items():
        s3.put_object(Bucket="bucket", Key=key, Body=body, Metadata={"of": key})
    iam.create_role(RoleName="role", AssumeRolePolicyDocument=TRUST)
    logs.create_log_group(logGroupName="group")
    logs.create_log_stream(logGroupName="group", logStreamName="stream")
    now = int(time.time() * 1000)
    logs.put_log_events(
        logGroupName="group", logStreamName="stream", logEvents=[{"timestamp": now, "message": "kept line"}]
    )
    trainyard("user", "add", "anna")
    return bodies


def answers(trainyard: CommandLine) -> list[Any]:
    s3, logs, iam = trainyard.client("s3"), trainyard.client("logs"), trainyard.client("iam")
    calls = [
        s3.list_buckets,
        lambda: s3.list_objects_v2(Bucket="bucket"),
        lambda: s3.head_object(Bucket="bucket", Key="key/1")["Metadata"],
        iam.list_roles,
        iam.list_users,
        lambda: logs.describe_log_streams(logGroupName="group"),
        lambda: logs.get_log_events(logGroupName="group", logStreamName="stream", startFromHead=True)["events"],
        trainyard.client("sts").get_caller_identity,
    ]
    return [{name: part for name, part in _mapping(call()).items() if name != "ResponseMetadata"} for call in calls]


def _mapping(answer: Any) -> dict[str, Any]:
    return answer if isinstance(answer, dict) else {"answer": answer}


@pytest.mark.flow
def test_a_user_that_is_added_works_and_sees_nothing_of_others(trainyard: CommandLine) -> None:
    trainyard.up()
    trainyard.client("s3").create_bucket(Bucket="private")

    added = json.loads(trainyard("user", "add", "anna", "--json").stdout)
    listed = json.loads(trainyard("user", "ls", "--json").stdout)["Users"]

    anna = trainyard.client("s3", added["Variables"])
    assert anna.list_buckets()["Buckets"] == []
    assert trainyard.client("sts", added["Variables"]).get_caller_identity()["Account"] == added["Account"]
    assert {user["UserName"]: user["IsAdministrator"] for user in listed} == {
        trainyard.home.credentials().user: True,
        "anna": False,
    }
    assert trainyard("user", "rm", "anna").returncode == 0
    with pytest.raises(botocore.exceptions.ClientError, match="InvalidAccessKeyId"):
        anna.list_buckets()


def test_an_administrator_that_is_added_sees_all(trainyard: CommandLine) -> None:
    trainyard.up()
    trainyard.client("s3").create_bucket(Bucket="bucket")

    added = json.loads(trainyard("user", "add", "ben", "--admin", "--json").stdout)

    assert added["IsAdministrator"]
    assert trainyard.client("s3", added["Variables"]).head_bucket(Bucket="bucket")


def test_errors_about_users_have_their_exit_codes(trainyard: CommandLine) -> None:
    trainyard.up()
    trainyard("user", "add", "anna")

    again, absent = trainyard("user", "add", "anna"), trainyard("user", "rm", "nobody")
    own = trainyard("user", "rm", trainyard.home.credentials().user)

    assert again.returncode == 1
    assert 'There is already a user named "anna".' in again.stderr
    assert absent.returncode == 4
    assert 'There is no user named "nobody".' in absent.stderr
    assert own.returncode == 1
    assert "cannot be removed" in own.stderr


def test_the_user_that_is_added_gets_exports_for_a_shell(trainyard: CommandLine) -> None:
    trainyard.up()

    result = trainyard("user", "add", "anna")

    lines = result.stdout.splitlines()
    assert all(line.startswith(("export ", "unset ")) for line in lines)
    assert any(line.startswith("export AWS_SECRET_ACCESS_KEY=") for line in lines)
    assert trainyard.home.credentials().secret_access_key not in result.stdout
    assert str(trainyard.home.root) not in result.stdout, "another user cannot read files in this home"


def test_gc_beside_a_running_yard_removes_nothing_that_is_owned(trainyard: CommandLine) -> None:
    trainyard.up()
    bodies = fill(trainyard)

    dry, real = trainyard("gc", "--dry-run", "--json"), trainyard("gc", "--json")

    assert dry.returncode == real.returncode == 0
    assert {row["Count"] for row in json.loads(real.stdout)["Swept"]} == {0}
    s3 = trainyard.client("s3")
    assert {key: s3.get_object(Bucket="bucket", Key=key)["Body"].read() for key in bodies} == bodies


@pytest.mark.parametrize(("answer", "writes"), [("y", True), ("n", False)])
def test_connect_asks_once_on_a_terminal(trainyard: CommandLine, answer: str, writes: bool) -> None:
    trainyard.up()
    terminal, side = pty.openpty()
    command = [*trainyard.program, "connect"]
    with subprocess.Popen(command, env=trainyard.environment, stdin=side, stdout=side, stderr=side) as process:
        os.close(side)
        shown = read_until(terminal, "[y/N]")
        os.write(terminal, f"{answer}\n".encode())
        drain(terminal)
        assert process.wait(timeout=LIMIT_S) == (0 if writes else 1)
    os.close(terminal)

    assert shown.count("[y/N]") == 1
    assert "endpoint_url" in shown
    assert (trainyard.user_home / ".aws" / "config").exists() == writes


def read_until(descriptor: int, text: str) -> str:
    seen = ""
    while text not in seen:
        assert select.select([descriptor], [], [], LIMIT_S)[0], seen
        seen += os.read(descriptor, 65536).decode()
    return seen


def drain(descriptor: int) -> None:
    """Read until the other side is closed, which a terminal reports as an error."""
    try:
        while os.read(descriptor, 65536):
            pass
    except OSError:
        return


def test_with_connect_alone_boto_reaches_the_yard(trainyard: CommandLine) -> None:
    trainyard.up()
    assert trainyard("connect", "-y").returncode == 0
    program = (
        "import boto3\n"
        "from botocore.loaders import create_loader\n"
        "from botocore.regions import EndpointResolver\n"
        # The sagemaker SDK finds STS in this way and ignores all configured endpoints.
        "sts = EndpointResolver(create_loader().load_data('endpoints')).construct_endpoint('sts', 'us-west-2')\n"
        "client = boto3.client('sts', region_name='us-west-2', endpoint_url='https://' + sts['hostname'])\n"
        "print(client.get_caller_identity()['Account'], len(boto3.client('s3').list_buckets()['Buckets']))"
    )

    result = subprocess.run(
        [sys.executable, "-c", program],
        env=trainyard.environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert result.stdout.split() == [trainyard.home.credentials().account, "0"], result.stderr


def test_a_reader_that_leaves_early_gets_no_traceback(trainyard: CommandLine) -> None:
    command = shlex.join(trainyard.program)
    result = subprocess.run(
        ["/bin/sh", "-c", f"{command} doctor --json | true"],
        env=trainyard.environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert result.stderr == ""


def test_completion_knows_the_commands(trainyard: CommandLine) -> None:
    trainyard.environment |= {
        "_TRAINYARD_COMPLETE": "bash_complete",
        "COMP_WORDS": "trainyard st",
        "COMP_CWORD": "1",
    }

    assert trainyard().stdout.split() == ["plain,status", "plain,stop"]
