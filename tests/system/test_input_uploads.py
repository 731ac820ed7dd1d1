"""Local data as the input of jobs: each job trains on exactly what its own run found in the folder."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.system.command_line import CommandLine
from tests.system.fuzz.world import User
from tests.system.upload_gate import UploadGate, upload_gate
from trainyard.testing.yard import RunningYard, running_yard

SHOW = """
import os

root = os.environ["SM_CHANNEL_DATA"]
for folder, folders, files in sorted(os.walk(root)):
    for name in sorted(files):
        path = os.path.join(folder, name)
        print(repr(os.path.relpath(path, root)), open(path).read())
    if not folders and not files:
        print(repr(os.path.relpath(folder, root)), "is empty")
"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("inputs") / "yard", environment={"TRAINYARD_SERVER_SLOTS": "2"}) as yard:
        yield yard


@pytest.fixture
def gate(yard: RunningYard) -> Iterator[UploadGate]:
    with upload_gate(yard.http) as gate:
        yield gate


@pytest.fixture
def trainyard(yard: RunningYard, gate: UploadGate, tmp_path: Path) -> CommandLine:
    line = CommandLine(yard, tmp_path)
    keys = {name: value for name, value in yard.environment().items() if name.startswith("AWS_")}
    line.environment |= keys | {"AWS_ENDPOINT_URL": gate.url}
    line.script(SHOW, "show.py")
    return line


