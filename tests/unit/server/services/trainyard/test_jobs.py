import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import NOON, Accounts, As
from tests.unit.server.services.sagemaker.requests import create
from tests.unit.server.services.sagemaker.training.test_description import load, remember
from tests.unit.server.services.sagemaker.tuning.requests import (
    RATE,
    change_tuning,
    config,
    create_tuning,
    end_tuning,
    study,
)
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.jobs.attempts import Attempt, InstancePhase, InstanceState, MetricSummary, OutcomeKind, Share
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import Artifact
from trainyard.foundation.jobs.training.transitions import advance
from trainyard.server.services.contract import Call
from trainyard.server.services.trainyard.jobs import follow_job
from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers, HttpRequest

S = SecondaryStatus
CARD = {
    "kind": "user error",
    "instance": "algo-1",
    "summary": "ValueError: no (train.py, line 3)",
    "command": "python train.py",
    "exit_code": 1,
    "signal": None,
    "advice": "Correct the program.",
    "last_lines": ["Traceback", "ValueError: no"],
    "exception": {"type": "ValueError", "message": "no", "file": "train.py", "line": 3, "function": "f", "source": "x"},
}
SPOT: dict[str, Any] = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 120},
}
TAGS = [
    {"Key": "trainyard:early-stopping", "Value": "curve"},
    {"Key": "trainyard:prune-on", "Value": "NotANumber"},
]


def describe(user: As, name: str = "mnist") -> dict[str, Any]:
    told = user("trainyard", "DescribeJob", TrainingJobName=name)
    return {member: value for member, value in told.items() if value is not None}


def start(user: As, instance: InstanceState | None = None, *, name: str = "mnist") -> None:
    """Start a job: its first attempt is placed after one second and trains after two."""
    attempt = Attempt(1, seconds(1), "KEY", (instance or InstanceState("algo-1", Share(2.0, 1024, (0,))),))
    job = advance(replace(load(user, name), attempts=(attempt,)), S.STARTING, at=seconds(1))
    remember(user, advance(job, S.TRAINING, at=seconds(2)))


def test_a_job_that_waits_has_a_place_in_line_and_costs_nothing(anna: As) -> None:
    for number in range(3):
        create(anna.at(seconds(number)), f"job-{number}")
    told = describe(anna, "job-2")
    assert (told["Status"], told["SecondaryStatus"], told["QueuePosition"]) == ("InProgress", "Pending", 3)
    assert told["WaitReason"].startswith("2 jobs are ahead of it in the queue of ")
    assert told["Waterfall"] == [{"Phase": "queue", "StartTime": seconds(2), "EndTime": None}]
    assert (told["Shares"], told["Attempts"], told["Cost"]) == ([], [], 0.0)
    assert "FailureCard" not in told
    start(anna, name="job-0")
    assert describe(anna, "job-2")["QueuePosition"] == 2
    assert not {"QueuePosition", "WaitReason"} & set(describe(anna, "job-0"))


def test_a_running_job_shows_its_share_and_its_cost_so_far(anna: As) -> None:
    create(anna)
    start(anna)
    told = describe(anna.at(seconds(3602)))
    assert told["Shares"] == [
        {"Instance": "algo-1", "InstanceType": "ml.m5.large", "Cpus": 2.0, "MemoryBytes": 1024, "Gpus": [0]}
    ]
    price = anna.yard.compute.catalog["ml.m5.large"].on_demand_usd
    assert told["PricePerHour"] == price
    assert told["Cost"] == pytest.approx(price)
    assert told["UserName"] == "anna"


def test_the_cost_of_a_job_that_ended_is_that_of_its_billable_seconds(anna: As) -> None:
    create(anna)
    start(anna)
    job = load(anna)
    ended = job.with_attempt(replace(job.attempts[-1], ended_at=seconds(11.5)))
    remember(anna, advance(ended, S.COMPLETED, at=seconds(11.5)))
    billed = anna("sagemaker", "DescribeTrainingJob", TrainingJobName="mnist")["BillableTimeInSeconds"]
    told = describe(anna.at(seconds(9999)))
    assert told["Cost"] == pytest.approx(told["PricePerHour"] * billed / 3600)
    assert billed == 10


