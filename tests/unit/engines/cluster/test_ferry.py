"""Attempts that a ferry starts and ends, over keepers that answer as the test says."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.disk_recorder import DiskRecorder
from trainyard.engines.cluster.contract import ClusterNode, Prepared, Pulled, RemoteKeeper, Seat, Unreachable
from trainyard.engines.cluster.ferry import Ferry, ended_file
from trainyard.engines.cluster.register import Register
from trainyard.engines.cluster.route import Patience
from trainyard.engines.cluster.standing import Standing, standing_of
from trainyard.engines.contract import AttemptRef, InstanceRef, Node
from trainyard.foundation.errors import Conflict, Unavailable
from trainyard.link.contract import InstanceSpec
from trainyard.link.specs import read_spec, write_spec
from trainyard.testing.engines.samples import Surroundings, attempt_specs

PATIENCE = Patience(poll=0.01, margin=0, soonest=0.001, latest=0.001)
ATTEMPT = AttemptRef("job", 1)
NAMES = ("algo-1", "algo-2")


class Keeping:
    """The keeper of one instance, of which the cluster says whether it is reached and what it refuses."""

    def __init__(self, cluster: "Clustered", instance: InstanceRef) -> None:
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

    def prepare(self, spec: InstanceSpec) -> Prepared:
        self.cluster.specs[spec.instance] = spec
        return Prepared(4000 if spec.instance == spec.hosts[0] else 0, "stamp")

    def start(self, spec: InstanceSpec, *, heard: str) -> None:
        assert heard == "stamp"
        self.cluster.specs[spec.instance] = spec
        self.is_alive = True

    def pull(self, cursors: Mapping[str, int], commands: Sequence[Any], *, wait_s: float, heard: str) -> Pulled:
        return Pulled((), self.is_alive, is_all=True, stamp="stamp")

    def end(self, *, patience_s: float) -> None:
        self.is_alive = False

    def forget(self) -> None: ...


class Clustered:
    """A `Cluster` of two nodes."""

    def __init__(self) -> None:
        self.is_away = False
        self.refused: set[tuple[str, str]] = set()
        self.done: list[tuple[str, str]] = []
        self.specs: dict[str, InstanceSpec] = {}
        self.reserved: set[AttemptRef] = set()
        self.kept: dict[InstanceRef, Keeping] = {}

    async def nodes(self) -> Sequence[ClusterNode]:
        return [ClusterNode(Node(f"node-{at}", 1, 1.0, 1024), f"10.0.0.{at}") for at in (1, 2)]

    async def reserve(self, attempt: AttemptRef, seats: Sequence[Seat]) -> None:
        if ("reserve", "") in self.refused:
            raise Unavailable("There is no room.")
        self.reserved.add(attempt)

    async def keepers(self, attempt: AttemptRef, seats: Sequence[Seat]) -> Mapping[InstanceRef, RemoteKeeper]:
        if self.is_away:
            raise Unavailable("The cluster is away.")
        return {seat.instance: self.kept.setdefault(seat.instance, Keeping(self, seat.instance)) for seat in seats}

    async def release(self, attempt: AttemptRef) -> None:
        if self.is_away:
            raise Unavailable("The cluster is away.")
        self.reserved.discard(attempt)

    async def close(self) -> None: ...


@pytest.fixture
def cluster() -> Clustered:
    return Clustered()


class Shore:
    """The yard's side: its folders, and ferries over them."""

    def __init__(self, folder: Path, cluster: Clustered) -> None:
        self.jobs, self.folder, self.cluster = folder / "jobs", folder / "engine", cluster

    @asynccontextmanager
    async def ferry(self) -> AsyncIterator[Ferry]:
        ferry = Ferry(self.cluster, jobs=self.jobs, folder=self.folder, patience=PATIENCE)
        await ferry.open()
        yield ferry
        await ferry.close()

    def instance(self, name: str) -> InstanceRef:
        return InstanceRef(ATTEMPT, name)

    def standings(self) -> list[Standing | None]:
        return [standing_of(self.instance(name).folder(self.jobs)) for name in NAMES]

    @property
    def live(self) -> list[AttemptRef]:
        return [entry.attempt for entry in Register.of(self.folder).entries()]


@pytest.fixture
def shore(tmp_path: Path, cluster: Clustered) -> Shore:
    shore = Shore(tmp_path, cluster)
    for number, spec in enumerate(attempt_specs(Surroundings(tmp_path), job_id="job", count=2), start=1):
        folder = shore.instance(spec.instance).folder(shore.jobs)
        folder.root.mkdir(parents=True)
        write_spec(folder.root, replace(spec, node=f"node-{number}", lease_s=1))
    return shore


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.001)


