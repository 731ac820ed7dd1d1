"""Requests made up from the service models, plausible and spoiled: the yard refuses what it must, and never breaks.

Everything is correctly signed, so that it gets past the door. The dice are seeded; a failure names the seed and the
number of the request.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

import pytest
from botocore.credentials import Credentials

from tests.system.fuzz.exchange import Answer, Connection, Draft, complaint, draft
from tests.system.fuzz.mutations import spoil
from tests.system.fuzz.values import Names, Target, Values, targets
from tests.system.fuzz.world import User, build_world
from trainyard.testing.yard import RunningYard


def test_500_made_up_requests_are_answered_or_refused_properly(yard: RunningYard, administrator: User) -> None:
    _fuzz(yard, administrator, seed=500, count=500)


@pytest.mark.slow
def test_20000_made_up_requests_are_answered_or_refused_properly(yard: RunningYard, administrator: User) -> None:
    _fuzz(yard, administrator, seed=20_000, count=20_000)


def _fuzz(yard: RunningYard, administrator: User, *, seed: int, count: int) -> None:
    callers = [administrator, administrator.add_user(f"plain-{seed}")]
    stages = [_stage(user, f"fuzz{seed}{kind}") for user, kind in zip(callers, "ab", strict=True)]
    statuses: Counter[int] = Counter()
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(_connection(user))) for user in callers]
        for number, request in enumerate(_requests(stages, seed=seed, count=count)):
            answer = connections[number % 2].send(request)
            wrong = complaint(request, answer)
            assert wrong is None, f"seed {seed}, request {number}: {wrong}\n{request}\n{answer}"
            statuses[answer.status] += 1
    assert yard.process.poll() is None
    assert _errors(yard) == []
    assert statuses[200] > count / 5, f"enough requests should succeed to reach every corner: {statuses}"


@dataclass(frozen=True, slots=True)
class Stage:
    """What the requests of one caller are about: things that stay, and things that may be made and removed."""

    lasting: Names
    passing: Names


def _stage(user: User, word: str) -> Stage:
    world, other = (build_world(user, each, secret="known") for each in (word, f"{word}-passing"))
    s3 = user.client("s3")
    uploads = [s3.create_multipart_upload(Bucket=world.bucket, Key=world.key)["UploadId"] for _ in range(20)]
    for upload in uploads:
        s3.upload_part(Bucket=world.bucket, Key=world.key, UploadId=upload, PartNumber=1, Body=b"part")
    places = {"bucket": [other.bucket, world.bucket], "key": [other.key, world.key], "uploadid": uploads}
    return Stage(world.names | _HARMLESS, other.names | places | _HARMLESS)


# The caller must not remove its own key.
_HARMLESS = {"username": ["somebody", "else"], "accesskeyid": ["AKIAIOSFODNN7EXAMPLE"]}
_REMOVAL = ("Delete", "Abort", "Complete", "Detach", "Remove", "Untag")


def _requests(stages: list[Stage], *, seed: int, count: int) -> Iterator[Draft]:
    """Take the operations in turn, for each caller in turn, half as botocore writes them and half spoiled."""
    dice = random.Random(seed)
    known = targets()
    for number in range(count):
        target, stage = known[(number // 2) % len(known)], stages[number % 2]
        removes = target.operation.name.startswith(_REMOVAL)
        names = stage.passing if removes or dice.random() < 0.3 else stage.lasting
        values = Values(dice, names, oddity=dice.choice([0.0, 0.1]), generosity=dice.choice([0.0, 0.03, 0.2]))
        request = draft(target, values.request(target))
        if dice.random() < 0.5:
            spoil(dice, request)
        yield request


def _connection(user: User) -> Connection:
    return Connection(user.endpoint, Credentials(user.access_key_id, user.secret_access_key), user.region)


def _errors(yard: RunningYard) -> list[str]:
    """Return the errors in the server's log, and what it printed outside its log."""
    lines = yard.home.server_log.read_text().splitlines()
    return [line for line in lines if not line.startswith("{") or json.loads(line)["level"] in ("error", "critical")]


def test_the_judge_finds_what_is_wrong() -> None:
    """Otherwise the fuzzer would pass on any server."""
    target = _target("s3", "ListObjectsV2")
    request = draft(target, {"Bucket": "a-bucket"})
    named = {"x-amz-request-id": "1", "content-type": "application/xml"}
    good = b"<Error><Code>NoSuchBucket</Code><Message>There is none.</Message></Error>"
    assert complaint(request, Answer(404, named, good)) is None
    assert complaint(request, Answer(500, named, good)) == "a fault of the server: 500"
    assert complaint(request, Answer(404, {}, good)) == "no request id"
    assert complaint(request, Answer(404, named, b"<Error><Code/></Error>")) is not None
    assert complaint(request, Answer(404, named, b"not found")) is not None
    assert complaint(request, Answer(200, named, b"<broken")) is not None
    request.is_itself = False
    assert complaint(request, Answer(404, named, good)) is None
    assert complaint(request, Answer(404, named | {"content-type": "text/plain"}, b"Not Found")) is not None


def _target(service: str, operation: str) -> Target:
    return next(each for each in targets() if (each.service, each.operation.name) == (service, operation))
