"""The lease of an instance, on the machine's own clock."""

from dataclasses import replace
from pathlib import Path

import pytest

from trainyard.link import lease as leases
from trainyard.link.folders import InstanceFolder
from trainyard.link.lease import Lease, mark_ended_by_lease, may_write, stamp, was_ended_by_lease
from trainyard.testing.engines.samples import SampleEnvironment, attempt_specs


class Machine:
    """A clock that a test moves, on a machine that it starts anew."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.boot = "first"

    def start_anew(self) -> None:
        self.now, self.boot = 5.0, "second"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(leases, "boottime", lambda: machine.now)
    monkeypatch.setattr(leases, "_boot_id", lambda: machine.boot)
    return machine


@pytest.fixture
def folder(tmp_path: Path) -> InstanceFolder:
    return InstanceFolder(tmp_path)


def test_a_lease_counts_from_the_stamp_and_not_from_its_arrival(machine: Machine, folder: InstanceFolder) -> None:
    heard = stamp()
    machine.now += 20

    assert Lease.of(folder).renew(heard, 60)

    assert Lease.of(folder).left_s == pytest.approx(40)


def test_a_renewed_lease_runs_longer_and_never_shorter(machine: Machine, folder: InstanceFolder) -> None:
    lease, early = Lease.of(folder), stamp()
    lease.renew(early, 60)
    machine.now += 30
    lease.renew(stamp(), 60)

    assert lease.renew(early, 60)

    assert lease.left_s == pytest.approx(60)


def test_a_lease_that_has_run_out_never_runs_again(machine: Machine, folder: InstanceFolder) -> None:
    lease = Lease.of(folder)
    lease.renew(stamp(), 60)
    machine.now += 60

    assert lease.left_s == 0
    assert not lease.renew(stamp(), 60)
    assert lease.left_s == 0


@pytest.mark.parametrize("heard", ["", "nonsense", "999999.000@another"])
def test_a_renewal_from_another_boot_starts_no_lease(machine: Machine, folder: InstanceFolder, heard: str) -> None:
    assert not Lease.of(folder).renew(heard, 60)
    assert Lease.of(folder).left_s == 0


def test_a_word_that_comes_too_late_begins_nothing(machine: Machine, folder: InstanceFolder) -> None:
    heard = stamp()
    machine.now += 61

    assert not Lease.of(folder).renew(heard, 60)
    assert not folder.lease.exists()


def test_hearing_nothing_leaves_a_lease_as_it_is(machine: Machine, folder: InstanceFolder) -> None:
    lease = Lease.of(folder)
    lease.renew(stamp(), 60)
    machine.now += 10

    assert lease.renew("", 60)
    assert lease.left_s == pytest.approx(50)


def test_a_lease_ends_with_a_reboot(machine: Machine, folder: InstanceFolder) -> None:
    heard = stamp()
    Lease.of(folder).renew(heard, 60)
    machine.start_anew()

    assert Lease.of(folder).left_s == 0
    assert not Lease.of(folder).renew(heard, 60)
    assert not Lease.of(folder).renew(stamp(), 60)
    assert was_ended_by_lease(folder)


def test_an_instance_is_ended_by_its_lease(machine: Machine, folder: InstanceFolder) -> None:
    assert not was_ended_by_lease(folder)
    Lease.of(folder).renew(stamp(), 60)
    assert not was_ended_by_lease(folder)
    mark_ended_by_lease(folder)
    assert was_ended_by_lease(folder)


def test_nothing_is_written_to_others_in_the_last_second_of_a_lease(machine: Machine, folder: InstanceFolder) -> None:
    (spec,) = attempt_specs(SampleEnvironment(folder.root))
    leased = replace(spec, lease_s=60)
    Lease.of(folder).renew(stamp(), 60)

    assert may_write(folder, leased)
    machine.now += 59
    assert not may_write(folder, leased)
    assert may_write(folder, spec)


def test_a_lease_is_written_only_when_it_is_worth_it(machine: Machine, folder: InstanceFolder) -> None:
    lease = Lease.of(folder)
    lease.renew(stamp(), 60)
    before = folder.lease.stat().st_ctime_ns
    machine.now += 0.1

    lease.renew(stamp(), 60)

    assert folder.lease.stat().st_ctime_ns == before
    assert [path.name for path in folder.root.iterdir()] == ["lease"]
