"""A yard of an ordinary user, from its first start to its stop, through the command line."""

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.yards import USER, Place, place_for
from trainyard.testing.eventually import eventually

LIMIT_S = 90


class CommandLine:
    """`trainyard` as the user types it, with an empty home folder."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.folder = place.home_of_user

    def __call__(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self.place.python, "-m", "trainyard.cli", *arguments],
            env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            **self.place.identity(),
        )

    def done(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        answer = self(*arguments)
        assert answer.returncode == 0, (arguments, answer.stdout, answer.stderr)
        return answer

    def read(self, *arguments: str) -> Any:
        return json.loads(self.done(*arguments, "--json").stdout)

    def script(self, text: str) -> str:
        path = self.folder / "train.py"
        path.write_text(text)
        self.place.give(path)
        return path.name


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with place_for(USER) as made:
        yield made


@pytest.fixture(scope="module")
def trainyard(place: Place) -> Iterator[CommandLine]:
    command = CommandLine(place)
    command.done("up", "--detach", "--port", "0")
    yield command
    command.done("down")
    assert command("status").returncode != 0
    eventually(lambda: running_servers(place) == [])


def running_servers(place: Place) -> list[str]:
    """Return the server processes of the user."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_theirs = entry.name.isdigit() and entry.stat().st_uid == place.uid
            line = (entry / "cmdline").read_text() if is_theirs else ""
        except OSError:
            continue
        if "trainyard.server.main" in line and str(place.home_of_user) in line:
            found.append(line)
    return found


def test_everything_in_the_home_belongs_to_the_user_and_is_closed_to_others(trainyard: CommandLine) -> None:
    home = trainyard.folder / ".trainyard"
    assert home.stat().st_mode & 0o777 == 0o700
    assert {path.lstat().st_uid for path in home.rglob("*")} == {trainyard.place.uid}


@pytest.mark.flow
def test_a_script_trains_and_its_model_comes_back(trainyard: CommandLine) -> None:
    script = trainyard.script(
        "import os, sys\nprint('as', os.getuid(), os.getcwd(), sys.argv[1:])\n"
        "open(os.environ['SM_MODEL_DIR'] + '/weights', 'w').write('mine')\n"
    )
    run = trainyard.done("run", script, "-o", "results", "--", "--epochs", "2")
    assert run.stdout == f"as {trainyard.place.uid} /opt/ml/code ['--epochs', '2']\n"
    (model,) = (trainyard.folder / "results").rglob("model.tar.gz")
    with tarfile.open(model) as archive:
        assert archive.getnames() == ["weights"]
    assert model.stat().st_uid == trainyard.place.uid
    assert f"as {trainyard.place.uid} /opt/ml/code" in trainyard.done("logs", "@last").stdout


def test_limits_that_are_not_enforced_here_are_reported(trainyard: CommandLine) -> None:
    trainyard.done("run", trainyard.script("print('done')"), "--it", "ml.t3.medium")
    notes = " ".join(trainyard.read("describe", "@last")["Notes"])
    assert "The kernel does not limit memory to 4096 MiB" in notes
    assert "The limit of 2 CPUs is not enforced" in notes
    assert "The kernel does not limit memory to 4096 MiB" in " ".join(
        trainyard.done("describe", "@last").stdout.split()
    )


def test_a_running_job_is_listed_followed_and_stopped(trainyard: CommandLine) -> None:
    script = trainyard.script("import time\nprint('going', flush=True)\ntime.sleep(600)")
    name = trainyard.done("run", script, "--detach").stdout.strip()
    eventually(lambda: "going" in trainyard.done("logs", name).stdout)
    listed = {job["TrainingJobName"]: job["TrainingJobStatus"] for job in trainyard.read("ls")["Jobs"]}
    assert listed[name] == "InProgress"
    trainyard.done("stop", name)
    eventually(lambda: trainyard.read("describe", name)["TrainingJobStatus"] == "Stopped")
    trainyard.done("rm", name)
    assert trainyard("describe", name).returncode != 0


def test_a_hog_is_ended_by_the_watchdog_and_reported(trainyard: CommandLine) -> None:
    catalog = trainyard.folder / ".trainyard" / "catalog.toml"
    catalog.write_text('["ml.t3.medium"]\nmemory_gib = 0.2\n')
    trainyard.place.give(catalog)
    trainyard.done("down")
    trainyard.done("up", "--detach", "--port", "0")
    script = trainyard.script("taken = []\nwhile True: taken.append(bytearray(b'x') * (8 << 20))")
    run = trainyard("run", script, "--it", "ml.t3.medium")
    assert run.returncode == 1
    assert "out of memory on algo-1" in run.stderr
    assert "used more memory than its instance has" in run.stderr


def test_the_machine_is_described_as_it_is_for_this_user(trainyard: CommandLine) -> None:
    told = {row["Name"]: row["Ok"] for row in trainyard.read("doctor")["Machine"]}
    if os.geteuid() == 0:  # or this user may have been given groups of its own
        assert not told["cgroups"]
    assert all(row["Ok"] for row in trainyard.read("doctor")["Home"])