def test_a_job_has_the_summaries_of_its_metrics_by_name(anna: As) -> None:
    create(anna)
    loss = MetricSummary(0.5, seconds(4), 3, lowest=0.25, highest=2.0)
    start(anna, InstanceState("algo-1", metrics={"loss": loss, "accuracy": replace(loss, value=0.75)}))
    accuracy, loss_row = describe(anna)["Metrics"]
    assert (accuracy["Name"], accuracy["Last"], accuracy["Best"]) == ("accuracy", 0.75, 2.0)
    assert (loss_row["Name"], loss_row["Last"], loss_row["Best"], loss_row["Count"]) == ("loss", 0.5, 0.25, 3)


def test_a_job_tells_how_much_of_its_data_it_has_while_it_downloads(anna: As) -> None:
    create(anna, ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1})
    parts = [InstanceState(f"algo-{n}", downloaded_bytes=n * 100, download_bytes=1000) for n in (1, 2)]
    attempt = Attempt(1, seconds(1), "KEY", tuple(parts))
    job = advance(replace(load(anna), attempts=(attempt,)), S.STARTING, at=seconds(1))
    remember(anna, advance(job, S.DOWNLOADING, at=seconds(2)))
    assert describe(anna)["Download"] == {"DoneBytes": 300, "TotalBytes": 2000}
    remember(anna, advance(load(anna), S.TRAINING, at=seconds(3)))
    assert "Download" not in describe(anna)


def test_the_waterfall_begins_with_the_queue_and_continues_in_order_of_time(anna: As) -> None:
    create(anna)
    phases = (InstancePhase("train", seconds(4), seconds(9)), InstancePhase("download", seconds(2), seconds(3)))
    start(anna, InstanceState("algo-1", phases=phases))
    told = [(each["Phase"], each["StartTime"], each["EndTime"]) for each in describe(anna)["Waterfall"]]
    assert told == [
        ("queue", seconds(0), seconds(1)),
        ("place", seconds(1), seconds(2)),
        ("download", seconds(2), seconds(3)),
        ("train", seconds(4), seconds(9)),
    ]
    assert [each.get("Instance") for each in describe(anna)["Waterfall"]] == [None, None, "algo-1", "algo-1"]


def test_the_waterfall_is_of_the_last_attempt(anna: As) -> None:
    create(anna)
    start(anna)
    job = load(anna)
    first = replace(job.attempts[0], ended_at=seconds(5), failure="It was lost.")
    again = Attempt(2, seconds(8), "KEY", (InstanceState("algo-1"),))
    remember(anna, replace(job, attempts=(first, again)))
    queue, place = describe(anna)["Waterfall"]
    assert queue == {"Phase": "queue", "StartTime": seconds(5), "EndTime": seconds(8)}
    assert place == {"Phase": "place", "StartTime": seconds(8), "EndTime": None}
    told = [(each["Number"], each["FailureReason"]) for each in describe(anna)["Attempts"]]
    assert told == [(1, "It was lost."), (2, None)]


def test_a_list_tells_what_went_wrong_without_what_sagemaker_says_around_it(anna: As) -> None:
    create(anna)
    start(anna)
    failure = 'AlgorithmError: ExecuteUserScriptError:\nErrorMessage "ValueError: no"'
    remember(anna, advance(replace(load(anna), failure=failure, card=CARD), S.FAILED, at=seconds(3)))
    (row,) = anna("trainyard", "ListJobs", Filter='status:failed failure:"ValueError: no (train.py"')["Jobs"]
    assert row["FailureReason"] == "ValueError: no (train.py, line 3)"


