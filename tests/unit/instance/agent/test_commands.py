"""Commands from the mailbox and the lease."""

from pathlib import Path

import pytest

from trainyard.instance.agent.commands import POLL_S, CommandReader, StopRequested
from trainyard.link.contract import LEASE, CommandKind
from trainyard.link.lease import Lease, stamp
from trainyard.link.mailbox import Mailbox


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += POLL_S
        return self.now


@pytest.fixture
def mailbox(tmp_path: Path) -> Mailbox:
    return Mailbox(tmp_path / "mailbox")


def test_without_commands_nothing_stops(mailbox: Mailbox) -> None:
    orders = CommandReader(mailbox, monotonic=Hands())
    orders.check()
    assert orders.stop_reason is None
    assert not orders.is_killed


def test_a_stop_has_the_reason_it_was_first_given(mailbox: Mailbox) -> None:
    orders = CommandReader(mailbox, monotonic=Hands())
    mailbox.put(CommandKind.STOP, {"reason": "max_wait"})
    mailbox.put(CommandKind.STOP, {"reason": "user"})
    with pytest.raises(StopRequested):
        orders.check()
    assert orders.stop_reason == "max_wait"


def test_a_stop_wins_over_an_interruption_whose_results_nobody_would_keep(mailbox: Mailbox) -> None:
    orders = CommandReader(mailbox, monotonic=Hands())
    mailbox.put(CommandKind.STOP, {"reason": "interrupted"})
    orders.poll()
    assert orders.stop_reason == "interrupted"
    mailbox.put(CommandKind.STOP, {"reason": "user"})
    orders.poll()
    assert orders.stop_reason == "user"


def test_a_stop_without_a_reason_counts_as_the_users(mailbox: Mailbox) -> None:
    mailbox.put(CommandKind.STOP)
    orders = CommandReader(mailbox, monotonic=Hands())
    orders.poll()
    assert orders.stop_reason == "user"


def test_a_kill_may_follow_a_stop(mailbox: Mailbox) -> None:
    orders = CommandReader(mailbox, monotonic=Hands())
    mailbox.put(CommandKind.STOP, {"reason": "user"})
    orders.poll()
    assert not orders.is_killed
    mailbox.put(CommandKind.KILL)
    orders.poll()
    assert orders.is_killed


def test_commands_about_profiling_stop_nothing_and_are_taken_once(mailbox: Mailbox) -> None:
    commands = CommandReader(mailbox, monotonic=Hands())
    mailbox.put(CommandKind.PROFILE, {"interval_ms": 100})
    mailbox.put(CommandKind.PROFILE, {"steps": 5})
    commands.check()
    assert [dict(each.payload) for each in commands.take_profiling()] == [{"interval_ms": 100}, {"steps": 5}]
    assert commands.take_profiling() == []


def test_the_latest_commands_say_how_to_profile(mailbox: Mailbox) -> None:
    commands = CommandReader(mailbox, monotonic=Hands())
    for payload in ({"interval_ms": 100, "is_exported": True}, {"interval_ms": 200}):
        mailbox.put(CommandKind.PROFILE, payload)
    commands.check()
    assert commands.profiler_changes == {"interval_ms": 200, "is_exported": True}


def test_the_mailbox_is_not_read_more_often_than_needed(mailbox: Mailbox) -> None:
    now = 100.0
    orders = CommandReader(mailbox, monotonic=lambda: now)
    orders.poll()
    mailbox.put(CommandKind.KILL)
    orders.poll()
    assert not orders.is_killed
    now += POLL_S
    orders.poll()
    assert orders.is_killed


def test_a_kill_counts_from_its_first_command(mailbox: Mailbox) -> None:
    orders = CommandReader(mailbox, monotonic=Hands())
    assert not orders.is_killed_for(0)
    mailbox.put(CommandKind.KILL)
    assert orders.is_killed_for(0)
    assert not orders.is_killed_for(10 * POLL_S)
    mailbox.put(CommandKind.KILL)
    for _ in range(8):
        orders.poll()
    assert orders.is_killed_for(10 * POLL_S)


class Ended(BaseException):
    """Stands for the exit of the process."""


def end() -> None:
    raise Ended


@pytest.fixture
def lease(tmp_path: Path) -> Lease:
    return Lease(tmp_path / "lease")


def leased(mailbox: Mailbox, lease: Lease, *, left_s: float) -> CommandReader:
    """A reader in the last seconds of a lease of one minute, with a grace period of twenty seconds."""
    seconds, _, boot = stamp().partition("@")
    lease.renew(f"{float(seconds) + left_s - 60:.3f}@{boot}", 60)
    return CommandReader(mailbox, monotonic=Hands(), lease=lease, grace_s=20, give_up=end)


def test_a_lease_that_still_runs_stops_nothing(mailbox: Mailbox, lease: Lease) -> None:
    orders = leased(mailbox, lease, left_s=50)
    orders.check()
    assert not orders.is_lease_ending
    assert orders.grace_s(10) == 10


def test_when_only_the_grace_is_left_of_a_lease_the_instance_stops(mailbox: Mailbox, lease: Lease) -> None:
    orders = leased(mailbox, lease, left_s=19)
    with pytest.raises(StopRequested):
        orders.check()
    assert orders.is_lease_ending
    assert orders.stop_reason == LEASE
    assert not orders.is_killed


def test_a_stop_by_the_lease_is_final(mailbox: Mailbox, lease: Lease) -> None:
    orders = leased(mailbox, lease, left_s=19)
    orders.poll()
    lease.renew(stamp(), 60)
    mailbox.put(CommandKind.STOP, {"reason": "user"})
    orders.poll()
    assert orders.is_lease_ending


def test_a_program_ends_early_enough_for_its_checkpoints_to_be_stored_in_the_lease(
    mailbox: Mailbox, lease: Lease
) -> None:
    orders = leased(mailbox, lease, left_s=19)
    assert orders.grace_s(120) == pytest.approx(14, abs=0.5)
    assert orders.grace_s(5) == 5


def test_at_the_end_of_the_lease_the_agent_ends_at_once(mailbox: Mailbox, lease: Lease) -> None:
    orders = leased(mailbox, lease, left_s=-1)
    with pytest.raises(Ended):
        orders.poll()
