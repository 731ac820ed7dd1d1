"""What the yard's own operations tell of processing jobs."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import As
from tests.unit.server.services.sagemaker.processing.requests import create
from tests.unit.server.services.sagemaker.requests import create as create_training
from tests.unit.server.services.sagemaker.requests import prepare
from trainyard.foundation.jobs.attempts import Attempt, InstanceState, Share
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.transitions import advance
from trainyard.server.jobs.processing import KIND, change_to, job_of
from trainyard.server.records.contract import ResourceKey
from trainyard.server.services.contract import Call
from trainyard.server.services.trainyard.jobs import follow_job
from trainyard.server.upkeep.retention import remove_expired_files
from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers, HttpRequest

S = SecondaryStatus


@pytest.fixture
def anna(accounts: Any) -> As:
    return prepare(accounts.anna)


def run(user: As, *statuses: SecondaryStatus, name: str = "clean") -> None:
    """Place a job after one second, and let it have each status a second later."""
    resource = user.yard.records.load(ResourceKey(user.account, KIND, name))
    attempt = Attempt(1, seconds(1), "KEY", (InstanceState("algo-1", Share(2.0)),))
    job = replace(job_of(resource), attempts=(attempt,))
    for number, status in enumerate((S.STARTING, *statuses), 1):
        job = advance(job, status, at=seconds(number))
    if job.is_final:
        job = replace(job, attempts=(replace(attempt, ended_at=job.ended_at),))
    assert user.yard.records.apply(resource, change_to(resource, job), now=seconds(9)) is not None


def test_a_processing_job_is_described_and_a_training_job_of_its_name_comes_first(anna: As) -> None:
    create(anna)
    run(anna, S.PROCESSING, S.UPLOADING, S.COMPLETED)
    told = anna("trainyard", "DescribeJob", TrainingJobName="clean")
    assert (told["TrainingJobArn"].split(":")[-1], told["Status"]) == ("processing-job/clean", "Completed")
    assert [each["Instance"] for each in told["Shares"]] == ["algo-1"]
    assert (told["Artifacts"], told["Rules"]) == ([], [])
    assert told["Cost"] == pytest.approx(told["PricePerHour"] * 2 / 3600)
    create_training(anna, "clean")
    both = [anna("trainyard", "DescribeJob", TrainingJobName="clean", **kind) for kind in ({}, {"Kind": "processing"})]
    assert [each["TrainingJobArn"].split(":")[-1] for each in both] == ["training-job/clean", "processing-job/clean"]
    with pytest.raises(Fault, match='no processing job named "search"'):
        anna("trainyard", "DescribeJob", TrainingJobName="search", Kind="processing")


def test_lists_have_processing_jobs_among_the_others(anna: As) -> None:
    create_training(anna.at(seconds(0)), "mnist")
    create(anna.at(seconds(1)))
    run(anna, S.PROCESSING)
    listed = anna.at(seconds(9))("trainyard", "ListJobs")["Jobs"]
    assert [(each["Kind"], each["Name"], each["State"]) for each in listed] == [
        ("processing", "clean", "running"),
        ("training", "mnist", "waiting"),
    ]
    assert listed[0]["InstanceTypes"] == [{"InstanceType": "ml.m5.large", "Count": 1}]
    assert [each["Name"] for each in anna("trainyard", "ListJobs", Filter="kind:processing")["Jobs"]] == ["clean"]


def test_following_a_processing_job_tells_its_statuses_until_it_has_ended(anna: As) -> None:
    create(anna)
    run(anna, S.PROCESSING, S.STOPPING, S.STOPPED)
    call = Call(anna.yard, anna.caller, "eu-west-3", "REQUEST", seconds(9), HttpRequest("POST", "/", "", Headers()))

    async def lines() -> list[dict[str, Any]]:
        answer = await follow_job(call, {"TrainingJobName": "clean", "Kind": "processing"})
        return [json.loads(line) for part in [part async for part in answer["Events"]] for line in part.splitlines()]

    told = asyncio.run(lines())
    statuses = [each["secondary"] for each in told if each["kind"] == "status"]
    assert statuses == ["Pending", "Starting", "Processing", "Stopping", "Stopped"]
    assert told[-1]["kind"] == "ended"


def test_files_of_processing_jobs_that_ended_long_ago_are_removed(anna: As) -> None:
    create(anna)
    run(anna, S.COMPLETED)
    resource = anna.yard.records.load(ResourceKey(anna.account, KIND, "clean"))
    folder = anna.yard.compute.jobs / resource.id
    folder.mkdir(parents=True)
    kept = seconds(3600) - seconds(0)
    assert remove_expired_files(anna.yard.compute.jobs, anna.yard.records, kept=kept, now=seconds(3600)).count == 0
    assert remove_expired_files(anna.yard.compute.jobs, anna.yard.records, kept=kept, now=seconds(3700)).count == 1
    assert not folder.exists()
    notes = anna("trainyard", "DescribeJob", TrainingJobName="clean")["Notes"]
    assert "Its log and other files were removed" in notes[-1]
