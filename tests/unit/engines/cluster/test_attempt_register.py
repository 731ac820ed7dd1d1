"""Attempts that have something on nodes, and how their instances stand."""

from pathlib import Path

import pytest

from trainyard.engines.cluster.attempt_register import AttemptRegister, RegisteredAttempt
from trainyard.engines.cluster.contract import InstancePlacement
from trainyard.engines.cluster.remote_state import RemoteState, read_remote_state, write_remote_state
from trainyard.engines.contract import AttemptRef, InstanceRef
from trainyard.foundation.errors import Corrupt
from trainyard.link.contract import LimitSpec
from trainyard.link.folders import InstanceFolder

ATTEMPT = AttemptRef("job-1", 2)
ENTRY = RegisteredAttempt(
    ATTEMPT,
    (
        InstancePlacement(InstanceRef(ATTEMPT, "algo-1"), "north", LimitSpec(1.5, 1024, gpus=(0, 3))),
        InstancePlacement(InstanceRef(ATTEMPT, "algo-2"), "south", LimitSpec()),
    ),
    lease_s=60,
    doorbell="/yard/doorbell",
)


def test_an_entry_is_found_by_whoever_opens_the_register_next(tmp_path: Path) -> None:
    AttemptRegister.of(tmp_path).add(ENTRY)

    assert list(AttemptRegister.of(tmp_path).entries()) == [ENTRY]
    assert AttemptRegister.of(tmp_path).has(ATTEMPT)


def test_an_entry_that_is_struck_is_gone(tmp_path: Path) -> None:
    register = AttemptRegister.of(tmp_path)
    register.add(ENTRY)

    register.remove(ATTEMPT)
    register.remove(ATTEMPT)

    assert list(register.entries()) == []
    assert not register.has(ATTEMPT)


def test_a_register_without_a_folder_is_empty(tmp_path: Path) -> None:
    assert list(AttemptRegister.of(tmp_path / "none").entries()) == []


def test_a_write_that_was_cut_short_is_no_entry(tmp_path: Path) -> None:
    register = AttemptRegister.of(tmp_path)
    register.add(ENTRY)
    (tmp_path / "live" / "job-2-1.json.new").write_text("{")

    assert list(register.entries()) == [ENTRY]


def test_a_damaged_entry_is_corrupt(tmp_path: Path) -> None:
    register = AttemptRegister.of(tmp_path)
    register.add(ENTRY)
    (tmp_path / "live" / "job-1-2.json").write_text("{}")

    with pytest.raises(Corrupt, match="job-1-2"):
        list(register.entries())


def test_an_instance_stands_as_was_written_last(tmp_path: Path) -> None:
    folder = InstanceFolder(tmp_path)
    assert read_remote_state(folder) is None

    write_remote_state(folder, RemoteState.ALIVE)
    write_remote_state(folder, RemoteState.NODE_LOST)

    assert read_remote_state(folder) is RemoteState.NODE_LOST
    assert [each for each in RemoteState if each.may_run] == [RemoteState.STARTING, RemoteState.ALIVE]
