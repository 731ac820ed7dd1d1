"""Attempts that a proxy starts and ends, over runners that answer as the test says."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.disk_recorder import DiskRecorder
from trainyard.engines.cluster.attempt_register import AttemptRegister
from trainyard.engines.cluster.contract import (
    ClusterNode,
    InstancePlacement,
    PreparedInstance,
    PullResult,
    RemoteRunner,
    Unreachable,
)
from trainyard.engines.cluster.instance_session import ProxyTimeouts
from trainyard.engines.cluster.proxy import ClusterProxy, ended_marker
from trainyard.engines.cluster.remote_state import RemoteState, read_remote_state
from trainyard.engines.contract import AttemptRef, InstanceRef, Node
from trainyard.foundation.errors import Conflict, Unavailable
from trainyard.link.contract import InstanceSpec
from trainyard.link.specs import read_spec, write_spec
from trainyard.testing.engines.samples import SampleEnvironment, attempt_specs

TIMEOUTS = ProxyTimeouts(poll_s=0.01, lease_margin_s=0, first_retry_s=0.001, max_retry_s=0.001)
ATTEMPT = AttemptRef("job", 1)
NAMES = ("algo-1", "algo-2")


class FakeRunner:
    """The runner of one instance, of which the cluster says whether it is reached and what it refuses."""

    def __init__(self, cluster: "FakeCluster", instance: InstanceRef) -> None:
        self.cluster = cluster
        self.instance = instance
        self.is_alive = False

    async def call(self, method: str, /, *arguments: Any, timeout_s: float, **options: Any) -> Any:
        assert timeout_s > 0
        await asyncio.sleep(options.get("wait_s", 0))
        if self.cluster.is_away:
            raise Unreachable("No node answers.")
        self.cluster.done.append((method, self.instance.name))
        if (method, self.instance.name) in self.cluster.refused:
            raise Unavailable("The disk is full.")
        return getattr(self, method)(*arguments, **options)

    def prepare(self, spec: InstanceSpec) -> PreparedInstance:
        self.cluster.specs[spec.instance] = spec
        return PreparedInstance(4000 if spec.instance == spec.hosts[0] else 0, "stamp")

    def start(self, spec: InstanceSpec, *, heard: str) -> None:
        assert heard == "stamp"
        self.cluster.specs[spec.instance] = spec
        self.is_alive = True

    def pull(self, cursors: Mapping[str, int], commands: Sequence[Any], *, wait_s: float, heard: str) -> PullResult:
        return PullResult((), self.is_alive, is_all=True, stamp="stamp")

    def end(self, *, patience_s: float) -> None:
        self.is_alive = False

    def forget(self) -> None: ...


class FakeCluster:
    """A `ClusterBackend` of two nodes."""

    def __init__(self) -> None:
        self.is_away = False
        self.refused: set[tuple[str, str]] = set()
        self.done: list[tuple[str, str]] = []
        self.specs: dict[str, InstanceSpec] = {}
        self.reserved: set[AttemptRef] = set()
        self.kept: dict[InstanceRef, FakeRunner] = {}

    async def nodes(self) -> Sequence[ClusterNode]:
        return [ClusterNode(Node(f"node-{at}", 1, 1.0, 1024), f"10.0.0.{at}") for at in (1, 2)]

    async def reserve(self, attempt: AttemptRef, placements: Sequence[InstancePlacement]) -> None:
        if ("reserve", "") in self.refused:
            raise Unavailable("There is no room.")
        self.reserved.add(attempt)

    async def runners(
        self, attempt: AttemptRef, placements: Sequence[InstancePlacement]
    ) -> Mapping[InstanceRef, RemoteRunner]:
        if self.is_away:
            raise Unavailable("The cluster is away.")
        return {
            placement.instance: self.kept.setdefault(placement.instance, FakeRunner(self, placement.instance))
            for placement in placements
        }

    async def release(self, attempt: AttemptRef) -> None:
        if self.is_away:
            raise Unavailable("The cluster is away.")
        self.reserved.discard(attempt)

    async def close(self) -> None: ...


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


class YardSide:
    """The yard's side: its folders, and proxies over them."""

    def __init__(self, folder: Path, cluster: FakeCluster) -> None:
        self.jobs, self.folder, self.cluster = folder / "jobs", folder / "engine", cluster

    @asynccontextmanager
    async def proxy(self) -> AsyncIterator[ClusterProxy]:
        proxy = ClusterProxy(self.cluster, jobs=self.jobs, folder=self.folder, timeouts=TIMEOUTS)
        await proxy.open()
        yield proxy
        await proxy.close()

    def instance(self, name: str) -> InstanceRef:
        return InstanceRef(ATTEMPT, name)

    def states(self) -> list[RemoteState | None]:
        return [read_remote_state(self.instance(name).folder(self.jobs)) for name in NAMES]

    @property
    def live(self) -> list[AttemptRef]:
        return [entry.attempt for entry in AttemptRegister.of(self.folder).entries()]