def test_a_failure_card_is_described_in_full(anna: As) -> None:
    create(anna)
    ended = InstanceState("algo-1", exit_code=1, outcome=OutcomeKind.FAILED, reason="x" * 3000, ended_at=seconds(3))
    start(anna, ended)
    remember(anna, advance(replace(load(anna), failure="y" * 3000, card=CARD), S.FAILED, at=seconds(3)))
    told = describe(anna)
    assert told["FailureReason"] == "y" * 3000
    card = {member: value for member, value in told["FailureCard"].items() if value is not None}
    assert card == {
        "Class": "user error",
        "Summary": "ValueError: no (train.py, line 3)",
        "Instance": "algo-1",
        "Command": "python train.py",
        "ExitCode": 1,
        "Exception": {
            "Type": "ValueError",
            "Message": "no",
            "File": "train.py",
            "Line": 3,
            "Function": "f",
            "Source": "x",
        },
        "Location": "train.py:3",
        "LastLines": ["Traceback", "ValueError: no"],
        "Advice": ["Correct the program."],
    }
    (instance,) = told["Attempts"][0]["Instances"]
    assert (instance["Outcome"], instance["ExitCode"], instance["Reason"]) == ("failed", 1, "x" * 3000)


def test_a_job_that_could_not_be_started_has_a_card_too(anna: As) -> None:
    create(anna)
    remember(anna, advance(replace(load(anna), failure="There is no object.\nMore."), S.FAILED, at=seconds(3)))
    card = describe(anna)["FailureCard"]
    assert (card["Class"], card["Summary"]) == ("user error", "There is no object.")
    assert card["Advice"]


def test_artifacts_are_described_with_their_sizes(anna: As) -> None:
    create(anna)
    remember(anna, replace(load(anna), artifacts={"model": Artifact("s3://data/m.tar.gz", 42)}).with_notes("A note."))
    told = describe(anna)
    assert told["Artifacts"] == [{"Kind": "model", "S3Uri": "s3://data/m.tar.gz", "SizeInBytes": 42}]
    assert told["Notes"][-1] == "A note."


def test_the_jobs_of_others_are_not_there(accounts: Accounts, anna: As) -> None:
    create(anna)
    with pytest.raises(Fault) as caught:
        describe(accounts.ben)
    assert (caught.value.code, caught.value.status) == ("ResourceNotFound", 404)
    assert describe(accounts.admin)["UserName"] == "anna"


def follow(user: As, **asked: Any) -> list[dict[str, Any]]:
    async def read() -> bytes:
        call = Call(user.yard, user.caller, "eu-west-3", "REQUEST", NOON, HttpRequest("POST", "/", "", Headers()))
        answer = await follow_job(call, {"TrainingJobName": "mnist", **asked})
        assert answer["ContentType"] == "application/x-ndjson"
        return b"".join([piece async for piece in answer["Events"]])

    return [json.loads(line) for line in asyncio.run(read()).splitlines()]


@pytest.fixture
def ended(anna: As) -> As:
    create(anna)
    remember(anna, advance(load(anna), SecondaryStatus.FAILED, at=seconds(1)))
    return anna


def test_following_an_ended_job_reports_the_end_and_closes_the_stream(ended: As) -> None:
    told = follow(ended)
    assert [each["kind"] for each in told if each["kind"] != "note"] == ["status", "status", "ended"]
    assert follow(ended, Cursor=told[0]["cursor"]) == told[1:]
    assert follow(ended, Tail=1) == told


def test_the_jobs_of_others_cannot_be_followed(accounts: Accounts, ended: As) -> None:
    with pytest.raises(NotFound):
        follow(accounts.ben)
    assert follow(accounts.admin)[-1]["kind"] == "ended"


def test_the_cursor_of_something_else_is_refused(ended: As) -> None:
    with pytest.raises(InvalidRequest, match="cursor"):
        follow(ended, Cursor="000000000000.0.0.1")


def interrupt(user: As, name: str = "mnist") -> dict[str, Any]:
    return user("trainyard", "InterruptJob", TrainingJobName=name)


