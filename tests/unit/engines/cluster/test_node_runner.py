"""What a runner tells of an agent that it looks at; whole visits are in the contract suite."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from trainyard.engines.cluster.mirror import MirrorUpdate, collect_update
from trainyard.engines.cluster.node_runner import NodeRunner
from trainyard.engines.contract import InstanceRef
from trainyard.engines.local import LocalEngine
from trainyard.link.contract import FrameKind
from trainyard.link.folders import InstanceFolder
from trainyard.link.port_blocks import ENGINE, hold_block
from trainyard.link.specs import write_spec
from trainyard.link.spool import SpoolWriter
from trainyard.testing.engines.samples import SampleEnvironment, attempt_specs


def test_an_agent_that_ends_while_it_is_looked_at_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (spec,) = attempt_specs(SampleEnvironment(tmp_path))
    instance = InstanceRef.of(spec)
    engine = PlayedEngine(tmp_path / "jobs", tmp_path / "agents", forks=False)
    runner = NodeRunner(tmp_path, instance, engine=engine)
    folder = instance.folder(tmp_path / "jobs")
    folder.root.mkdir(parents=True)
    write_spec(folder.root, spec)

    def end_after_reading(folder: InstanceFolder, known: Mapping[str, int], *, limit_bytes: int) -> MirrorUpdate:
        found = collect_update(folder, known, limit_bytes=limit_bytes)
        if engine.has_agent:
            with SpoolWriter(folder.spool) as spool:
                spool.append(FrameKind.ENDED, {"outcome": "completed"}, at_us=1)
            engine.has_agent = False
        return found

    monkeypatch.setattr("trainyard.engines.cluster.node_runner.collect_update", end_after_reading)
    first, second = runner.pull({}, (), wait_s=0), runner.pull({}, (), wait_s=0)

    assert (first.is_alive, [chunk.path for chunk in first.chunks]) == (True, [])
    assert (second.is_alive, [chunk.path for chunk in second.chunks]) == (False, ["spool"])


def test_the_ports_of_an_attempt_are_free_when_it_has_ended(tmp_path: Path) -> None:
    (spec,) = attempt_specs(SampleEnvironment(tmp_path))
    runner = NodeRunner(tmp_path, InstanceRef.of(spec), engine=PlayedEngine(tmp_path / "jobs", tmp_path / "agents"))
    port = runner.prepare(spec).port
    assert hold_block(port, ENGINE) is None, "somebody else could have them"

    runner.end(patience_s=1)

    free = hold_block(port, ENGINE)
    assert free is not None
    free.close()


class PlayedEngine(LocalEngine):
    """Stands for one whose agent ends when the test says so."""

    has_agent = True

    def make_ready(self) -> None:
        """Nothing: it starts no agent."""

    def is_alive(self, instance: InstanceRef) -> bool:
        return self.has_agent
