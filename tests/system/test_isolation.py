"""One user's things do not exist for another: tried over every served operation.

Each operation is called by B twice, naming A's things and naming things that are not there, with the same throws of the
dice otherwise. B must not be able to tell the two answers apart, nothing of A's may be in either, and afterwards A
finds everything as it was.
"""

import random
import re
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest
from botocore.credentials import Credentials
from botocore.parsers import create_parser

from tests.system.fuzz.exchange import Answer, Connection, Draft, draft
from tests.system.fuzz.values import Target, Values, targets
from tests.system.fuzz.world import User, World, build_world, ghost_of, snapshot

ROUNDS = 4


@pytest.fixture(scope="module")
def owner(administrator: User) -> User:
    return administrator.add_user("ursula")


@pytest.fixture(scope="module")
def stranger(administrator: User) -> User:
    user = administrator.add_user("bernard")
    # With both of its key pairs made, each further one is refused, whichever names the request has.
    administrator.client("iam").create_access_key(UserName=user.name)
    return user


def test_a_stranger_can_neither_see_nor_change_nor_guess_anything(owner: User, stranger: User) -> None:
    world = build_world(owner, "quixotic", secret="sanctum8731")
    ghost = ghost_of(world, "zephyrus")
    before = snapshot(owner, world)
    reading = [target for target in targets() if target.operation.name.startswith(_READING)]
    assert len(reading) > 20
    with closing(_connection(stranger)) as connection:
        for number in range(ROUNDS):
            for target in reading:
                _probe(connection, target, world=world, ghost=ghost, seed=number, hidden=world.words)
        # From here on the stranger makes things of its own under the same names, which it then sees, of course. The id
        # of an artifact follows from its source.
        hidden = {what: word for what, word in world.words.items() if what not in ("word", "artifact")}
        for number in range(ROUNDS):
            for target in targets():
                _probe(connection, target, world=world, ghost=ghost, seed=number, hidden=hidden)
    assert snapshot(owner, world) == before


@pytest.mark.flow
def test_the_probe_notices_one_who_does_see(owner: User, administrator: User) -> None:
    """An administrator sees what the stranger must not, and so the same probe must fail for one."""
    world = build_world(owner, "seen", secret="inscription5219")
    listing = next(target for target in targets() if target.operation.name == "ListObjectsV2")
    with closing(_connection(administrator)) as connection, pytest.raises(AssertionError, match="apart"):
        _probe(connection, listing, world=world, ghost=ghost_of(world, "unseen"), seed=0, hidden={})
    with closing(_connection(administrator)) as connection, pytest.raises(AssertionError, match="tells of"):
        _probe(connection, listing, world=world, ghost=ghost_of(world, "unseen"), seed=0, hidden={"key": "seen-key"})


_READING = ("Get", "List", "Head", "Describe", "Filter", "Follow", "Quote")


def _connection(user: User) -> Connection:
    return Connection(user.endpoint, Credentials(user.access_key_id, user.secret_access_key), user.region)


def _probe(
    connection: Connection, target: Target, *, world: World, ghost: World, seed: int, hidden: Mapping[str, str]
) -> None:
    requests = [_request(target, names, seed=seed) for names in (ghost, world)]
    absent, present = (connection.send(request) for request in requests)
    told = _told(requests[1], present, hidden)
    assert not told, f"{target} tells of {told}:\n{requests[1]}\n{present}"
    seen = [_seen(target, answer, names) for answer, names in ((absent, ghost), (present, world))]
    assert seen[0] == seen[1], f"{target} tells the two apart:\n{requests[1]}\n{absent}\n{present}"


def _request(target: Target, world: World, *, seed: int) -> Draft:
    """The same request for two worlds: the dice fall alike, only the names differ."""
    dice = random.Random(f"{seed} {target}")
    values = Values(dice, world.names, oddity=0.0, generosity=0.1 * seed)
    return draft(target, values.request(target))


def _told(request: Draft, answer: Answer, hidden: Mapping[str, str]) -> set[str]:
    """What is told by the answer that was not in the question."""
    asked = f"{request.url} {request.headers} {request.body!r}".lower()
    said = f"{dict(answer.headers)} {answer.body!r}".lower()
    return {word for word in hidden.values() if word.lower() in said and word.lower() not in asked}


def _seen(target: Target, answer: Answer, world: World) -> Any:
    """What a caller can learn from an answer: refusals word by word, successes by their form."""
    if answer.status >= 300 or target.operation.has_streaming_output:
        return answer.status, _anonymous(answer.body.decode(errors="replace"), world)
    response = {"status_code": answer.status, "headers": dict(answer.headers), "body": answer.body}
    return answer.status, _form(create_parser(target.protocol).parse(response, target.operation.output_shape), world)


def _anonymous(text: str, world: World) -> str:
    for what, word in world.words.items():
        text = text.replace(word, f"<{what}>")
    return re.sub(r"<RequestId>.*?</RequestId>|<HostId>.*?</HostId>", "", text)


def _form(value: Any, world: World) -> Any:
    """The members and types of a shape; the keys of its maps are texts like any other."""
    if isinstance(value, Mapping):
        return {_anonymous(name, world): _form(each, world) for name, each in value.items() if name != _METADATA}
    if isinstance(value, list):
        return [_form(each, world) for each in value]
    return type(value).__name__


_METADATA = "ResponseMetadata"  # which botocore adds