def test_a_running_spot_job_is_interrupted(anna: As) -> None:
    create(anna, **SPOT)
    start(anna)
    assert interrupt(anna) == {}
    assert load(anna).attempts[-1].interruption == "anna interrupted it."
    interrupt(anna)  # once more changes nothing
    assert describe(anna)["Attempts"][0]["InterruptionReason"] == "anna interrupted it."


def test_a_job_that_is_not_spot_is_not_interrupted(anna: As) -> None:
    create(anna)
    start(anna)
    with pytest.raises(
        Fault, match="mnist is not a spot job, so it cannot be interrupted; `trainyard stop mnist` stops"
    ):
        interrupt(anna)


def test_a_waiting_job_cannot_be_interrupted(anna: As) -> None:
    create(anna, **SPOT)
    with pytest.raises(Fault, match='"mnist" is Pending and not running'):
        interrupt(anna)


def test_a_job_that_ends_is_not_interrupted(anna: As) -> None:
    create(anna, **SPOT)
    start(anna)
    remember(anna, advance(load(anna), SecondaryStatus.UPLOADING, at=seconds(3)))
    with pytest.raises(Fault, match="is Uploading its model and about to end"):
        interrupt(anna)
    job = load(anna)
    ended = replace(job, attempts=(replace(job.attempts[-1], ended_at=seconds(4)),))
    remember(anna, advance(ended, SecondaryStatus.COMPLETED, at=seconds(4)))
    with pytest.raises(Fault, match="is Completed and cannot be interrupted"):
        interrupt(anna)


def test_nobody_interrupts_the_jobs_of_others(anna: As, accounts: Accounts) -> None:
    create(anna, **SPOT)
    start(anna)
    with pytest.raises(Fault) as refused:
        interrupt(accounts.ben)
    assert refused.value.code == "ResourceNotFound"
    assert load(anna).attempts[-1].interruption == ""


def test_an_interrupted_job_has_a_place_in_line_behind_those_that_are_not_spot(anna: As) -> None:
    create(anna, **SPOT)
    start(anna)
    job = load(anna)
    ended = replace(job.attempts[-1], ended_at=seconds(9), interruption="It had to.")
    remember(anna, advance(job.with_attempt(ended), SecondaryStatus.INTERRUPTED, at=seconds(9)))
    assert describe(anna)["QueuePosition"] == 1
    create(anna.at(seconds(20)), "own")
    create(anna.at(seconds(30)), "later", **SPOT)
    assert [describe(anna, name)["QueuePosition"] for name in ("own", "mnist", "later")] == [1, 2, 3]


def describe_tuning(user: As, name: str = "tune") -> dict[str, Any]:
    return user("trainyard", "DescribeTuningJob", HyperParameterTuningJobName=name)


def test_settings_beyond_aws_are_described(accounts: Accounts, anna: As) -> None:
    ranges = {"ContinuousParameterRanges": [{**RATE, "MaxValue": "0.001"}]}
    create_tuning(anna, Tags=TAGS, HyperParameterTuningJobConfig=config(RandomSeed=2**40, ParameterRanges=ranges))
    told = describe_tuning(accounts.admin, "TUNE")
    assert (told["UserName"], told["Status"], told["StopReason"]) == ("anna", "InProgress", None)
    assert (told["EarlyStopping"], told["PruningRules"], told["RandomSeed"]) == ("Curve", ["NotANumber"], 2**40)
    assert any("has only one value" in note for note in told["Notes"])
    end_tuning(anna, t1=0.5)
    change_tuning(anna, replace(study(anna), stop_reason="All were begun.", failure="x" * 2000))
    told = describe_tuning(anna)
    assert (told["PlannedJobs"], told["MeasuredJobs"], told["StopReason"]) == (1, 1, "All were begun.")
    assert len(told["FailureReason"]) == 2000


def test_a_tuning_job_of_another_user_is_not_found(accounts: Accounts, anna: As) -> None:
    create_tuning(anna)
    with pytest.raises(Fault) as caught:
        describe_tuning(accounts.ben)
    assert caught.value.code == "ResourceNotFound"
