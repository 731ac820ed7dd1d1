"""The pretended cluster gives room as placement counts it."""

import asyncio
from pathlib import Path

import pytest

from trainyard.engines.cluster.contract import InstancePlacement
from trainyard.engines.contract import AttemptRef, InstanceRef, Node
from trainyard.foundation.errors import Unavailable
from trainyard.link.contract import LimitSpec
from trainyard.testing.engines.loopback import LoopbackCluster

NODE = Node("north", slots=1, cpus=2.0, memory_bytes=1024**3)


@pytest.fixture
def cluster(tmp_path: Path) -> LoopbackCluster:
    return LoopbackCluster(tmp_path / "nodes", tmp_path / "agents", [NODE])


def placements(attempt: AttemptRef, count: int) -> list[InstancePlacement]:
    names = [f"algo-{number}" for number in range(1, count + 1)]
    return [InstancePlacement(InstanceRef(attempt, name), NODE.name, LimitSpec()) for name in names]


def test_a_job_that_is_alone_shares_what_slots_there_are(cluster: LoopbackCluster) -> None:
    wide = AttemptRef("wide", 1)

    asyncio.run(cluster.reserve(wide, placements(wide, 2)))


def test_a_job_has_no_room_beside_one_that_has_all_slots(cluster: LoopbackCluster) -> None:
    first, second = AttemptRef("first", 1), AttemptRef("second", 1)
    asyncio.run(cluster.reserve(first, placements(first, 1)))

    with pytest.raises(Unavailable, match="too little free for"):
        asyncio.run(cluster.reserve(second, placements(second, 1)))