def write(folder: Path, **files: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def uri_of(trainyard: CommandLine, job: str) -> str:
    (channel,) = trainyard.read("describe", job)["InputDataConfig"]
    return str(channel["DataSource"]["S3DataSource"]["S3Uri"])


@pytest.mark.flow
def test_a_file_that_was_removed_is_not_seen_by_the_next_run(trainyard: CommandLine) -> None:
    data = trainyard.folder / "data"
    write(data, kept="1", removed="2")
    assert trainyard("run", "show.py", "-i", "data").stdout == "'kept' 1\n'removed' 2\n"

    (data / "removed").unlink()

    assert trainyard("run", "show.py", "-i", "data").stdout == "'kept' 1\n"


def test_two_runs_at_once_do_not_mix_their_files(trainyard: CommandLine, gate: UploadGate) -> None:
    write(trainyard.folder / "one", a="one", b="one", only_one="one")
    write(trainyard.folder / "two", a="two", b="two", only_two="two")
    gate.close_after(0)
    first, second = (trainyard.start("run", "show.py", "-i", folder) for folder in ("one", "two"))
    gate.wait_for(2)
    gate.open()

    assert first.communicate()[0] == "'a' one\n'b' one\n'only_one' one\n"
    assert second.communicate()[0] == "'a' two\n'b' two\n'only_two' two\n"


def test_a_queued_job_trains_on_what_its_own_run_uploaded_and_gc_leaves_it(
    trainyard: CommandLine, yard: RunningYard
) -> None:
    wait = trainyard.script("import os, time\nwhile True: time.sleep(0.1)\n", "wait.py")
    blockers = [trainyard("run", wait, "--detach", "-t", f"blocks-{number}").stdout.strip() for number in range(2)]
    write(trainyard.folder / "data", a="first", b="first")
    queued = trainyard("run", "show.py", "-i", "data", "--detach").stdout.strip()
    (trainyard.folder / "data" / "b").unlink()
    write(trainyard.folder / "data", a="second")
    later = trainyard("run", "show.py", "-i", "data", "--detach").stdout.strip()
    swept_inputs(CommandLine(yard, trainyard.folder))
    for blocker in blockers:
        assert trainyard("stop", blocker).returncode == 0

    assert trainyard("logs", "-f", queued).stdout == "'a' first\n'b' first\n"
    assert trainyard("logs", "-f", later).stdout == "'a' second\n"


def test_an_interrupted_upload_is_never_trained_on_and_the_next_run_completes_it(
    trainyard: CommandLine, gate: UploadGate
) -> None:
    data = trainyard.folder / "data"
    write(data, **{f"file-{number:02}": f"interrupted {number}" for number in range(20)})
    gate.close_after(8)
    run = trainyard.start("run", "show.py", "-i", "data", "-t", "interrupted")
    gate.wait_for(1)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    stored = gate.closes_after
    gate.open()
    assert trainyard("describe", "interrupted").returncode != 0, "there is no job"
    sent_before = len(gate.files_sent)

    again = trainyard("run", "show.py", "-i", "data", "-t", "interrupted")

    assert again.stdout.splitlines() == [f"'file-{number:02}' interrupted {number}" for number in range(20)]
    assert stored is not None
    assert len(gate.files_sent) - sent_before <= 20 - stored, "what had come is not sent again"


def test_unchanged_files_are_not_sent_again(trainyard: CommandLine, gate: UploadGate) -> None:
    data = trainyard.folder / "data"
    write(data, **{f"file-{number:02}": f"unchanged {number}" for number in range(30)})
    assert trainyard("run", "show.py", "-i", "data").returncode == 0
    assert len(gate.files_sent) == 30

    again = trainyard("run", "show.py", "-i", "data")
    assert len(gate.files_sent) == 30
    assert "All files had been uploaded before" in again.stderr

    write(data, **{"file-07": "changed"})
    (data / "file-08").rename(data / "moved")
    changed = trainyard("run", "show.py", "-i", "data")

    assert [path.rpartition("/")[2] for path in gate.files_sent[30:]] == ["file-07"]
    assert "'file-07' changed\n" in changed.stdout
    assert "'moved' unchanged 8\n" in changed.stdout
    assert "file-08" not in changed.stdout


def test_a_study_uploads_its_data_once_for_all_trials(trainyard: CommandLine, gate: UploadGate) -> None:
    write(trainyard.folder / "data", a="tuned 1", b="tuned 2")
    script = trainyard.script(
        "import os\nprint('loss:', len(os.listdir(os.environ['SM_CHANNEL_DATA'])))\n", "measure.py"
    )

    tuned = trainyard(
        *("tune", script, "-i", "data", "--range", "x=0..9", "--objective", "loss", "--minimize"),
        *("--trials", "4", "--parallel", "2", "--strategy", "random"),
    )

    assert tuned.returncode == 0, tuned.stderr
    assert len(gate.files_sent) == 2
    trials = trainyard.read("ls", "-n", "4")["Jobs"]
    uris = {uri_of(trainyard, trial["TrainingJobName"]) for trial in trials}
    assert len(uris) == 1


@pytest.mark.parametrize("mode", ["File", "FastFile"])
def test_odd_names_empty_folders_and_links_arrive(trainyard: CommandLine, mode: str) -> None:
    data = trainyard.folder / "data"
    write(data, **{"with space + % & ü": "1", "line\nbreak": "2", "control\x01": "3", "?q=#": "4"})
    (data / "empty" / "inner").mkdir(parents=True)
    write(trainyard.folder / "elsewhere", linked="5")
    (data / "link").symlink_to(trainyard.folder / "elsewhere")
    (data / "alias").symlink_to(data / "?q=#")

    run = trainyard("run", "show.py", "-i", "data", mode)

    told = dict.fromkeys(run.stdout.splitlines())
    assert set(told) == {
        "'with space + % & ü' 1",
        "'line\\nbreak' 2",
        "'control\\x01' 3",
        "'?q=#' 4",
        "'alias' 4",
        "'link/linked' 5",
        "'empty/inner' is empty",
    }, run.stderr


def test_a_pipe_gives_the_files_of_a_folder(trainyard: CommandLine) -> None:
    write(trainyard.folder / "data", a="1", b="2")
    (trainyard.folder / "data" / "empty").mkdir()
    script = trainyard.script("import os\nprint(open(os.environ['SM_CHANNEL_DATA'] + '_0').read())\n", "pipe.py")

    assert trainyard("run", script, "-i", "data", "Pipe").stdout == "12\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("loop", "is a link to one of its parent folders"),
        ("dangling", "which does not exist"),
        ("fifo", "neither a file nor"),
    ],
)
def test_paths_that_cannot_be_uploaded_are_refused_before_anything_is_sent(
    trainyard: CommandLine, gate: UploadGate, name: str, said: str
) -> None:
    data = trainyard.folder / "data"
    write(data, a="1")
    makers = {
        "loop": lambda: (data / name).symlink_to(data),
        "dangling": lambda: (data / name).symlink_to("nowhere"),
        "fifo": lambda: os.mkfifo(data / name),
    }
    makers[name]()

    run = trainyard("run", "show.py", "-i", "data")

    assert run.returncode != 0
    assert said in run.stderr
    assert f"data/{name}" in run.stderr
    assert not gate.files_sent


