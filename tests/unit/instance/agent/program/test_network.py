"""The network that the programs of an instance get."""

import json
import os
from pathlib import Path

import pytest

from tests.unit.instance.agent.samples import changed
from trainyard.foundation.files import replace_file
from trainyard.instance.agent.program.network import InstanceNetwork
from trainyard.instance.agent.results.failure import CannotRun
from trainyard.instance.sandbox.contract import SandboxNetwork
from trainyard.link.agent_process import announce_agent
from trainyard.link.contract import InstanceSpec
from trainyard.link.folders import InstanceFolder

SECOND = changed(instance="algo-2", hosts=("algo-1", "algo-2"), is_isolated=True)


class StopWaiting(Exception):
    pass


def network(tmp_path: Path, spec: InstanceSpec, *, patience: int = 3) -> InstanceNetwork:
    """The network of an instance that is stopped after it has waited a few times."""
    waited: list[None] = []

    def check() -> None:
        waited.append(None)
        if len(waited) > patience:
            raise StopWaiting

    return InstanceNetwork(InstanceFolder(tmp_path / spec.instance), spec, check=check)


def first_instance(tmp_path: Path) -> InstanceFolder:
    folder = InstanceFolder(tmp_path / "algo-1")
    folder.root.mkdir()
    return folder


def test_a_job_that_is_not_isolated_has_the_network_of_the_machine(tmp_path: Path) -> None:
    assert network(tmp_path, changed()).for_program(None) is None


def test_a_single_instance_and_what_is_installed_for_several_are_alone(tmp_path: Path) -> None:
    assert network(tmp_path, changed(is_isolated=True)).for_program(None) == SandboxNetwork()
    assert network(tmp_path, SECOND).for_program(None, is_lone=True) == SandboxNetwork()


def test_an_instance_opens_what_the_first_one_has_made(tmp_path: Path) -> None:
    first = first_instance(tmp_path)
    announce_agent(first.root)  # this process acts as its agent
    kinds = ("mnt", "net", "uts", "user")  # all different, to distinguish them
    held = {kind: os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in kinds}
    told = {"bridge": held["mnt"], "instances": [held["net"], held["uts"]], "owner": [held["user"]]}
    replace_file(first.network, json.dumps(told).encode())
    try:
        found = network(tmp_path, SECOND).for_program(None)
        assert found is not None
        links = [str(Path(f"/proc/self/fd/{each}").readlink()) for each in found.descriptors]
        assert [link.partition(":")[0] for link in links] == ["user", "uts"]
        assert not set(found.descriptors) & set(held.values())
    finally:
        for descriptor in held.values():
            os.close(descriptor)


def test_waiting_for_the_first_instance_ends_when_this_one_must_end(tmp_path: Path) -> None:
    announce_agent(first_instance(tmp_path).root)
    with pytest.raises(StopWaiting):
        network(tmp_path, SECOND).for_program(None)


@pytest.mark.parametrize("has_made", [False, True])
def test_a_first_instance_that_is_gone_is_not_waited_for(tmp_path: Path, has_made: bool) -> None:
    first = first_instance(tmp_path)
    replace_file(first.agent, json.dumps({"pid": os.getpid(), "started": "long ago"}).encode())
    if has_made:
        told = {"bridge": 0, "instances": [0, 0], "owner": []}
        replace_file(first.network, json.dumps(told).encode())
    with pytest.raises(CannotRun, match="algo-1, which creates the network of this isolated job, is gone"):
        network(tmp_path, SECOND).for_program(None)
