from datetime import UTC, datetime, timedelta
from typing import Any

from trainyard.cli.jobs.describe import job_lines

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
GIB = 1024**3


def description(**more: Any) -> dict[str, Any]:
    return {
        "TrainingJobName": "mnist-7",
        "TrainingJobStatus": "Completed",
        "SecondaryStatus": "Completed",
        "CreationTime": NOON,
        "ResourceConfig": {"InstanceCount": 2, "InstanceType": "ml.m5.large"},
        "AlgorithmSpecification": {"TrainingImage": "pytorch-training:2.8.0"},
        "HyperParameters": {"sagemaker_program": '"train.py"', "epochs": "3"},
        "InputDataConfig": [{"ChannelName": "data", "DataSource": {"S3DataSource": {"S3Uri": "s3://b/data"}}}],
        "OutputDataConfig": {"S3OutputPath": "s3://b/out"},
        "SecondaryStatusTransitions": [
            {"Status": "Training", "StartTime": NOON, "EndTime": NOON + timedelta(seconds=2), "StatusMessage": "is on"}
        ],
    } | more


def details(**more: Any) -> dict[str, Any]:
    return {
        "Notes": [],
        "Shares": [{"Instance": f"algo-{number}", "Cpus": 1.0, "MemoryBytes": GIB} for number in (1, 2)],
        "Waterfall": [],
        "Attempts": [],
        "Artifacts": [],
        "Engine": "ray",
        "PricePerHour": 0.23,
        "Cost": 0.0023,
    } | more


def shown(described: dict[str, Any], told: dict[str, Any]) -> list[str]:
    return "\n".join(job_lines(described, told, now=NOON, shows_cost=True)).splitlines()


def section(lines: list[str], title: str) -> list[str]:
    start = lines.index(title) + 1
    return [line.strip() for line in lines[start : [*lines, ""].index("", start)]]


def test_a_job_is_shown_with_its_share_its_price_and_its_artifacts() -> None:
    model = {"Kind": "model", "S3Uri": "s3://b/out/model.tar.gz", "SizeInBytes": 2048}
    lines = shown(description(FinalMetricDataList=[{"MetricName": "loss", "Value": 0.5}]), details(Artifacts=[model]))

    told = ("cost", "instances", "engine", "share", "script", "model", "metric")
    assert [line for line in lines if line.startswith(told)] == [
        "cost            $0.0023 at $0.2300 per hour",
        "instances       2 x ml.m5.large",
        "engine          ray",
        "share           1 core, 1.0 GiB, each of 2",
        "script          train.py",
        "model           s3://b/out/model.tar.gz (2.0 KiB)",
        "metric loss     0.5",
    ]
    assert "hyperparameters epochs=3" in lines
    assert section(lines, "statuses")[0].endswith("2.0 s  Training     is on")


def test_the_duration_of_a_short_status_is_not_rounded() -> None:
    starting = {"Status": "Starting", "StartTime": NOON, "EndTime": NOON + timedelta(milliseconds=116)}
    lines = shown(description(SecondaryStatusTransitions=[starting]), details())
    assert section(lines, "statuses")[0].endswith("0.12 s  Starting")


def test_groups_of_instances_are_shown_one_by_one() -> None:
    groups = [
        {"InstanceGroupName": "feeders", "InstanceType": "ml.c5.xlarge", "InstanceCount": 1},
        {"InstanceGroupName": "trainers", "InstanceType": "ml.m5.large", "InstanceCount": 2},
    ]
    lines = shown(description(ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 1}), details())
    at = lines.index("instances       1 x ml.c5.xlarge, feeders")
    assert lines[at + 1] == "                2 x ml.m5.large, trainers"


def test_nothing_is_shown_of_what_there_is_nothing_of() -> None:
    lines = shown(description(), details())
    assert not {"failure", "notes", "attempts", "waterfall"} & set(lines)


def test_a_failed_job_shows_its_card_and_the_end_of_its_log() -> None:
    card = {
        "Class": "user error",
        "Instance": "algo-2",
        "ExitCode": 1,
        "Exception": {"Type": "ValueError", "Message": "no luck", "File": "train.py", "Line": 3},
        "LastLines": ["going", "Traceback"],
        "Advice": ["Correct the program."],
    }
    failed = description(TrainingJobStatus="Failed", SecondaryStatus="Failed", FailureReason="AlgorithmError: …")
    lines = shown(failed, details(FailureCard=card, FailureReason="AlgorithmError: … and the rest"))

    assert section(lines, "failure") == [
        "user error on algo-2, exit code 1",
        "ValueError: no luck",
        "at train.py:3",
        "try: Correct the program.",
        "last lines of algo-2:",
        "going",
        "Traceback",
    ]


