"""A simulated cluster plays what befalls instances and nodes, on a clock that the test moves."""

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from trainyard.engines.contract import InstanceRef, Node
from trainyard.foundation.errors import Unavailable
from trainyard.link.contract import CommandKind, FrameKind
from trainyard.testing.engines.samples import SampleEnvironment, attempt_specs
from trainyard.testing.engines.simulated_cluster import LEASE, MARGIN, SimulatedCluster, SimulatedProgram
from trainyard.testing.simulated_time import SimulatedTime

HOUR = timedelta(hours=1)
NODES = (Node("left", 4, 8.0, 1 << 34, reserves=True), Node("right", 4, 8.0, 1 << 34, reserves=True))


@dataclass
class World:
    cluster: SimulatedCluster
    clock: SimulatedTime
    told: list[str]
    folder: Path

    def start(self, node: str = "left", *, attempt: int = 1) -> InstanceRef:
        specs = attempt_specs(SampleEnvironment(self.folder / "objects"), job_id="job", attempt=attempt)
        (instance,) = self.cluster.start([replace(spec, node=node) for spec in specs])
        self.told.clear()
        return instance

    def after(self, passed: timedelta) -> None:
        self.clock.forward(passed.total_seconds())
        self.cluster.play()

    def outcome(self, instance: InstanceRef) -> str:
        last = self.cluster.reports(instance, 0).frames[-1]
        return str(last.payload["outcome"]) if last.kind is FrameKind.ENDED else ""


@pytest.fixture
def world(tmp_path: Path) -> World:
    clock, told = SimulatedTime(), list[str]()
    cluster = SimulatedCluster(
        tmp_path / "jobs", nodes=NODES, plot=lambda _: SimulatedProgram(HOUR), clock=clock, tell=told.append
    )
    return World(cluster, clock, told, tmp_path)


def test_an_instance_ends_when_its_time_is_over_and_the_yard_is_woken(world: World) -> None:
    instance = world.start()
    world.after(HOUR - timedelta(seconds=1))
    assert world.cluster.is_alive(instance)
    assert world.told == []

    world.after(timedelta(seconds=1))

    assert world.outcome(instance) == "completed"
    assert not world.cluster.is_alive(instance)
    assert world.told == ["job"]


def test_a_node_that_is_cut_off_is_no_capacity_but_its_instances_are_not_dead_before_their_lease(world: World) -> None:
    instance = world.start()
    world.cluster.cut_off("left")
    world.after(LEASE + MARGIN - timedelta(seconds=1))

    assert [node.name for node in world.cluster.capacity().nodes] == ["right"]
    assert world.cluster.is_alive(instance)
    with pytest.raises(Unavailable, match="may still run"):
        world.cluster.end(instance.attempt)

    world.after(timedelta(seconds=1))

    assert not world.cluster.is_alive(instance)
    assert world.cluster.has_lost_node(instance)
    assert world.outcome(instance) == ""
    world.cluster.end(instance.attempt)


def test_a_node_that_is_back_in_time_tells_what_happened_meanwhile(world: World) -> None:
    instance = world.start()
    world.after(HOUR - timedelta(minutes=1))
    world.cluster.cut_off("left")
    world.after(timedelta(minutes=2))
    assert world.outcome(instance) == ""

    world.cluster.join(NODES[0])

    assert world.outcome(instance) == "completed"
    world.after(HOUR)
    assert not world.cluster.has_lost_node(instance)


def test_a_command_reaches_a_node_when_it_is_back(world: World) -> None:
    instance = world.start()
    world.cluster.cut_off("left")
    world.cluster.command(instance, CommandKind.STOP, {"reason": "user"})
    assert world.cluster.is_alive(instance)

    world.cluster.join(NODES[0])

    assert world.outcome(instance) == "stopped"


def test_the_next_attempt_does_only_what_no_checkpoint_has(world: World) -> None:
    lost = world.start()
    world.after(timedelta(minutes=25))
    world.cluster.cut_off("left")
    world.after(LEASE + MARGIN)
    world.cluster.end(lost.attempt)

    told_to_go = world.start("right", attempt=2)  # goes on from the minute 20
    world.after(timedelta(minutes=15))
    world.cluster.command(told_to_go, CommandKind.STOP, {"reason": "interrupted"})
    world.cluster.end(told_to_go.attempt)

    last = world.start("right", attempt=3)  # goes on from the minute 35
    world.after(timedelta(minutes=24))
    assert world.cluster.is_alive(last)
    world.after(timedelta(minutes=1))
    assert world.outcome(last) == "completed"
