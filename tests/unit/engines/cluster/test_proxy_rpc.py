"""How an engine and its proxy speak."""

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainyard.engines.cluster.contract import ClusterNode, InstancePlacement, RemoteRunner, Unreachable
from trainyard.engines.cluster.proxy import ClusterProxy
from trainyard.engines.cluster.proxy_rpc import ProxyClient
from trainyard.engines.cluster.proxy_supervisor import ProxySupervisor, RunningProxy, ThreadLauncher
from trainyard.engines.contract import AttemptRef, InstanceRef, Node
from trainyard.foundation.errors import Conflict, InvalidRequest, NotFound, TrainyardError, Unavailable
from trainyard.testing.eventually import eventually

NODES = (
    ClusterNode(Node("north", 2, 2.0, 1024, gpus=(0, 1), is_spot=True), "10.0.0.1", "the kernel is too old"),
    ClusterNode(Node("south", 1, 1.0, 512, reserves=True), "10.0.0.2"),
)
WAIT_S = 10.0


class Answering:
    """A `ClusterBackend` that answers what the test says when it is asked for its nodes."""

    def __init__(self) -> None:
        self.answer: Callable[[], Sequence[ClusterNode]] = lambda: NODES
        self.is_open = False
        self.waiting = 0

    async def nodes(self) -> Sequence[ClusterNode]:
        self.waiting += 1
        while not self.is_open:
            await asyncio.sleep(0.005)
        return self.answer()

    async def reserve(self, attempt: AttemptRef, placements: Sequence[InstancePlacement]) -> None: ...

    async def runners(
        self, attempt: AttemptRef, placements: Sequence[InstancePlacement]
    ) -> Mapping[InstanceRef, RemoteRunner]:
        return {}

    async def release(self, attempt: AttemptRef) -> None: ...

    async def close(self) -> None: ...


@pytest.fixture
def cluster() -> Answering:
    return Answering()


@pytest.fixture
def launch(cluster: Answering, tmp_path: Path) -> ThreadLauncher:
    async def make() -> ClusterProxy:
        return ClusterProxy(cluster, jobs=tmp_path / "jobs", folder=tmp_path / "engine")

    return ThreadLauncher(make)


@pytest.fixture
def client(launch: ThreadLauncher) -> Iterator[ProxyClient]:
    ours, theirs = socket.socketpair()
    running = launch(theirs)
    client = ProxyClient(ours)
    yield client
    client.close()
    running.end()


def test_nodes_come_as_they_are(client: ProxyClient, cluster: Answering) -> None:
    cluster.is_open = True

    assert client.nodes(timeout_s=WAIT_S) == NODES


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
    client: ProxyClient, cluster: Answering, error: TrainyardError, raised: type[TrainyardError]
) -> None:
    def refuse() -> Sequence[ClusterNode]:
        raise error

    cluster.answer = refuse
    cluster.is_open = True

    with pytest.raises(raised, match=error.message):
        client.nodes(timeout_s=WAIT_S)


def test_a_fault_of_the_proxy_is_something_that_may_pass(
    client: ProxyClient, cluster: Answering, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.answer = lambda: [NODES[int("nine")]]
    cluster.is_open = True

    with pytest.raises(Unavailable, match="ValueError"):
        client.nodes(timeout_s=WAIT_S)
    assert "a call to the cluster proxy failed" in caplog.text


def test_no_call_waits_for_another(client: ProxyClient, cluster: Answering) -> None:
    with ThreadPoolExecutor(8) as threads:
        slow = [threads.submit(client.nodes, timeout_s=WAIT_S) for _ in range(8)]
        eventually(lambda: cluster.waiting == 8)
        client.ping(timeout_s=WAIT_S)
        client.end(AttemptRef("job", 1), patience_s=1, timeout_s=WAIT_S)
        assert not any(each.done() for each in slow)
        cluster.is_open = True

        assert [each.result() for each in slow] == [NODES] * 8


def test_a_call_that_is_not_answered_in_time_is_unavailable(client: ProxyClient) -> None:
    with pytest.raises(Unavailable, match=r"within 0\.05 s to a request for its nodes\.$"):
        client.nodes(timeout_s=0.05)


def test_waiting_callers_learn_that_the_proxy_is_gone(client: ProxyClient, cluster: Answering) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.nodes, timeout_s=WAIT_S)
        eventually(lambda: cluster.waiting)

        client.close()

        with pytest.raises(Unavailable, match="started again"):
            waiting.result()
    assert client.wait_until_gone(WAIT_S)
    with pytest.raises(Unavailable):
        client.ping(timeout_s=WAIT_S)


def test_an_attempt_that_was_ended_by_one_proxy_never_starts_by_another(
    client: ProxyClient, launch: ThreadLauncher
) -> None:
    client.end(AttemptRef("job", 1), patience_s=1, timeout_s=WAIT_S)
    client.close()
    ours, theirs = socket.socketpair()
    running = launch(theirs)
    anew = ProxyClient(ours)

    with pytest.raises(Conflict):
        anew.start(AttemptRef("job", 1), ["algo-1"], timeout_s=WAIT_S)

    anew.close()
    running.end()


def test_a_crew_starts_a_proxy_again_that_has_ended(launch: ThreadLauncher, cluster: Answering) -> None:
    started: list[RunningProxy] = []

    def launch_often(theirs: socket.socket) -> RunningProxy:
        if len(started) == 1:
            started.append(NotStarted())
            raise OSError("no more processes")
        started.append(launch(theirs))
        return started[-1]

    supervisor = ProxySupervisor(launch_often)
    supervisor.start()
    assert supervisor.wait(WAIT_S)
    first = supervisor.client
    started[0].end()

    eventually(lambda: len(started) == 3 and supervisor.wait(WAIT_S) and supervisor.client is not first)

    cluster.is_open = True
    assert supervisor.client.nodes(timeout_s=WAIT_S) == NODES
    supervisor.close()
    with pytest.raises(Unavailable):
        _ = supervisor.client


class NotStarted:
    def end(self) -> None: ...
