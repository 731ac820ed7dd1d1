"""How an engine and its ferry speak."""

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainyard.engines.cluster.calls import Caller
from trainyard.engines.cluster.contract import ClusterNode, RemoteKeeper, Seat, Unreachable
from trainyard.engines.cluster.crew import Crew, OnThread, Running
from trainyard.engines.cluster.ferry import Ferry
from trainyard.engines.contract import AttemptRef, InstanceRef, Node
from trainyard.foundation.errors import Conflict, InvalidRequest, NotFound, TrainyardError, Unavailable
from trainyard.testing.eventually import eventually

NODES = (
    ClusterNode(Node("north", 2, 2.0, 1024, gpus=(0, 1), is_spot=True), "10.0.0.1", "the kernel is too old"),
    ClusterNode(Node("south", 1, 1.0, 512, reserves=True), "10.0.0.2"),
)
WAIT_S = 10.0


class Answering:
    """A `Cluster` that answers what the test says when it is asked for its nodes."""

    def __init__(self) -> None:
        self.answer: Callable[[], Sequence[ClusterNode]] = lambda: NODES
        self.is_open = False
        self.waiting = 0

    async def nodes(self) -> Sequence[ClusterNode]:
        self.waiting += 1
        while not self.is_open:
            await asyncio.sleep(0.005)
        return self.answer()

    async def reserve(self, attempt: AttemptRef, seats: Sequence[Seat]) -> None: ...

    async def keepers(self, attempt: AttemptRef, seats: Sequence[Seat]) -> Mapping[InstanceRef, RemoteKeeper]:
        return {}

    async def release(self, attempt: AttemptRef) -> None: ...

    async def close(self) -> None: ...


@pytest.fixture
def cluster() -> Answering:
    return Answering()


@pytest.fixture
def launch(cluster: Answering, tmp_path: Path) -> OnThread:
    async def make() -> Ferry:
        return Ferry(cluster, jobs=tmp_path / "jobs", folder=tmp_path / "engine")

    return OnThread(make)


@pytest.fixture
def caller(launch: OnThread) -> Iterator[Caller]:
    ours, theirs = socket.socketpair()
    running = launch(theirs)
    caller = Caller(ours)
    yield caller
    caller.close()
    running.end()


def test_nodes_come_as_they_are(caller: Caller, cluster: Answering) -> None:
    cluster.is_open = True

    assert caller.nodes(timeout_s=WAIT_S) == NODES


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (Conflict("attempt", "job/1", "was ended"), Conflict),
        (NotFound("node", "north"), NotFound),
        (InvalidRequest("No such thing."), InvalidRequest),
        (Unreachable("Node north does not answer."), Unavailable),
    ],
)
def test_errors_come_as_they_are(
    caller: Caller, cluster: Answering, error: TrainyardError, raised: type[TrainyardError]
) -> None:
    def refuse() -> Sequence[ClusterNode]:
        raise error

    cluster.answer = refuse
    cluster.is_open = True

    with pytest.raises(raised, match=error.message):
        caller.nodes(timeout_s=WAIT_S)


def test_a_fault_of_the_ferry_is_something_that_may_pass(
    caller: Caller, cluster: Answering, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.answer = lambda: [NODES[int("nine")]]
    cluster.is_open = True

    with pytest.raises(Unavailable, match="ValueError"):
        caller.nodes(timeout_s=WAIT_S)
    assert "a call to the ferry failed" in caplog.text


def test_no_call_waits_for_another(caller: Caller, cluster: Answering) -> None:
    with ThreadPoolExecutor(8) as threads:
        slow = [threads.submit(caller.nodes, timeout_s=WAIT_S) for _ in range(8)]
        eventually(lambda: cluster.waiting == 8)
        caller.ping(timeout_s=WAIT_S)
        caller.end(AttemptRef("job", 1), patience_s=1, timeout_s=WAIT_S)
        assert not any(each.done() for each in slow)
        cluster.is_open = True

        assert [each.result() for each in slow] == [NODES] * 8


def test_a_call_that_is_not_answered_in_time_is_unavailable(caller: Caller) -> None:
    with pytest.raises(Unavailable, match=r"within 0\.05 s when it was asked for its nodes\.$"):
        caller.nodes(timeout_s=0.05)


def test_whoever_waits_hears_that_the_ferry_is_gone(caller: Caller, cluster: Answering) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(caller.nodes, timeout_s=WAIT_S)
        eventually(lambda: cluster.waiting)

        caller.close()

        with pytest.raises(Unavailable, match="started again"):
            waiting.result()
    assert caller.wait_until_gone(WAIT_S)
    with pytest.raises(Unavailable):
        caller.ping(timeout_s=WAIT_S)


def test_an_attempt_that_was_ended_by_one_ferry_never_starts_by_another(caller: Caller, launch: OnThread) -> None:
    caller.end(AttemptRef("job", 1), patience_s=1, timeout_s=WAIT_S)
    caller.close()
    ours, theirs = socket.socketpair()
    running = launch(theirs)
    anew = Caller(ours)

    with pytest.raises(Conflict):
        anew.start(AttemptRef("job", 1), ["algo-1"], timeout_s=WAIT_S)

    anew.close()
    running.end()


def test_a_crew_starts_a_ferry_again_that_has_ended(launch: OnThread, cluster: Answering) -> None:
    started: list[Running] = []

    def launch_often(theirs: socket.socket) -> Running:
        if len(started) == 1:
            started.append(NotStarted())
            raise OSError("no more processes")
        started.append(launch(theirs))
        return started[-1]

    crew = Crew(launch_often)
    crew.start()
    assert crew.wait(WAIT_S)
    first = crew.caller
    started[0].end()

    eventually(lambda: len(started) == 3 and crew.wait(WAIT_S) and crew.caller is not first)

    cluster.is_open = True
    assert crew.caller.nodes(timeout_s=WAIT_S) == NODES
    crew.close()
    with pytest.raises(Unavailable):
        _ = crew.caller


class NotStarted:
    def end(self) -> None: ...