def test_objects_that_somebody_removed_or_replaced_are_sent_again(trainyard: CommandLine, yard: RunningYard) -> None:
    write(trainyard.folder / "data", a="right", b="right")
    assert trainyard("run", "show.py", "-i", "data", "-t", "whole").returncode == 0
    uri = uri_of(trainyard, "whole")
    program = f"""
from trainyard.session import Session

api, (bucket, key) = Session().api, {uri!r}.removeprefix("s3://").split("/", 1)
api.call("s3", "PutObject", Bucket=bucket, Key=key + "a", Body=b"wrong")
api.call("s3", "DeleteObject", Bucket=bucket, Key=key + "b")
api.call("s3", "PutObject", Bucket=bucket, Key=key + "c", Body=b"wrong")
"""
    line = CommandLine(yard, trainyard.folder)
    line.program = [line.program[0], "-c", program]
    assert line().returncode == 0

    assert trainyard("run", "show.py", "-i", "data").stdout == "'a' right\n'b' right\n"


def test_gc_frees_the_data_of_a_job_that_is_removed_and_no_other(trainyard: CommandLine, yard: RunningYard) -> None:
    write(trainyard.folder / "data", a="shared", b="first")
    assert trainyard("run", "show.py", "-i", "data", "-t", "goes").returncode == 0
    write(trainyard.folder / "data", b="second")
    assert trainyard("run", "show.py", "-i", "data", "-t", "stays").returncode == 0
    goes, stays = uri_of(trainyard, "goes"), uri_of(trainyard, "stays")
    line = CommandLine(yard, trainyard.folder)
    assert swept_inputs(line, "--dry-run") == 0, "both have a job"
    assert trainyard("rm", "goes").returncode == 0

    assert swept_inputs(line, "--dry-run") == 1
    assert swept_inputs(line) == 1

    again = trainyard.script("import os\nprint(*sorted(os.listdir(os.environ['SM_CHANNEL_MORE'])))\n", "again.py")
    assert trainyard("run", again, "--iis", "more", stays).stdout == "a b\n"
    assert "There are no objects" in trainyard("run", again, "--iis", "more", goes).stderr
    assert swept_inputs(line) == 0
    write(trainyard.folder / "data", b="first")
    assert trainyard("run", "show.py", "-i", "data").stdout == "'a' shared\n'b' first\n"


def test_gc_leaves_an_upload_alone_that_is_under_way(
    trainyard: CommandLine, gate: UploadGate, yard: RunningYard
) -> None:
    write(trainyard.folder / "data", **{f"file-{number}": f"under way {number}" for number in range(8)})
    gate.close_after(5)
    run = trainyard.start("run", "show.py", "-i", "data")
    gate.wait_for(1)

    swept_inputs(CommandLine(yard, trainyard.folder))
    gate.open()

    told, _ = run.communicate()
    assert told.splitlines() == [f"'file-{number}' under way {number}" for number in range(8)]


def swept_inputs(trainyard: CommandLine, *options: str) -> int:
    """Return how many uploads `gc` removes."""
    told = trainyard("gc", "--json", *options)
    assert told.returncode == 0, told.stderr
    (row,) = [row for row in json.loads(told.stdout)["Swept"] if row["What"] == "inputs that no job needs"]
    return int(row["Count"])


def test_every_s3_call_of_a_run_says_whose_bucket_is_meant(
    trainyard: CommandLine, gate: UploadGate, yard: RunningYard
) -> None:
    write(trainyard.folder / "data", a="owned")
    run = trainyard("run", "show.py", "-i", "data", "-o", "results", "-b", "a-bucket-of-its-own")

    assert run.returncode == 0, run.stderr
    assert gate.ownerless == ["PUT /a-bucket-of-its-own"], "but for the one that makes it"


def test_a_user_cannot_take_the_name_of_the_administrator_s_bucket_and_get_what_is_uploaded(
    trainyard: CommandLine, yard: RunningYard
) -> None:
    anna = json.loads(CommandLine(yard, trainyard.folder)("user", "add", "anna", "--json").stdout)
    known = yard.credentials
    theirs = User(yard.http, anna["Account"], "anna", anna["AccessKeyId"], anna["SecretAccessKey"], known.region)
    s3 = theirs.client("s3")
    for region in (known.region, "eu-west-1"):
        with pytest.raises(ClientError, match="BucketAlreadyExists"):
            s3.create_bucket(Bucket=f"sagemaker-{region}-{known.account}")
    s3.create_bucket(Bucket="shared-name")

    write(trainyard.folder / "data", a="the administrator's")
    run = trainyard("run", "show.py", "-i", "data", "-b", "shared-name")

    assert run.stdout == "'a' the administrator's\n", run.stderr
    assert s3.list_objects_v2(Bucket="shared-name")["KeyCount"] == 0
