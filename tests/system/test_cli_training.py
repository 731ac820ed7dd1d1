"""Training from the command line, on a real yard."""

import json
import re
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.system.command_line import LIMIT_S, CommandLine
from trainyard.testing.yard import RunningYard


@pytest.fixture
def trainyard(yard: RunningYard, tmp_path: Path) -> CommandLine:
    return CommandLine(yard, tmp_path)


def until_line(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdout is not None
    for read in process.stdout:
        if read == f"{line}\n":
            return
    raise AssertionError(f"{line!r} was never shown")


@pytest.mark.flow
def test_a_run_shows_the_plan_and_then_what_the_script_writes(trainyard: CommandLine) -> None:
    script = trainyard.script("import sys; print('got', *sys.argv[1:])")

    run = trainyard("run", script, "-p", "proj_a", "-t", "first", "--", "--epochs", "3", "--lr", "1e-3")

    assert run.returncode == 0, run.stderr
    assert run.stdout == "got --epochs 3 --lr 1e-3\n"
    plan, _, life = run.stderr.partition('Training job "proj-a-first-')
    assert "script      train.py" in plan
    assert "1 x ml.m5.large" in plan
    assert "price" not in plan
    assert "Completed" in life


def test_a_model_is_named_where_there_is_one(trainyard: CommandLine) -> None:
    saving = trainyard.script(
        "import os; open(os.path.join(os.environ['SM_MODEL_DIR'], 'm'), 'w').write('x')", "saves.py"
    )
    assert "model: s3://" in trainyard("run", saving).stderr
    (model,) = trainyard.read("describe", "@last")["Artifacts"]
    assert (model["Kind"], model["S3Uri"].endswith("/output/model.tar.gz")) == ("model", True)


def test_a_program_that_saves_no_model_gets_a_note(trainyard: CommandLine) -> None:
    run = trainyard("run", trainyard.script("print('nothing kept')"))
    assert "model: none was saved" in run.stderr
    assert "model: s3://" not in run.stderr


def test_a_failing_script_fails_the_command(trainyard: CommandLine) -> None:
    script = trainyard.script("import sys; print('going', flush=True); sys.exit(7)")

    run = trainyard("run", script)
    assert (run.returncode, run.stdout) == (1, "going\n")
    assert "user error on algo-1, exit code 7" in run.stderr
    assert trainyard("run", script, "--propagate").returncode == 7


def test_a_failed_job_is_described_with_its_card_and_where_its_time_went(trainyard: CommandLine) -> None:
    script = trainyard.script("def main():\n    print('going')\n    raise ValueError('no luck')\n\nmain()\n")
    run = trainyard("run", script, "-t", "unlucky", "--it", "ml.p3.2xlarge")

    assert "ValueError: no luck\n  at train.py:3 in main: raise ValueError('no luck')\n  try: " in run.stderr
    text = trainyard("describe", "unlucky").stdout
    failure = text.partition("\nfailure\n")[2].partition("\n\n")[0].splitlines()
    assert failure[:3] == [
        "  user error on algo-1, exit code 1",
        "  ValueError: no luck",
        "  at train.py:3 in main: raise ValueError('no luck')",
    ]
    assert "    going" in failure
    chart = text.partition("\nwaterfall\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in chart][:2] == ["queue", "place"]
    assert re.search(r"^  train +algo-1 +\d+\.\d+ s +\d+\.\d+ s +[█#]", "\n".join(chart), re.MULTILINE)
    assert "share           " in text
    # A machine without a GPU has less than an ml.p3.2xlarge.
    assert "\nnotes\n" in text
    told = trainyard.read("describe", "unlucky")
    assert (told["FailureCard"]["Class"], told["FailureCard"]["Exception"]["Line"]) == ("user error", 3)
    assert told["TrainingJobStatus"] == told["SecondaryStatus"] == "Failed"


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

    run = trainyard("run", script, "-i", "data", "FullyReplicated", "sub", "--dependencies", "library", "-o", "results")

    assert run.returncode == 0, run.stderr
    assert run.stdout == "imported content\n"
    results = trainyard.folder / "results"
    assert (results / "logs" / "algo-1.log").read_text() == "imported content\n"
    with tarfile.open(results / "model" / "model.tar.gz") as archive:
        assert [name for name in archive.getnames() if name.endswith("m.txt")]
    with tarfile.open(results / "output" / "output.tar.gz") as archive:
        assert [name for name in archive.getnames() if name.endswith("o.txt")]


def test_a_script_gets_the_modules_beside_it_that_it_imports(trainyard: CommandLine) -> None:
    (trainyard.folder / "nets").mkdir()
    (trainyard.folder / "nets" / "layers.py").write_text("depth = 3")
    trainyard.script("from nets import layers", "model.py")
    trainyard.script("", "unrelated.py")
    script = trainyard.script("import model, os; print(model.layers.depth, os.path.exists('unrelated.py'))")

    run = trainyard("run", script)

    assert run.returncode == 0, run.stderr
    assert "with        model.py, nets/ (1 file)" in run.stderr
    assert run.stdout == "3 False\n"
    assert trainyard("run", script, "--script-only").returncode == 1


def test_the_flags_of_ssm_reach_the_job(trainyard: CommandLine) -> None:
    (trainyard.folder / "data").mkdir()
    (trainyard.folder / "data" / "a.txt").write_text("content")
    script = trainyard.script("import os; print(*sorted(os.listdir(os.environ['SM_CHANNEL_MORE'])))")
    # The job has no such channel.
    assert trainyard("run", script, "-t", "first", "-i", "data").returncode == 1
    brought = trainyard.read("describe", "first")["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"]

    run = trainyard(
        *("run", "-p", "proj", "-t", "flags", "-e", script, "--iis", "more", brought, "ShardedByS3Key"),
        *("--instance_type", "ml.c5.xlarge", "--ic", "1", "-v", "7", "--no_spot", "--md", "x", "x=(.)"),
        *("--keep-alive", "60", "--prices"),
    )

    assert (run.returncode, run.stdout) == (0, "a.txt\n")
    assert re.search(r"price +\$0\.\d+ per hour, at most \$\d+\.\d+ within the time limit", run.stderr)
    told = trainyard.read("describe", "proj-flags")
    resources, (channel,) = told["ResourceConfig"], told["InputDataConfig"]
    assert (resources["InstanceType"], resources["InstanceCount"], resources["VolumeSizeInGB"]) == (
        "ml.c5.xlarge",
        1,
        7,
    )
    assert resources["KeepAlivePeriodInSeconds"] == 60
    assert channel["DataSource"]["S3DataSource"]["S3DataDistributionType"] == "ShardedByS3Key"
    assert told["AlgorithmSpecification"]["MetricDefinitions"] == [{"Name": "x", "Regex": "x=(.)"}]
    assert told["EnableManagedSpotTraining"] is False


def test_a_run_provides_inputs_by_their_modes_and_resumes_from_checkpoints_and_a_model(trainyard: CommandLine) -> None:
    (trainyard.folder / "data").mkdir()
    (trainyard.folder / "data" / "a.txt").write_text("content")
    script = trainyard.script(
        "import os, pathlib\n"
        "kept = pathlib.Path('/state/count')\n"
        "count = int(kept.read_text()) if kept.exists() else 0\n"
        "kept.write_text(str(count + 1))\n"
        "fifo = open(os.environ['SM_CHANNEL_DATA'] + '_0').read()\n"
        "model = sorted(os.listdir(os.environ.get('SM_CHANNEL_MODEL', '/state')))\n"
        "print(count, fifo, *model)\n"
        "pathlib.Path(os.environ['SM_MODEL_DIR'], 'm.txt').write_text('model')\n"
    )
    # Without a CheckpointConfig, the folder to which it saves does not exist.
    first = trainyard("run", script, "-t", "unkept", "-i", "data", "Pipe")
    assert first.returncode == 1
    brought = trainyard.read("describe", "unkept")["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"]
    kept = f"s3://{brought.split('/')[2]}/kept"
    words = (
        *("run", script, "--iis", "data", brought, "--input-mode", "Pipe", "--checkpoint-s3-uri", kept),
        *("--checkpoint-local-path", "/state", "--use-spot-instances", "--max-run-mins", "5"),
    )

    run = trainyard(*words, "-t", "begun")
    assert (run.returncode, run.stdout) == (0, "0 content count\n"), run.stderr
    assert f"checkpoints {kept}" in run.stderr
    model = trainyard.read("describe", "begun")["ModelArtifacts"]["S3ModelArtifacts"]
    again = trainyard(*words, "-t", "again", "--model-uri", model, "-o", "results", "--download-state")

    assert (again.returncode, again.stdout) == (0, "1 content model.tar.gz\n"), again.stderr
    results = trainyard.folder / "results"
    assert (results / "state" / "count").read_text() == "2"
    assert not (results / "model").exists(), "only what is asked for"
    told = trainyard.read("describe", "again")
    assert told["StoppingCondition"] == {"MaxRuntimeInSeconds": 300, "MaxWaitTimeInSeconds": 300}
    assert told["EnableManagedSpotTraining"] is True


def test_an_interrupt_detaches_and_one_can_come_back(trainyard: CommandLine) -> None:
    # The program ends when the test says so, however long that takes.
    script = trainyard.script(
        "import signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "print('on', flush=True)\n"
        "signal.sigwait([signal.SIGTERM])\n"
        "print('off')\n"
    )
    run = trainyard.start("run", script, "-t", "detached")
    until_line(run, "on")
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=LIMIT_S)

    assert run.returncode == 130
    assert "trainyard logs -f detached-" in said
    assert trainyard.read("describe", "detached")["TrainingJobStatus"] == "InProgress"
    back = trainyard.start("logs", "-f", "detached")
    until_line(back, "on")
    assert trainyard("stop", "detached").returncode == 0
    rest, _ = back.communicate(timeout=LIMIT_S)
    assert (back.returncode, rest) == (0, "off\n")


def test_control_c_in_a_terminal_detaches_and_says_how_to_come_back(trainyard: CommandLine) -> None:
    script = trainyard.script("import time; print('on', flush=True); time.sleep(600)")
    with trainyard.terminal("run", script, "-t", "typed") as terminal:
        terminal.read_until("on\r\n")
        terminal.type("\x03")
        said = terminal.read_to_end()

    assert terminal.exit_code == 130
    assert "continues: `trainyard logs -f typed-" in said
    assert trainyard.read("describe", "typed")["TrainingJobStatus"] == "InProgress"
    assert trainyard("stop", "typed", "--wait").returncode == 0


def test_a_job_that_is_stopped_ends_its_run_with_a_code_of_its_own(trainyard: CommandLine) -> None:
    script = trainyard.script("import time; print('on', flush=True); time.sleep(600)")
    run = trainyard.start("run", script, "-t", "stopped")
    until_line(run, "on")

    refused = trainyard("rm", "stopped")
    assert refused.returncode == 1
    assert "only ended jobs can be removed" in refused.stderr
    stopped = trainyard("stop", "stopped", "--wait")
    assert stopped.returncode == 0, stopped.stderr
    assert "is Stopped" in stopped.stderr
    run.communicate(timeout=LIMIT_S)
    assert run.returncode == 3
    assert "is already Stopped" in trainyard("stop", "stopped").stderr


def test_a_detached_run_prints_only_the_name(trainyard: CommandLine) -> None:
    run = trainyard("run", trainyard.script("print('later')"), "--detach")

    assert run.returncode == 0, run.stderr
    name = run.stdout.strip()
    assert trainyard("logs", "-f", name).stdout == "later\n"
    described = trainyard.read("describe", "@last")
    assert (described["TrainingJobName"], described["TrainingJobStatus"]) == (name, "Completed")


def test_a_detached_run_says_that_it_downloads_nothing(trainyard: CommandLine) -> None:
    run = trainyard("run", trainyard.script("print('later')"), "--detach", "-o", "results")
    assert run.returncode == 0
    assert "Nothing is downloaded to results, because --detach does not wait for the results." in run.stderr


@pytest.mark.flow
def test_jobs_are_listed_described_and_removed(trainyard: CommandLine) -> None:
    script = trainyard.script("print('done')")
    for task in ("list-one", "list-two"):
        assert trainyard("run", script, "-t", task).returncode == 0

    listed = trainyard.read("ls", "--name", "list-", "--status", "completed")["Jobs"]
    assert [job["TrainingJobName"].startswith(("list-two", "list-one")) for job in listed] == [True, True]
    assert listed[0]["TrainingJobName"].startswith("list-two")
    table = trainyard("ls", "-n", "1").stdout
    assert table.count("\n") == 2
    assert table.startswith("job  ")
    described = trainyard("describe", "list-one").stdout
    assert "status          Completed" in described
    assert "Downloading" in described
    ambiguous = trainyard("describe", "list-")
    assert (ambiguous.returncode, "Several training jobs have names" in ambiguous.stderr) == (2, True)

    assert trainyard("rm", "list-*", "--status", "failed", "--yes").returncode == 0
    unconfirmed = trainyard("rm", "list-*")
    assert (unconfirmed.returncode, "Remove 2 training jobs" in unconfirmed.stderr) == (2, True)
    removed = trainyard("rm", "list-*", "--older-than", "0s", "--yes", "--json", "TrainingJobStatus")
    assert json.loads(removed.stdout)["Jobs"] == [{"TrainingJobStatus": "Completed"}] * 2
    assert trainyard("describe", "list-one").returncode == 4
    assert trainyard.read("ls", "--name", "list-")["Jobs"] == []


def test_a_job_has_exactly_the_name_that_is_given(trainyard: CommandLine) -> None:
    script = trainyard.script("print('named')")
    assert trainyard("run", script, "--name", "exact-name").returncode == 0
    assert trainyard.read("describe", "exact-name")["TrainingJobName"] == "exact-name"
    again = trainyard("run", script, "--name", "exact-name")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.startswith('error: There is already a training job named "exact-name".')
    assert 'Did you mean "exact-name"?' in trainyard("logs", "exat-name").stderr


def test_a_shell_completes_the_names_of_jobs(trainyard: CommandLine) -> None:
    assert trainyard("run", trainyard.script("print('done')"), "--name", "complete-me").returncode == 0
    trainyard.environment |= {
        "_TRAINYARD_COMPLETE": "bash_complete",
        "COMP_WORDS": "trainyard logs -f comp",
        "COMP_CWORD": "3",
    }
    assert trainyard().stdout.split() == ["plain,complete-me"]


def test_a_yard_elsewhere_is_named_by_its_address(trainyard: CommandLine, yard: RunningYard) -> None:
    assert trainyard("run", trainyard.script("print('there')"), "--name", "elsewhere").returncode == 0
    anna = json.loads(trainyard("user", "add", "remote", "--json").stdout)["Variables"]
    keys = {name: anna[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")}
    trainyard.environment["TRAINYARD_HOME"] = str(trainyard.folder / "none")
    refused = trainyard("ls", "--endpoint", "http://127.0.0.1:9")
    assert (refused.returncode, "There are no keys for http://127.0.0.1:9" in refused.stderr) == (5, True)
    trainyard.environment |= keys
    assert trainyard("logs", "elsewhere", "--endpoint", yard.http).returncode == 4
    trainyard.environment["TRAINYARD_ENDPOINT"] = yard.http
    assert trainyard("status").stdout.startswith(f"endpoint  {yard.http}\n")
    assert trainyard.read("ls")["Jobs"] == []
    assert trainyard("status", "--endpoint", "http://127.0.0.1:9").returncode == 4


def test_a_run_prints_its_result_as_json(trainyard: CommandLine) -> None:
    script = trainyard.script("print('to stderr')")
    fields = "TrainingJobStatus,FailureReason"
    run = trainyard("run", script, "--json", fields)
    assert json.loads(run.stdout) == {"TrainingJobStatus": "Completed", "FailureReason": None}
    assert "to stderr\n" in run.stderr
    detached = json.loads(trainyard("run", script, "--detach", "--json").stdout)
    assert trainyard("logs", "-f", detached["TrainingJobName"]).stdout == "to stderr\n"


def test_a_run_on_a_terminal_shows_its_statuses_and_leaves_the_log_as_it_is(trainyard: CommandLine) -> None:
    script = trainyard.script("print('[bold]not markup[/bold]', flush=True)")
    with trainyard.terminal("run", script) as terminal:
        terminal.read_until("Pending")
        terminal.read_until("[bold]not markup[/bold]\r\n")
        terminal.read_until("Completed")
        terminal.read_to_end()
    assert terminal.exit_code == 0


def test_metrics_are_shown_and_can_be_read_again(trainyard: CommandLine) -> None:
    script = trainyard.script("for loss in (3, 1, 2): print(f'loss: {loss} other: {loss * 10}')")
    assert trainyard("run", script, "--md", "loss", "loss: ([0-9.]+)", "-t", "measured").returncode == 0

    (metric,) = trainyard.read("metrics", "measured")["Metrics"]
    assert (metric["MetricName"], metric["SampleCount"], metric["Value"], metric["Minimum"], metric["Maximum"]) == (
        "loss",
        3,
        2,
        1,
        3,
    )
    (anew,) = trainyard.read("metrics", "measured", "--define", "other=other: ([0-9.]+)")["Metrics"]
    assert (anew["MetricName"], anew["SampleCount"], anew["Value"], anew["Maximum"]) == ("other", 3, 20, 30)
    read = trainyard.read("metrics", "measured", "--define", "other=other: ([0-9.]+)", "--define", "word=(loss|none)")
    assert [metric["MetricName"] for metric in read["Metrics"]] == ["other"]
    assert read["Notes"] == [
        'Metric word captured something that is not a finite number 3 times, such as "loss".',
    ]
    broken = trainyard("metrics", "measured", "--define", "other=([")
    assert (broken.returncode, "is not a regular expression" in broken.stderr) == (2, True)


def test_a_metric_is_read_from_a_job_that_still_writes(trainyard: CommandLine) -> None:
    script = trainyard.script("import time; print('10%\\r20%', flush=True); print('30%', flush=True); time.sleep(600)")
    run = trainyard.start("run", script, "-t", "drawing")
    until_line(run, "30%")

    (metric,) = trainyard.read("metrics", "drawing", "--define", "progress=([0-9]+)%")["Metrics"]

    assert (metric["SampleCount"], metric["Value"], metric["Minimum"]) == (3, 30, 10)
    assert trainyard("stop", "drawing", "--wait").returncode == 0
    run.communicate(timeout=LIMIT_S)


def test_logs_of_several_instances_are_distinguishable(trainyard: CommandLine) -> None:
    script = trainyard.script("import os; print('first'); print('from', os.environ['SM_CURRENT_HOST'])")
    run = trainyard("run", script, "--ic", "2", "-t", "several")
    assert run.returncode == 0, run.stderr
    assert {"[algo-1] from algo-1", "[algo-2] from algo-2"} <= set(run.stdout.splitlines())

    assert trainyard("logs", "several", "--instance", "algo-2", "--tail", "1").stdout == "from algo-2\n"
    lines = [json.loads(line) for line in trainyard("logs", "several", "--json").stdout.splitlines()]
    assert [(line["Instance"], line["Message"]) for line in lines] == [
        ("algo-1", "first"),
        ("algo-1", "from algo-1"),
        ("algo-2", "first"),
        ("algo-2", "from algo-2"),
    ]


def test_following_may_begin_with_the_last_lines(trainyard: CommandLine) -> None:
    script = trainyard.script(
        "import time\nfor number in range(5): print(number, flush=True)\ntime.sleep(1)\nprint('end')\n"
    )
    run = trainyard.start("run", script, "-t", "tailed")
    until_line(run, "4")

    assert trainyard("logs", "-f", "tailed", "--tail", "2").stdout == "3\n4\nend\n"
    assert trainyard("logs", "tailed", "--tail", "2").stdout == "4\nend\n"
    run.communicate(timeout=LIMIT_S)


def test_a_quota_is_set_felt_and_taken_away(trainyard: CommandLine) -> None:
    script = trainyard.script("print('allowed')")
    assert trainyard("quota", "set", "*", "ml.c5.xlarge", "1").returncode == 0
    (quota,) = trainyard.read("quota", "ls")["Quotas"]
    assert (quota["UserName"], quota["InstanceType"], quota["Kind"], quota["Limit"]) == (
        "*",
        "ml.c5.xlarge",
        "on-demand",
        1,
    )

    refused = trainyard("run", script, "--it", "ml.c5.xlarge", "--ic", "2")
    assert refused.returncode == 6
    assert "trainyard quota set" in refused.stderr
    assert trainyard("run", script, "--it", "ml.c5.xlarge").stdout == "allowed\n"
    table = trainyard("quota", "ls").stdout.splitlines()
    assert [line.split() for line in table] == [
        ["user", "type", "kind", "limit", "in", "use"],
        ["*", "ml.c5.xlarge", "on-demand", "1", "0"],
    ]
    assert trainyard("quota", "rm", "*", "ml.c5.xlarge").returncode == 0
    assert trainyard.read("quota", "ls")["Quotas"] == []
    assert trainyard("quota", "rm", "*", "ml.c5.xlarge").returncode == 4
    assert trainyard("quota", "set", "nobody", "*", "1").returncode == 4


def test_the_yard_can_be_looked_at_once_and_watched(trainyard: CommandLine) -> None:
    script = trainyard.script("import time; print('on', flush=True); time.sleep(600)")
    run = trainyard.start("run", script, "-t", "watched")
    until_line(run, "on")

    look = trainyard("top", "--once").stdout
    (row,) = [line for line in look.splitlines() if line.startswith("watched-")]
    assert row.split()[1:3] == ["admin", "Training"]
    assert "1 x ml.m5.large" in row
    assert [line.split()[0] for line in look.splitlines()[1:5]] == ["slots", "cpu", "memory", "queue"]
    # Without a terminal, it prints the state once.
    assert trainyard("top").stdout.splitlines()[0].startswith("trainyard ")
    assert trainyard.read("top")["SlotsInUse"] == trainyard.read("status")["Yard"]["SlotsInUse"] == 1
    with trainyard.terminal("top", "--interval", "0.2") as terminal:
        terminal.read_until("watched-")
        terminal.read_until("\x1b[H")
        terminal.type("q")
        left = terminal.read_to_end()
    assert terminal.exit_code == 0
    assert left.endswith("\x1b[?25h\x1b[?1049l")

    assert trainyard("stop", "watched", "--wait").returncode == 0
    run.communicate(timeout=LIMIT_S)


def test_a_user_reaches_only_their_own_jobs(trainyard: CommandLine) -> None:
    assert trainyard("run", trainyard.script("print('mine')"), "-t", "private").returncode == 0
    anna = json.loads(trainyard("user", "add", "anna", "--json").stdout)
    trainyard.environment |= anna["Variables"]

    assert trainyard.read("ls")["Jobs"] == []
    assert trainyard("logs", "private").returncode == 4
    assert trainyard("run", trainyard.script("print('hers')")).stdout == "hers\n"
    trainyard.environment["AWS_SECRET_ACCESS_KEY"] = "wrong"
    assert trainyard("ls").returncode == 5


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("run",), 2, "The script is missing"),
        (("run", "missing.py"), 2, 'no script "missing.py"'),
        (("run", "train.py", "-i", "nowhere"), 2, "neither a local file or folder nor an S3 location"),
        (("run", "train.py", "--", "--flag"), 2, '"--flag" is not a hyperparameter'),
        (("run", "train.py", "--image-uri", "nothing/known:1"), 1, "images map"),
        (("run", "train.py", "--it", "ml.unknown.large"), 2, "ml.unknown.large"),
        (("run", "train.py", "--max-wait-mins", "5"), 2, "--max-wait-mins is only for spot jobs"),
        (
            ("run", "train.py", "--use-spot-instances", "--max-run-mins", "9", "--max-wait-mins", "5"),
            2,
            "--max-wait-mins is 5 and --max-run-mins 9; waiting includes the run",
        ),
        (("run", "train.py", "--input-mode", "fastfile"), 2, "'fastfile' is not one of 'File', 'FastFile', 'Pipe'"),
        (("run", "train.py", "--iis", "train", "s3://nowhere/at/all"), 4, 'bucket "nowhere" of the input train'),
        (("run", "train.py", "--checkpoint-s3-uri", "s3://nowhere/kept"), 4, '"nowhere" of --checkpoint-s3-uri'),
        (("run", "train.py", "--checkpoint-s3-uri", "kept"), 2, "write a location on S3"),
        (
            ("run", "train.py", "--checkpoint-local-path", "/kept"),
            1,
            "without a checkpoint_s3_uri nothing in it is saved",
        ),
        (("run", "train.py", "--model-uri", "model.tar.gz"), 2, '--model-uri is "model.tar.gz"; write'),
        (("run", "train.py", "--download-state"), 2, "--download-state needs -o"),
        (("run", "train.py", "--download-state", "-o", "x"), 2, "set their location with --checkpoint-s3-uri"),
        (("logs", "no-such-job"), 4, "There is no training job or processing job named"),
    ],
)
def test_failures_have_messages_and_exit_codes(
    trainyard: CommandLine, arguments: tuple[str, ...], code: int, said: str
) -> None:
    trainyard.script("print('never')")
    result = trainyard(*arguments)
    assert said in result.stderr
    assert result.returncode == code


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ("torchdistributed", 2, 'distribution has the unknown key "torchdistributed"; the keys are mpi'),
        ("[1]", 2, "must be a name or a JSON object"),
        ("{x", 2, "neither a name, such as torch_distributed, nor JSON"),
    ],
)
def test_a_distribution_that_nobody_knows_is_refused_before_anything_is_sent(
    trainyard: CommandLine, given: str, code: int, said: str
) -> None:
    run = trainyard("run", trainyard.script("print('never')"), "--distribution", given)
    assert (run.returncode, run.stdout) == (code, "")
    assert said in run.stderr