def test_all_instances_get_the_port_of_the_first_and_the_addresses_of_all(shore: Shore, cluster: Clustered) -> None:
    async def scenario() -> None:
        async with shore.ferry() as ferry:
            await ferry.start(ATTEMPT, NAMES)

    play(scenario())

    for name in NAMES:
        for spec in (cluster.specs[name], read_spec(shore.instance(name).folder(shore.jobs).root)):
            assert (spec.master_port, spec.addresses) == (4000, ("10.0.0.1", "10.0.0.2"))
    assert shore.standings() == [Standing.ALIVE, Standing.ALIVE]


def test_starting_again_starts_nothing_twice_also_by_another_ferry(shore: Shore, cluster: Clustered) -> None:
    async def scenario() -> None:
        async with shore.ferry() as ferry:
            await ferry.start(ATTEMPT, NAMES)
            await ferry.start(ATTEMPT, NAMES)
        async with shore.ferry() as ferry:
            await ferry.start(ATTEMPT, NAMES)

    play(scenario())

    started = sorted(name for method, name in cluster.done if method == "start")
    assert started == ["algo-1", "algo-2"]


@pytest.mark.parametrize("refused", [("reserve", ""), ("prepare", "algo-2"), ("start", "algo-2")])
def test_of_an_attempt_that_is_refused_in_part_nothing_is_left(
    shore: Shore, cluster: Clustered, refused: tuple[str, str]
) -> None:
    cluster.refused.add(refused)

    async def scenario() -> None:
        async with shore.ferry() as ferry:
            with pytest.raises(Unavailable):
                await ferry.start(ATTEMPT, NAMES)
            with pytest.raises(Conflict):
                await ferry.start(ATTEMPT, NAMES)

    play(scenario())

    assert not any(keeping.is_alive for keeping in cluster.kept.values())
    assert not any(standing and standing.may_run for standing in shore.standings())
    assert (shore.live, cluster.reserved) == ([], set())


def test_a_ferry_made_anew_goes_on_with_what_runs_without_being_told(shore: Shore, cluster: Clustered) -> None:
    async def scenario() -> None:
        async with shore.ferry() as ferry:
            await ferry.start(ATTEMPT, NAMES)
        async with shore.ferry():
            cluster.kept[shore.instance("algo-2")].is_alive = False
            await until(lambda: shore.standings() == [Standing.ALIVE, Standing.DEAD])

    play(scenario())

    assert shore.live == [ATTEMPT]


def test_an_end_that_a_ferry_did_not_live_to_see_is_seen_by_the_next(shore: Shore, cluster: Clustered) -> None:
    async def scenario() -> None:
        async with shore.ferry() as ferry:
            await ferry.start(ATTEMPT, NAMES)
        ended_file(shore.jobs, ATTEMPT).touch()
        async with shore.ferry():
            await until(lambda: not shore.live)

    play(scenario())

    assert shore.standings() == [Standing.DEAD, Standing.DEAD]
    assert cluster.reserved == set()


def test_an_end_waits_for_the_lease_of_a_cluster_that_is_away_and_gives_the_room_back_when_it_is_not(
    shore: Shore, cluster: Clustered
) -> None:
    async def scenario() -> None:
        async with shore.ferry() as ferry:
            await ferry.start(ATTEMPT, NAMES)
            cluster.is_away = True
            with pytest.raises(Unavailable, match="out of reach"):
                await ferry.end(ATTEMPT, patience_s=1)
            await until_ended(ferry)
            assert shore.live == [ATTEMPT]
            cluster.is_away = False
            await until(lambda: not shore.live)

    play(scenario())

    assert shore.standings() == [Standing.TAKEN, Standing.TAKEN]
    assert cluster.reserved == set()


def test_a_second_ferry_waits_until_the_first_is_gone(shore: Shore) -> None:
    async def scenario() -> None:
        async with shore.ferry():
            second = Ferry(shore.cluster, jobs=shore.jobs, folder=shore.folder)
            opening = asyncio.create_task(second.open())
            await asyncio.wait({opening}, timeout=0.1)
            assert not opening.done()
        await opening
        await second.close()

    play(scenario())


async def until_ended(ferry: Ferry) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                return await ferry.end(ATTEMPT, patience_s=1)
            except Unavailable:
                await asyncio.sleep(0.01)


def test_an_attempt_that_was_ended_is_not_started_after_a_power_cut(shore: Shore, tmp_path: Path) -> None:
    async def end() -> None:
        async with shore.ferry() as ferry:
            await ferry.start(ATTEMPT, NAMES)
            await ferry.end(ATTEMPT, patience_s=1)

    recorder = DiskRecorder(shore.jobs)
    recorder.run(lambda: play(end()))

    assert ended_file(recorder.cut_power(tmp_path / "left"), ATTEMPT).exists()
