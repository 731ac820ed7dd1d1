import asyncio
import json
from typing import Any

import pytest

from tests.unit.foundation.jobs import seconds
from tests.unit.server.services.accounts import NOON, Accounts, As
from tests.unit.server.services.sagemaker.requests import create
from tests.unit.server.services.sagemaker.test_described import load, remember
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.jobs import SecondaryStatus
from trainyard.foundation.transitions import advance
from trainyard.server.services.contract import Call
from trainyard.server.services.trainyard.follow import follow_job
from trainyard.wire.http import Headers, HttpRequest


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


def test_a_job_that_ended_is_told_and_the_stream_with_it(ended: As) -> None:
    told = follow(ended)
    assert [each["kind"] for each in told if each["kind"] != "note"] == ["status", "status", "ended"]
    assert follow(ended, Cursor=told[0]["cursor"]) == told[1:]
    assert follow(ended, Tail=1) == told


def test_the_jobs_of_others_are_not_there(accounts: Accounts, ended: As) -> None:
    with pytest.raises(NotFound):
        follow(accounts.ben)
    assert follow(accounts.admin)[-1]["kind"] == "ended"


def test_the_cursor_of_something_else_is_refused(ended: As) -> None:
    with pytest.raises(InvalidRequest, match="cursor"):
        follow(ended, Cursor="000000000000.0.0.1")