def test_a_failure_without_a_card_shows_the_whole_reason() -> None:
    failed = description(TrainingJobStatus="Failed", SecondaryStatus="Failed", FailureReason="cut")
    lines = shown(failed, details(FailureReason="the whole\nreason"))
    assert "reason          the whole" in lines
    assert lines[lines.index("reason          the whole") + 1] == "                reason"


def test_attempts_are_shown_when_there_was_more_than_one() -> None:
    one = {"Number": 1, "StartTime": NOON, "EndTime": NOON + timedelta(seconds=3)}
    fates = [
        {"Name": "algo-1", "Outcome": "lost", "OutOfMemory": False},
        {"Name": "algo-2", "Outcome": "failed", "OutOfMemory": True, "ExitSignal": 9},
        {"Name": "algo-3", "Outcome": "failed", "OutOfMemory": False, "ExitCode": 1},
    ]
    first, second = one | {"Instances": fates}, {"Number": 2, "StartTime": NOON, "Instances": [{"Name": "algo-1"}]}

    assert "attempts" not in shown(description(), details(Attempts=[first]))
    told = section(shown(description(), details(Attempts=[first, second])), "attempts")
    assert told[0].endswith("3.0 s  algo-1 lost; algo-2 failed, out of memory; algo-3 failed, exit code 1")
    assert told[1].endswith("algo-1 running")


def test_a_job_that_waits_tells_its_place_in_the_queue_and_notes_are_shown() -> None:
    waiting = description(TrainingJobStatus="InProgress", SecondaryStatus="Pending")
    lines = shown(waiting, details(QueuePosition=3, Notes=["The volume size is \x1b[2Jnot enforced."]))
    assert "status          InProgress (Pending), number 3 in the queue" in lines
    assert section(lines, "notes") == ["The volume size is not enforced."]


def test_an_interruption_is_shown_with_its_reason_and_the_time_to_resume() -> None:
    first = {
        "Number": 1,
        "StartTime": NOON,
        "EndTime": NOON + timedelta(seconds=5),
        "InterruptionReason": "anna interrupted it.",
        "ResumedAfterInSeconds": 62.04,
        "Instances": [{"Name": "algo-1", "Outcome": "stopped", "OutOfMemory": False}],
    }
    told = section(shown(description(), details(Attempts=[first])), "attempts")
    assert told[1] == "interrupted: anna interrupted it. Resumed after 1:02."
    del first["ResumedAfterInSeconds"]
    told = section(shown(description(), details(Attempts=[first])), "attempts")
    assert told[1] == "interrupted: anna interrupted it."


def test_inputs_and_checkpoints_are_shown_with_where_they_are_and_how_they_come() -> None:
    place = {"FileSystemId": "fs-1", "FileSystemType": "EFS", "DirectoryPath": "/sets", "FileSystemAccessMode": "ro"}
    sharded = {"S3Uri": "s3://b/t", "S3DataDistributionType": "ShardedByS3Key", "S3DataType": "ManifestFile"}
    lines = shown(
        description(
            AlgorithmSpecification={"TrainingImage": "image", "TrainingInputMode": "FastFile"},
            InputDataConfig=[
                {"ChannelName": "train", "DataSource": {"S3DataSource": sharded}, "InputMode": "Pipe"},
                {"ChannelName": "val", "DataSource": {"S3DataSource": {"S3Uri": "s3://b/v"}}},
                {"ChannelName": "all", "DataSource": {"S3DataSource": {"S3Uri": "s3://b/a"}}, "InputMode": "File"},
                {"ChannelName": "sets", "DataSource": {"FileSystemDataSource": place}},
            ],
            CheckpointConfig={"S3Uri": "s3://b/kept", "LocalPath": "/state"},
        ),
        details(),
    )
    assert [line for line in lines if line.startswith(("input", "checkpoints"))] == [
        "input           train from s3://b/t (Pipe, ShardedByS3Key, ManifestFile)",
        "input           val from s3://b/v (FastFile)",
        "input           all from s3://b/a",
        "input           sets from fs-1/sets (ro)",
        "checkpoints     /state in s3://b/kept",
    ]


def test_hyperparameters_need_not_be_json() -> None:
    lines = shown(description(HyperParameters={"sagemaker_program": "train.py", "name": "x y"}), details())
    assert "script          train.py" in lines
    assert "hyperparameters name=x y" in lines
