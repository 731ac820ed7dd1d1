"""A laptop and a server: a user of a yard logs in from another machine, and works there."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.system.command_line import CommandLine, Output
from trainyard.testing.yard import RunningYard, running_yard


@dataclass(frozen=True, slots=True)
class NewUser:
    url: str
    access_key: str
    secret: str
    fingerprint: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    """A yard that tells other machines an address; only this one reaches it."""
    environment = {"TRAINYARD_SERVER_ADVERTISE": "http://10.9.8.7:4780"}
    with running_yard(tmp_path_factory.mktemp("login") / "yard", environment=environment) as running:
        yield running


@pytest.fixture(scope="module")
def anna(server: RunningYard, tmp_path_factory: pytest.TempPathFactory) -> NewUser:
    told = CommandLine(server, tmp_path_factory.mktemp("server")).read("user", "add", "anna")
    assert told["LoginUrl"].startswith("https://10.9.8.7:")
    return NewUser(server.https, told["AccessKeyId"], told["SecretAccessKey"], told["Fingerprint"])


class Laptop(CommandLine):
    """The command line of a user without a yard."""

    def __init__(self, yard: RunningYard, folder: Path) -> None:
        super().__init__(yard, folder)
        del self.environment["TRAINYARD_HOME"]
        self.environment = {name: self.environment[name] for name in self.environment if not name.startswith("XDG_")}

    def log_in(self, user: NewUser, *arguments: str, **changes: str) -> Output:
        values = {"url": user.url, "key": user.access_key, "secret": user.secret, "print": user.fingerprint} | changes
        given = ("--access-key", values["key"], "--secret-stdin", "--fingerprint", values["print"])
        return subprocess.run(
            [*self.program, "login", values["url"], *given, *arguments],
            env=self.environment,
            cwd=self.folder,
            input=values["secret"] + "\n",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def python(self, program: str, **variables: str) -> Any:
        run = subprocess.run(
            [sys.executable, "-c", program],
            env=self.environment | variables,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)


@pytest.fixture
def laptop(server: RunningYard, tmp_path: Path) -> Laptop:
    return Laptop(server, tmp_path)


@pytest.mark.flow
def test_after_one_login_commands_the_sdk_and_aws_clients_use_the_server(
    server: RunningYard, anna: NewUser, laptop: Laptop
) -> None:
    with laptop.terminal("login", anna.url) as terminal:
        terminal.read_until(anna.fingerprint)
        terminal.read_until("[y/N]")
        terminal.type("y\n")
        terminal.read_until("Access key: ")
        terminal.type(f"{anna.access_key}\n")
        terminal.read_until("Secret access key: ")
        terminal.type(f"{anna.secret}\n")
        rest = terminal.read_to_end()
    assert (terminal.exit_code, anna.secret in rest) == (0, False)
    assert 'as "anna"' in rest

    assert laptop("run", laptop.script("print('hello from anna')")).returncode == 0
    assert laptop("logs", "@last").stdout == "hello from anna\n"
    name = laptop.read("ls")["Jobs"][0]["TrainingJobName"]
    # The SDK, and boto3 with the exports.
    session = "import json; from trainyard.session import Session; s = Session(); print(json.dumps(s.account_id()))"
    assert len(laptop.python(session)) == 12
    variables = laptop.read("env")["Variables"]
    jobs = (
        "import boto3, json; print(json.dumps([job['TrainingJobName'] for job in "
        "boto3.client('sagemaker').list_training_jobs()['TrainingJobSummaries']]))"
    )
    assert laptop.python(jobs, **variables) == [name]
    # Nobody else can read the keys, and a logout removes them.
    assert laptop("logout").returncode == 0
    files = [path for path in laptop.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if anna.secret in path.read_text("latin-1")]


def test_what_is_wrong_is_said_in_a_sentence(server: RunningYard, anna: NewUser, laptop: Laptop) -> None:
    assert "is not the one that you gave" in laptop.log_in(anna, print="AA:BB").stderr
    assert "does not know the access key" in laptop.log_in(anna, key="AKIAUNKNOWN12345678").stderr
    assert "The secret does not belong to the access key" in laptop.log_in(anna, secret="wrong").stderr
    assert "Nothing listens at https://127.0.0.1:1." in laptop.log_in(anna, url="https://127.0.0.1:1").stderr
    assert 'There is no host "yard.invalid"' in laptop.log_in(anna, url="yard.invalid").stderr
    assert "does not speak TLS" in laptop.log_in(anna, url=server.http.replace("http:", "https:")).stderr
    assert "needs the https address" in laptop.log_in(anna, url=server.http).stderr
    assert laptop.read("yards", "ls") == {"Profiles": []}


def test_a_certificate_for_other_host_names_is_refused(anna: NewUser, laptop: Laptop) -> None:
    # Another spelling of the address, which is not in the certificate.
    elsewhere = anna.url.replace("127.0.0.1", "127.1")
    assert "is for other host names than 127.1" in laptop.log_in(anna, url=elsewhere).stderr


def test_several_yards_have_a_profile_each(anna: NewUser, laptop: Laptop) -> None:
    assert laptop.log_in(anna, "--profile", "lab").returncode == 0
    assert laptop.log_in(anna, "--profile", "home").returncode == 0
    assert [each["Current"] for each in laptop.read("yards", "ls")["Profiles"]] == [True, False]
    assert laptop("ls", "--profile", "lab").returncode == 0
    assert "No yard is running" in laptop("ls", "--profile", "local").stderr
    assert laptop("yards", "use", "lab").returncode == 0
    laptop.environment["TRAINYARD_PROFILE"] = "local"
    assert "No yard is running" in laptop("ls").stderr
    laptop.environment["TRAINYARD_PROFILE"] = "nope"
    assert 'no profile named "nope"' in laptop("ls").stderr


def test_a_client_on_another_system_uses_a_yard(anna: NewUser, laptop: Laptop) -> None:
    """Without the modules, functions and packages that only Linux and yards have."""
    assert laptop.log_in(anna).returncode == 0
    laptop.program = [sys.executable, "-m", "tests.other_system", "trainyard"]
    laptop.environment["PYTHONPATH"] = str(Path.cwd())
    assert laptop("run", laptop.script("print('hello from afar')")).returncode == 0
    assert laptop("logs", "@last").stdout == "hello from afar\n"
    assert laptop.read("ls")["Jobs"]
    assert "runs on Linux only" in laptop("up").stderr
