"""Training from the command line, on a real yard."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainyard.testing.yard import RunningYard

Output = subprocess.CompletedProcess[str]
LIMIT_S = 60


class CommandLine:
    """`trainyard` of the yard's own user, in a folder with scripts."""

    def __init__(self, yard: RunningYard, folder: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TRAINYARD_"))}
        self.environment = kept | {"TRAINYARD_HOME": str(yard.home.root), "HOME": str(folder)}
        self.folder = folder
        self.program = [sys.executable, "-m", "trainyard.cli"]

    def __call__(self, *arguments: str) -> Output:
        return subprocess.run(
            [*self.program, *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self.program, *arguments],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def read(self, *arguments: str) -> Any:
        answer = self(*arguments, "--json")
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    def script(self, text: str, name: str = "train.py") -> str:
        (self.folder / name).write_text(text)
        return name


@pytest.fixture
def trainyard(yard: RunningYard, tmp_path: Path) -> CommandLine:
    return CommandLine(yard, tmp_path)


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.02)


def until_line(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdout is not None
    for read in process.stdout:
        if read == f"{line}\n":
            return
    raise AssertionError(f"{line!r} was never shown")


def test_a_run_shows_the_plan_and_then_what_the_script_writes(trainyard: CommandLine) -> None:
    script = trainyard.script("import sys; print('got', *sys.argv[1:])")

    run = trainyard("run", script, "-p", "proj_a", "-t", "first", "--", "--epochs", "3", "--lr", "1e-3")

    assert run.returncode == 0, run.stderr
    assert run.stdout == "got --epochs 3 --lr 1e-3\n"
    plan, _, life = run.stderr.partition('Training job "proj-a-first-')
    assert "script      train.py" in plan
    assert "1 x ml.m5.large" in plan
    assert "Completed" in life
    assert "model: s3://" in life


def test_a_failing_script_fails_the_command(trainyard: CommandLine) -> None:
    script = trainyard.script("import sys; print('going', flush=True); sys.exit(7)")

    run = trainyard("run", script)
    assert (run.returncode, run.stdout) == (1, "going\n")
    assert "exit code: 7" in run.stderr
    assert trainyard("run", script, "--propagate").returncode == 7


def test_data_goes_in_and_results_come_out(trainyard: CommandLine) -> None:
    (trainyard.folder / "data" / "sub").mkdir(parents=True)
    (trainyard.folder / "data" / "sub" / "a.txt").write_text("content")
    (trainyard.folder / "library").mkdir()
    (trainyard.folder / "library" / "words.py").write_text("word = 'imported'")
    script = trainyard.script(
        "import os, sys\n"
        "from library import words\n"
        "print(words.word, open(os.path.join(os.environ['SM_CHANNEL_DATA'], 'a.txt')).read())\n"
        "open(os.path.join(os.environ['SM_MODEL_DIR'], 'm.txt'), 'w').write('model')\n"
        "open(os.path.join(os.environ['SM_OUTPUT_DATA_DIR'], 'o.txt'), 'w').write('output')\n"
    )

    run = trainyard("run", script, "-i", "data", "FullyReplicated", "sub", "-d", "library", "-o", "results")

    assert run.returncode == 0, run.stderr
    assert run.stdout == "imported content\n"
    results = trainyard.folder / "results"
    assert (results / "logs" / "algo-1.log").read_text() == "imported content\n"
    with tarfile.open(results / "model" / "model.tar.gz") as archive:
        assert [name for name in archive.getnames() if name.endswith("m.txt")]
    with tarfile.open(results / "output" / "output.tar.gz") as archive:
        assert [name for name in archive.getnames() if name.endswith("o.txt")]


def test_an_interrupt_detaches_and_one_can_come_back(trainyard: CommandLine) -> None:
    script = trainyard.script("import time; print('on', flush=True); time.sleep(2); print('off')")
    run = trainyard.start("run", script, "-t", "detached")
    until_line(run, "on")
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=LIMIT_S)

    assert run.returncode == 130
    assert "trainyard logs -f detached-" in said
    assert trainyard.read("describe", "detached")["TrainingJobStatus"] == "InProgress"
    back = trainyard("logs", "-f", "detached")
    assert (back.returncode, back.stdout) == (0, "on\noff\n")


def test_a_job_that_is_stopped_ends_its_run_with_a_code_of_its_own(trainyard: CommandLine) -> None:
    script = trainyard.script("import time; print('on', flush=True); time.sleep(600)")
    run = trainyard.start("run", script, "-t", "stopped")
    until_line(run, "on")

    refused = trainyard("rm", "stopped")
    assert refused.returncode == 1
    assert "only jobs that have ended can be removed" in refused.stderr
    stopped = trainyard("stop", "stopped", "--wait")
    assert stopped.returncode == 0, stopped.stderr
    assert "is Stopped" in stopped.stderr
    run.communicate(timeout=LIMIT_S)
    assert run.returncode == 3
    assert "is Stopped already" in trainyard("stop", "stopped").stderr


def test_a_detached_run_prints_only_the_name(trainyard: CommandLine) -> None:
    run = trainyard("run", trainyard.script("print('later')"), "--detach")

    assert run.returncode == 0, run.stderr
    name = run.stdout.strip()
    assert trainyard("logs", "-f", name).stdout == "later\n"
    described = trainyard.read("describe", "@last")
    assert (described["TrainingJobName"], described["TrainingJobStatus"]) == (name, "Completed")


def test_jobs_are_listed_described_and_removed(trainyard: CommandLine) -> None:
    script = trainyard.script("print('done')")
    for task in ("list-one", "list-two"):
        assert trainyard("run", script, "-t", task).returncode == 0

    listed = trainyard.read("ls", "--name", "list-", "--status", "completed")["jobs"]
    assert [job["name"].startswith(("list-two", "list-one")) for job in listed] == [True, True]
    assert listed[0]["name"].startswith("list-two")
    table = trainyard("ls", "-n", "1").stdout
    assert table.count("\n") == 1
    described = trainyard("describe", "list-one").stdout
    assert "status          Completed" in described
    assert "Downloading" in described
    ambiguous = trainyard("describe", "list-")
    assert (ambiguous.returncode, "beginning of several names" in ambiguous.stderr) == (2, True)

    assert trainyard("rm", "list-one", "list-two").returncode == 0
    assert trainyard("describe", "list-one").returncode == 4
    assert trainyard.read("ls", "--name", "list-")["jobs"] == []


def test_metrics_are_shown_and_can_be_read_anew(trainyard: CommandLine) -> None:
    script = trainyard.script("for loss in (3, 1, 2): print(f'loss: {loss} other: {loss * 10}')")
    assert trainyard("run", script, "--md", "loss", "loss: ([0-9.]+)", "-t", "measured").returncode == 0

    (metric,) = trainyard.read("metrics", "measured")["metrics"]
    assert (metric["name"], metric["count"], metric["last"], metric["min"], metric["max"]) == ("loss", 3, 2, 1, 3)
    (anew,) = trainyard.read("metrics", "measured", "--define", "other=other: ([0-9.]+)")["metrics"]
    assert (anew["name"], anew["count"], anew["last"], anew["max"]) == ("other", 3, 20, 30)


def test_logs_of_several_instances_can_be_told_apart(trainyard: CommandLine) -> None:
    script = trainyard.script("import os; print('first'); print('from', os.environ['SM_CURRENT_HOST'])")
    run = trainyard("run", script, "--ic", "2", "-t", "several")
    assert run.returncode == 0, run.stderr
    assert {"[algo-1] from algo-1", "[algo-2] from algo-2"} <= set(run.stdout.splitlines())

    assert trainyard("logs", "several", "--instance", "algo-2", "--tail", "1").stdout == "from algo-2\n"
    lines = [json.loads(line) for line in trainyard("logs", "several", "--json").stdout.splitlines()]
    assert [(line["instance"], line["message"]) for line in lines] == [
        ("algo-1", "first"),
        ("algo-1", "from algo-1"),
        ("algo-2", "first"),
        ("algo-2", "from algo-2"),
    ]


def test_a_user_reaches_only_their_own_jobs(trainyard: CommandLine) -> None:
    assert trainyard("run", trainyard.script("print('mine')"), "-t", "private").returncode == 0
    anna = json.loads(trainyard("user", "add", "anna", "--json").stdout)
    trainyard.environment |= anna["variables"]

    assert trainyard.read("ls")["jobs"] == []
    assert trainyard("logs", "private").returncode == 4
    assert trainyard("run", trainyard.script("print('hers')")).stdout == "hers\n"
    trainyard.environment["AWS_SECRET_ACCESS_KEY"] = "wrong"
    assert trainyard("ls").returncode == 5


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("run",), 2, "Which script?"),
        (("run", "missing.py"), 1, 'There is no file "missing.py"'),
        (("run", "train.py", "-i", "nowhere"), 2, "neither a file or folder here nor an S3 location"),
        (("run", "train.py", "--", "--flag"), 2, '"--flag" is no hyperparameter'),
        (("run", "train.py", "--image_uri", "nothing/known:1"), 1, "images map"),
        (("run", "train.py", "--it", "ml.unknown.large"), 1, "ml.unknown.large"),
        (("logs", "no-such-job"), 4, "There is no training job named"),
    ],
)
def test_what_cannot_be_done_is_said_with_a_code(
    trainyard: CommandLine, arguments: tuple[str, ...], code: int, said: str
) -> None:
    trainyard.script("print('never')")
    result = trainyard(*arguments)
    assert said in result.stderr
    assert result.returncode == code
