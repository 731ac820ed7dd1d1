from dataclasses import replace
from typing import Any

import pytest

from tests.unit.foundation.jobs import seconds
from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import create
from tests.unit.server.services.sagemaker.test_described import load, remember
from trainyard.foundation.jobs import Artifact, Attempt, InstanceState, Outcome, Phase, SecondaryStatus, Share
from trainyard.foundation.transitions import advance
from trainyard.wire.fault import Fault

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


def describe(user: As, name: str = "mnist") -> dict[str, Any]:
    told = user("trainyard", "DescribeJob", TrainingJobName=name)
    return {member: value for member, value in told.items() if value is not None}


def start(user: As, instance: InstanceState | None = None, *, name: str = "mnist") -> None:
    """A job in its first attempt, placed after a second and training after two."""
    attempt = Attempt(1, seconds(1), "KEY", (instance or InstanceState("algo-1", Share(2.0, 1024, (0,))),))
    job = advance(replace(load(user, name), attempts=(attempt,)), S.STARTING, at=seconds(1))
    remember(user, advance(job, S.TRAINING, at=seconds(2)))


def test_a_job_that_waits_has_a_place_in_line_and_costs_nothing(anna: As) -> None:
    for number in range(3):
        create(anna.at(seconds(number)), f"job-{number}")
    told = describe(anna, "job-2")
    assert (told["Status"], told["SecondaryStatus"], told["QueuePosition"]) == ("InProgress", "Pending", 3)
    assert told["Waterfall"] == [{"Phase": "queue", "StartTime": seconds(2), "EndTime": None}]
    assert (told["Shares"], told["Attempts"], told["Cost"]) == ([], [], 0.0)
    assert "FailureCard" not in told
    start(anna, name="job-0")
    assert describe(anna, "job-2")["QueuePosition"] == 2
    assert "QueuePosition" not in describe(anna, "job-0")


def test_a_job_that_runs_tells_its_share_and_what_it_has_cost_so_far(anna: As) -> None:
    create(anna)
    start(anna)
    told = describe(anna.at(seconds(3602)))
    assert told["Shares"] == [
        {"Instance": "algo-1", "InstanceType": "ml.m5.large", "Cpus": 2.0, "MemoryBytes": 1024, "Gpus": [0]}
    ]
    price = anna.yard.workshop.catalog["ml.m5.large"].on_demand_usd
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


def test_the_waterfall_begins_with_the_queue_and_goes_on_in_the_order_of_time(anna: As) -> None:
    create(anna)
    phases = (Phase("train", seconds(4), seconds(9)), Phase("download", seconds(2), seconds(3)))
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


def test_the_card_of_a_failure_is_told_whole(anna: As) -> None:
    create(anna)
    ended = InstanceState("algo-1", exit_code=1, outcome=Outcome.FAILED, reason="x" * 3000, ended_at=seconds(3))
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


def test_artifacts_are_told_with_their_sizes(anna: As) -> None:
    create(anna)
    remember(anna, replace(load(anna), artifacts={"model": Artifact("s3://data/m.tar.gz", 42)}).noted("A note."))
    told = describe(anna)
    assert told["Artifacts"] == [{"Kind": "model", "S3Uri": "s3://data/m.tar.gz", "SizeInBytes": 42}]
    assert told["Notes"][-1] == "A note."


def test_the_jobs_of_others_are_not_there(accounts: Accounts, anna: As) -> None:
    create(anna)
    with pytest.raises(Fault) as caught:
        describe(accounts.ben)
    assert (caught.value.code, caught.value.status) == ("ResourceNotFound", 404)
    assert describe(accounts.admin)["UserName"] == "anna"
