"""Attempts that have something on nodes, and how their instances stand."""

from pathlib import Path

import pytest

from trainyard.engines.cluster.contract import Seat
from trainyard.engines.cluster.register import Entry, Register
from trainyard.engines.cluster.standing import Standing, standing_of, write_standing
from trainyard.engines.contract import AttemptRef, InstanceRef
from trainyard.foundation.errors import Corrupt
from trainyard.link.contract import LimitSpec
from trainyard.link.folders import InstanceFolder

ATTEMPT = AttemptRef("job-1", 2)
ENTRY = Entry(
    ATTEMPT,
    (
        Seat(InstanceRef(ATTEMPT, "algo-1"), "north", LimitSpec(1.5, 1024, gpus=(0, 3))),
        Seat(InstanceRef(ATTEMPT, "algo-2"), "south", LimitSpec()),
    ),
    lease_s=60,
    doorbell="/yard/doorbell",
)


def test_an_entry_is_found_by_whoever_opens_the_register_next(tmp_path: Path) -> None:
    Register.of(tmp_path).enter(ENTRY)

    assert list(Register.of(tmp_path).entries()) == [ENTRY]
    assert Register.of(tmp_path).has(ATTEMPT)


def test_an_entry_that_is_struck_is_gone(tmp_path: Path) -> None:
    register = Register.of(tmp_path)
    register.enter(ENTRY)

    register.strike(ATTEMPT)
    register.strike(ATTEMPT)

    assert list(register.entries()) == []
    assert not register.has(ATTEMPT)


def test_a_register_without_a_folder_is_empty(tmp_path: Path) -> None:
    assert list(Register.of(tmp_path / "none").entries()) == []


def test_a_write_that_was_cut_short_is_no_entry(tmp_path: Path) -> None:
    register = Register.of(tmp_path)
    register.enter(ENTRY)
    (tmp_path / "live" / "job-2-1.json.new").write_text("{")

    assert list(register.entries()) == [ENTRY]


def test_a_damaged_entry_is_said_to_be_damaged(tmp_path: Path) -> None:
    register = Register.of(tmp_path)
    register.enter(ENTRY)
    (tmp_path / "live" / "job-1-2.json").write_text("{}")

    with pytest.raises(Corrupt, match="job-1-2"):
        list(register.entries())


def test_an_instance_stands_as_was_written_last(tmp_path: Path) -> None:
    folder = InstanceFolder(tmp_path)
    assert standing_of(folder) is None

    write_standing(folder, Standing.ALIVE)
    write_standing(folder, Standing.TAKEN)

    assert standing_of(folder) is Standing.TAKEN
    assert [each for each in Standing if each.may_run] == [Standing.STARTING, Standing.ALIVE]
