"""The SDK with a real yard."""

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import boto3
import pytest

import trainyard
from trainyard._sdk.storage.file_digests import PART_BYTES
from trainyard._sdk.training.cloudwatch import LogLine
from trainyard._sdk.training.stream import JobEnded, StatusChanged, follow_job
from trainyard.estimator import Estimator
from trainyard.exceptions import UnexpectedStatusException
from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.home import Home
from trainyard.inputs import FileSystemInput, TrainingInput
from trainyard.profiler import TrainingJob
from trainyard.pytorch import PyTorch
from trainyard.session import Session, get_execution_role
from trainyard.tensorflow import TensorFlow
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, start_yard

LIMIT_S = 60.0
# The installed version, so that the log has no note about another one.
IMAGE = "pytorch-training:latest"

TRAIN = """
import json, os, sys
print("arguments", *sys.argv[1:])
print("epochs", json.loads(os.environ["SM_HPS"]).get("epochs"))
for channel in json.loads(os.environ["SM_CHANNELS"]):
    folder = os.environ["SM_CHANNEL_" + channel.upper()]
    print("channel", channel, *sorted(os.listdir(folder)))
with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights.txt"), "w") as file:
    file.write("0.5")
"""


@pytest.fixture(autouse=True)
def exported(yard: RunningYard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a shell with the variables of `trainyard env`."""
    for name, value in yard.environment().items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    def script(text: str) -> str:
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(text))
        return str(path)

    return script


def members(session: Session, uri: str) -> dict[str, bytes]:
    """Return the files in an archive on S3."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    body: bytes = session.api.call("s3", "GetObject", Bucket=bucket, Key=key)["Body"]
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        files = {entry.name.removeprefix("./"): archive.extractfile(entry) for entry in archive}
        return {name: file.read() for name, file in files.items() if file is not None}


@pytest.mark.flow
def test_a_listing_of_the_documents_trains(
    write: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "batch.csv").write_text("1,2")
    session = trainyard.Session()
    location = session.upload_data(str(tmp_path / "data"), key_prefix="cifar-training-data")

    estimator = PyTorch(
        entry_point=write(TRAIN),
        role=trainyard.get_execution_role(),
        py_version="py3",
        framework_version="1.9.0",
        instance_count=1,
        instance_type="ml.g4dn.xlarge",
        hyperparameters={"epochs": 3, "name": "x y", "feature-extract": False},
    )
    estimator.fit(location)

    shown = capsys.readouterr().out
    assert "arguments --epochs 3 --feature-extract False --name x y\n" in shown
    assert "epochs 3\n" in shown
    assert "channel training batch.csv\n" in shown
    assert "Training" in shown
    assert members(session, estimator.model_data) == {"weights.txt": b"0.5"}
    job = estimator.latest_training_job
    assert job is not None
    assert job.describe()["TrainingJobName"] == job.name == job.job_name
    assert job.name.startswith("pytorch-training-")


def test_channels_come_by_their_names_to_every_instance(
    write: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session()
    bucket = session.default_bucket()
    for key in ("channels/train/a", "channels/train/b", "channels/val/c"):
        session.upload_string_as_file_body("x", bucket, key)

    estimator = TensorFlow(entry_point=write(TRAIN), instance_count=2, instance_type="ml.m5.large", model_dir=False)
    estimator.fit(
        {
            "train": TrainingInput(f"s3://{bucket}/channels/train/", distribution="ShardedByS3Key"),
            "val": f"s3://{bucket}/channels/val/",
        }
    )

    lines = capsys.readouterr().out.splitlines()
    assert {"[algo-1] channel train a", "[algo-2] channel train b"} <= set(lines)
    assert {"[algo-1] channel val c", "[algo-2] channel val c"} <= set(lines)


def test_a_failed_job_raises_with_its_name_and_its_reason(write: Callable[[str], str]) -> None:
    estimator = PyTorch(write("raise ValueError('no luck')"), instance_type="ml.m5.large", base_job_name="unlucky")

    with pytest.raises(UnexpectedStatusException, match=r'"unlucky-[0-9-]+" is Failed') as raised:
        estimator.fit()

    assert "ValueError: no luck" in str(raised.value)
    assert "user error on algo-1, exit code 1" in str(raised.value)
    assert "train.py:1" in str(raised.value)
    assert "try: " in str(raised.value)
    assert raised.value.actual_status == "Failed"
    with pytest.raises(TrainyardError, match="is Failed and has no model"):
        _ = estimator.model_data


def test_a_line_is_there_before_the_next_one_is_written(write: Callable[[str], str]) -> None:
    script = "import time\nfor number in range(4):\n    print(number, flush=True)\n    time.sleep(1)\n"
    estimator = PyTorch(write(script), instance_type="ml.m5.large", image_uri=IMAGE)
    estimator.fit(wait=False)
    assert estimator.latest_training_job is not None

    lines = list(_timed_lines(estimator.latest_training_job.name))

    assert [line.text for _, line in lines] == ["0", "1", "2", "3"]
    assert all(came_ms - line.at_ms < 1000 for came_ms, line in lines)


def _timed_lines(job_name: str) -> Iterator[tuple[float, LogLine]]:
    for event in follow_job(Session().api, job_name):
        if isinstance(event, LogLine):
            yield time.time() * 1000, event


def test_a_yard_that_is_killed_and_comes_back_loses_no_line_and_tells_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[str], str]
) -> None:
    script = write("import time\nfor number in range(200):\n    print(number, flush=True)\n    time.sleep(0.02)\n")
    port = _free_pair()
    yard = start_yard(tmp_path / "yard", port=port)
    for name, value in yard.environment().items():
        monkeypatch.setenv(name, value)
    try:
        estimator = PyTorch(script, instance_type="ml.m5.large", image_uri=IMAGE)
        estimator.fit(wait=False, job_name="steady")
        events = []
        for event in follow_job(estimator.session.api, "steady"):
            events.append(event)
            if isinstance(event, LogLine) and event.text in ("30", "90"):
                yard.kill()
                yard = start_yard(tmp_path / "yard", port=port)
    finally:
        yard.stop()

    assert [event.text for event in events if isinstance(event, LogLine)] == [str(number) for number in range(200)]
    statuses = [event.status for event in events if isinstance(event, StatusChanged)]
    assert statuses == ["Pending", "Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert events[-1] == JobEnded("Completed")


def _free_pair() -> int:
    """Return a free port for http. The next one, for https, is free too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            with contextlib.suppress(OSError):
                second.bind(("127.0.0.1", port + 1))
                return port


def test_a_job_is_known_to_the_last_detail(write: Callable[[str], str]) -> None:
    estimator = PyTorch(write(TRAIN), instance_type="ml.m5.large")
    estimator.fit(wait=False)
    job = estimator.latest_training_job
    assert job is not None
    job.wait_for_end()

    details = job.details()

    assert [artifact["S3Uri"] for artifact in details["Artifacts"]] == [estimator.model_data]
    assert [phase["Phase"] for phase in details["Waterfall"]][:2] == ["queue", "place"]
    assert {"sandbox", "train"} <= {phase["Phase"] for phase in details["Waterfall"]}
    assert [share["Instance"] for share in details["Shares"]] == ["algo-1"]
    assert details["Cost"] > 0


def test_a_stopped_job_is_shown_as_such(write: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    estimator = PyTorch(write("import time; print('on', flush=True); time.sleep(600)"), instance_type="ml.m5.large")
    estimator.fit(wait=False)
    job = estimator.latest_training_job
    assert job is not None
    eventually(lambda: bool(job.describe()["SecondaryStatus"] == "Training"))
    threading.Timer(0.2, job.stop).start()

    job.wait()

    shown = capsys.readouterr().out
    assert f'Training job "{job.name}" is Stopped' in shown
    assert "model: none was saved" in shown


def test_a_running_job_is_profiled_otherwise_and_kept_warm_longer(write: Callable[[str], str]) -> None:
    estimator = PyTorch(write("import time; time.sleep(600)"), instance_type="ml.m5.large")
    estimator.keep_alive_period_in_seconds = 60
    estimator.fit(wait=False)
    job = estimator.latest_training_job
    assert job is not None
    eventually(lambda: bool(job.describe()["SecondaryStatus"] == "Training"))

    # A job is profiled unless it says otherwise.
    estimator.disable_profiling()
    assert job.describe()["ProfilingStatus"] == "Disabled"
    estimator.enable_default_profiling()
    (report,) = job.profiler_rule_job_summary()
    assert report["RuleConfigurationName"].startswith("ProfilerReport-")
    estimator.update_profiler(system_monitor_interval_millis=100)
    described = job.describe()
    assert described["ProfilingStatus"] == "Enabled"
    assert described["ProfilerConfig"]["ProfilingIntervalInMilliseconds"] == 100
    eventually(lambda: _shortest_interval_us(job.name) < 500_000)
    estimator.session.update_training_job(job.name, resource_config={"KeepAlivePeriodInSeconds": 120})
    assert job.describe()["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 120
    job.stop()
    assert job.wait_for_end()["TrainingJobStatus"] == "Stopped"


def _shortest_interval_us(job_name: str) -> int:
    """Return the shortest time between two samples that a notebook reads of a running job."""
    reader = TrainingJob(job_name).get_systems_metrics_reader()
    events = reader.get_events(0, reader.get_timestamp_of_latest_available_file(), event_type="memory")
    times_us = sorted({round(event.timestamp * 1e6) for event in events})
    return min((after - before for before, after in pairwise(times_us)), default=10**9)


def test_attaching_restores_a_job(write: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    made = PyTorch(
        write(TRAIN), instance_type="ml.m5.large", hyperparameters={"epochs": 5}, tags={"team": "vision"}, max_run=120
    )
    made.fit(wait=False, logs=False)
    assert made.latest_training_job is not None

    found = PyTorch.attach(made.latest_training_job.name)
    found.logs()

    assert "epochs 5\n" in capsys.readouterr().out
    assert found.model_data == made.model_data
    assert (found.max_run, found.tags) == (120, [{"Key": "team", "Value": "vision"}])
    found.fit()
    assert "epochs 5\n" in capsys.readouterr().out


def test_an_estimator_without_a_script_says_what_cannot_run_yet() -> None:
    session = Session()
    image = trainyard.image_uris.retrieve("image-classification", session.boto_region_name, "1")
    estimator = Estimator(image, get_execution_role(session), 2, "ml.p2.xlarge", sagemaker_session=session)

    with pytest.raises(TrainyardError, match="image-classification"):
        estimator.fit("s3://nowhere/data")


def test_a_file_system_that_stands_for_nothing_is_refused_with_the_file_to_name_it_in(
    write: Callable[[str], str],
) -> None:
    estimator = PyTorch(write(TRAIN), instance_type="ml.m5.large")
    with pytest.raises(TrainyardError, match=r"fs-0123456789abcdef0.*file_systems\.toml"):
        estimator.fit(FileSystemInput("fs-0123456789abcdef0", "FSxLustre", "/mnt/data", "ro"))


def test_a_file_system_is_a_folder_of_this_machine(
    yard: RunningYard, write: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sets/mnist").mkdir(parents=True)
    (tmp_path / "sets/mnist/one.csv").write_text("1")
    table = yard.home.file_systems_file
    table.write_text(f'[file_systems]\nfs-00000000000 = "{tmp_path / "sets"}"\n')
    try:
        estimator = PyTorch(write(TRAIN), instance_type="ml.m5.large")
        estimator.fit({"shared": FileSystemInput("fs-00000000000", "EFS", "/mnist")})
    finally:
        table.unlink()
    assert "channel shared one.csv\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["model", "start"])
def test_training_continues_from_the_model_of_an_earlier_job(
    write: Callable[[str], str], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    first = PyTorch(write(TRAIN), instance_type="ml.m5.large")
    first.fit()
    second = PyTorch(write(TRAIN), instance_type="ml.m5.large", model_uri=first.model_data, model_channel_name=name)
    second.fit()
    assert f"channel {name} model.tar.gz\n" in capsys.readouterr().out


def test_metrics_are_read_from_what_a_script_writes(write: Callable[[str], str]) -> None:
    estimator = PyTorch(
        write("for loss in (0.5, 0.25): print(f'Train Loss = {loss};')"),
        instance_type="ml.m5.large",
        metric_definitions=[{"Name": "train_loss", "Regex": "Train Loss = (.*?);"}],
    )
    estimator.fit()
    assert estimator.latest_training_job is not None
    (metric,) = estimator.latest_training_job.describe()["FinalMetricDataList"]
    assert (metric["MetricName"], metric["Value"]) == ("train_loss", 0.25)


def test_large_files_come_back_as_they_went(tmp_path: Path) -> None:
    (tmp_path / "up").mkdir()
    content = os.urandom(PART_BYTES + 12_345)
    (tmp_path / "up" / "large.bin").write_bytes(content)
    (tmp_path / "up" / "empty.bin").touch()
    session = Session()

    location = session.upload_data(str(tmp_path / "up"), key_prefix="round/trip")
    bucket = session.default_bucket()
    files = session.download_data(str(tmp_path / "down"), bucket, "round/trip")

    assert location == f"s3://{bucket}/round/trip"
    assert sorted(Path(file).name for file in files) == ["empty.bin", "large.bin"]
    assert (tmp_path / "down" / "large.bin").read_bytes() == content
    assert (tmp_path / "down" / "empty.bin").read_bytes() == b""


def test_a_boto3_session_leads_to_the_yard_it_calls_as_the_user_it_has() -> None:
    administrator = Session()
    administrator.api.call("iam", "CreateUser", UserName="ben")
    key = administrator.api.call("iam", "CreateAccessKey", UserName="ben")["AccessKey"]

    session = Session(boto3.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name="eu-west-1"))

    assert session.boto_region_name == "eu-west-1"
    assert session.account_id() != administrator.account_id()
    assert session.default_bucket() == f"sagemaker-eu-west-1-{session.account_id()}"


def test_without_a_yard_one_is_started_and_said_how_to_stop(tmp_path: Path) -> None:
    home = Home(tmp_path / "yard")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment = kept | {"TRAINYARD_HOME": str(home.root), "TRAINYARD_SERVER_PORT": "0"}
    program = "import trainyard; print(trainyard.Session().account_id())"
    try:
        run = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        )
        assert run.stdout.strip() == home.credentials().account
        assert run.stderr.count("\n") == 1
        assert "`trainyard down` stops it" in run.stderr
    finally:
        subprocess.run([sys.executable, "-m", "trainyard.cli", "down"], env=environment, timeout=LIMIT_S, check=True)


def test_an_interrupt_leaves_the_job_running_and_says_how_to_come_back(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time; print('on', flush=True); time.sleep(3)")
    program = (
        "from trainyard.pytorch import PyTorch; PyTorch('train.py', instance_type='ml.m5.large').fit(job_name='left')"
    )
    waiting = subprocess.Popen(
        [sys.executable, "-u", "-c", program],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert waiting.stdout is not None
    shown = ""
    for line in waiting.stdout:
        shown += line
        if line == "on\n":
            waiting.send_signal(signal.SIGINT)
    waiting.wait(LIMIT_S)
    waiting.stdout.close()

    assert "`trainyard logs -f left` follows its log" in shown
    assert Session().wait_for_job("left")["TrainingJobStatus"] == "Completed"