@pytest.fixture
def yard(tmp_path: Path, cluster: FakeCluster) -> YardSide:
    yard = YardSide(tmp_path, cluster)
    for number, spec in enumerate(attempt_specs(SampleEnvironment(tmp_path), job_id="job", count=2), start=1):
        folder = yard.instance(spec.instance).folder(yard.jobs)
        folder.root.mkdir(parents=True)
        write_spec(folder.root, replace(spec, node=f"node-{number}", lease_s=1))
    return yard


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.001)


def test_all_instances_get_the_port_of_the_first_and_the_addresses_of_all(yard: YardSide, cluster: FakeCluster) -> None:
    async def scenario() -> None:
        async with yard.proxy() as proxy:
            await proxy.start(ATTEMPT, NAMES)

    play(scenario())

    for name in NAMES:
        for spec in (cluster.specs[name], read_spec(yard.instance(name).folder(yard.jobs).root)):
            assert (spec.master_port, spec.addresses) == (4000, ("10.0.0.1", "10.0.0.2"))
    assert yard.states() == [RemoteState.ALIVE, RemoteState.ALIVE]


def test_starting_again_starts_nothing_twice_even_with_another_proxy(yard: YardSide, cluster: FakeCluster) -> None:
    async def scenario() -> None:
        async with yard.proxy() as proxy:
            await proxy.start(ATTEMPT, NAMES)
            await proxy.start(ATTEMPT, NAMES)
        async with yard.proxy() as proxy:
            await proxy.start(ATTEMPT, NAMES)

    play(scenario())

    started = sorted(name for method, name in cluster.done if method == "start")
    assert started == ["algo-1", "algo-2"]


@pytest.mark.parametrize("refused", [("reserve", ""), ("prepare", "algo-2"), ("start", "algo-2")])
def test_nothing_is_left_of_an_attempt_that_is_partly_refused(
    yard: YardSide, cluster: FakeCluster, refused: tuple[str, str]
) -> None:
    cluster.refused.add(refused)

    async def scenario() -> None:
        async with yard.proxy() as proxy:
            with pytest.raises(Unavailable):
                await proxy.start(ATTEMPT, NAMES)
            with pytest.raises(Conflict):
                await proxy.start(ATTEMPT, NAMES)

    play(scenario())

    assert not any(runner.is_alive for runner in cluster.kept.values())
    assert not any(state and state.may_run for state in yard.states())
    assert (yard.live, cluster.reserved) == ([], set())


def test_a_restarted_proxy_continues_with_what_runs(yard: YardSide, cluster: FakeCluster) -> None:
    async def scenario() -> None:
        async with yard.proxy() as proxy:
            await proxy.start(ATTEMPT, NAMES)
        async with yard.proxy():
            cluster.kept[yard.instance("algo-2")].is_alive = False
            await until(lambda: yard.states() == [RemoteState.ALIVE, RemoteState.DEAD])

    play(scenario())

    assert yard.live == [ATTEMPT]


def test_an_end_that_a_proxy_did_not_finish_is_finished_by_the_next(yard: YardSide, cluster: FakeCluster) -> None:
    async def scenario() -> None:
        async with yard.proxy() as proxy:
            await proxy.start(ATTEMPT, NAMES)
        ended_marker(yard.jobs, ATTEMPT).touch()
        async with yard.proxy():
            await until(lambda: not yard.live)

    play(scenario())

    assert yard.states() == [RemoteState.DEAD, RemoteState.DEAD]
    assert cluster.reserved == set()


def test_an_end_waits_for_the_lease_of_a_cluster_that_is_away_and_gives_the_room_back_when_it_is_not(
    yard: YardSide, cluster: FakeCluster
) -> None:
    async def scenario() -> None:
        async with yard.proxy() as proxy:
            await proxy.start(ATTEMPT, NAMES)
            cluster.is_away = True
            with pytest.raises(Unavailable, match="out of reach"):
                await proxy.end(ATTEMPT, patience_s=1)
            await until_ended(proxy)
            assert yard.live == [ATTEMPT]
            cluster.is_away = False
            await until(lambda: not yard.live)

    play(scenario())

    assert yard.states() == [RemoteState.NODE_LOST, RemoteState.NODE_LOST]
    assert cluster.reserved == set()


def test_a_second_proxy_waits_until_the_first_is_gone(yard: YardSide) -> None:
    async def scenario() -> None:
        async with yard.proxy():
            second = ClusterProxy(yard.cluster, jobs=yard.jobs, folder=yard.folder)
            opening = asyncio.create_task(second.open())
            await asyncio.wait({opening}, timeout=0.1)
            assert not opening.done()
        await opening
        await second.close()

    play(scenario())


async def until_ended(proxy: ClusterProxy) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                return await proxy.end(ATTEMPT, patience_s=1)
            except Unavailable:
                await asyncio.sleep(0.01)


def test_an_attempt_that_was_ended_is_not_started_after_a_power_cut(yard: YardSide, tmp_path: Path) -> None:
    async def end() -> None:
        async with yard.proxy() as proxy:
            await proxy.start(ATTEMPT, NAMES)
            await proxy.end(ATTEMPT, patience_s=1)

    recorder = DiskRecorder(yard.jobs)
    recorder.run(lambda: play(end()))

    assert ended_marker(recorder.cut_power(tmp_path / "left"), ATTEMPT).exists()
