"""The mailbox as an instance reads it."""

from pathlib import Path

import pytest

from trainyard.instance.agent.orders import POLL_S, Ordered, Orders
from trainyard.link.contract import CommandKind
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


def test_without_commands_nothing_is_ordered(mailbox: Mailbox) -> None:
    orders = Orders(mailbox, monotonic=Hands())
    orders.check()
    assert orders.stop_reason is None
    assert not orders.is_killed


def test_a_stop_has_the_reason_it_was_first_given(mailbox: Mailbox) -> None:
    orders = Orders(mailbox, monotonic=Hands())
    mailbox.put(CommandKind.STOP, {"reason": "max_wait"})
    mailbox.put(CommandKind.STOP, {"reason": "user"})
    with pytest.raises(Ordered):
        orders.check()
    assert orders.stop_reason == "max_wait"


def test_a_stop_wins_over_an_interruption_whose_results_nobody_would_keep(mailbox: Mailbox) -> None:
    orders = Orders(mailbox, monotonic=Hands())
    mailbox.put(CommandKind.STOP, {"reason": "interrupted"})
    orders.read()
    assert orders.stop_reason == "interrupted"
    mailbox.put(CommandKind.STOP, {"reason": "user"})
    orders.read()
    assert orders.stop_reason == "user"


def test_a_stop_without_a_reason_is_the_users(mailbox: Mailbox) -> None:
    mailbox.put(CommandKind.STOP)
    orders = Orders(mailbox, monotonic=Hands())
    orders.read()
    assert orders.stop_reason == "user"


def test_a_kill_may_follow_a_stop(mailbox: Mailbox) -> None:
    orders = Orders(mailbox, monotonic=Hands())
    mailbox.put(CommandKind.STOP, {"reason": "user"})
    orders.read()
    assert not orders.is_killed
    mailbox.put(CommandKind.KILL)
    orders.read()
    assert orders.is_killed


def test_the_mailbox_is_not_read_more_often_than_needed(mailbox: Mailbox) -> None:
    now = 100.0
    orders = Orders(mailbox, monotonic=lambda: now)
    orders.read()
    mailbox.put(CommandKind.KILL)
    orders.read()
    assert not orders.is_killed
    now += POLL_S
    orders.read()
    assert orders.is_killed


def test_a_kill_counts_from_its_first_order(mailbox: Mailbox) -> None:
    orders = Orders(mailbox, monotonic=Hands())
    assert not orders.is_killed_for(0)
    mailbox.put(CommandKind.KILL)
    assert orders.is_killed_for(0)
    assert not orders.is_killed_for(10 * POLL_S)
    mailbox.put(CommandKind.KILL)
    for _ in range(8):
        orders.read()
    assert orders.is_killed_for(10 * POLL_S)
