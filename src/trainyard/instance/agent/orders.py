"""What the yard wants of a running instance, as its mailbox says; and what its lease does, where it has one."""

from collections.abc import Callable

from trainyard.link.contract import INTERRUPTED, LEASE, CommandKind
from trainyard.link.lease import Lease
from trainyard.link.mailbox import Mailbox

POLL_S = 0.1

_KEPT_SHARE = 0.25  # of the grace before the end of a lease: in it checkpoints are stored, when the program has ended


class Ordered(Exception):
    """The instance was told to end before it got to its program."""


class Orders:
    """Reads the mailbox at most every tenth of a second, however often it is asked.

    `stop_reason` is None until a stop is ordered; `is_killed` tells whether everything must end at once. Where there is
    a lease, it is a stop when only the grace is left of it, and `give_up` is called at its end and does not return.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        *,
        monotonic: Callable[[], float],
        lease: Lease | None = None,
        grace_s: float = 0.0,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._mailbox = mailbox
        self._monotonic = monotonic
        self._lease = lease
        self._lease_grace_s = grace_s
        self._give_up = give_up
        self._last = 0
        self._next_read = 0.0
        self.stop_reason: str | None = None
        self.is_killed = False
        self._killed_at = 0.0

    def read(self) -> None:
        """Take notice of what came since."""
        now = self._monotonic()
        if now < self._next_read:
            return
        self._next_read = now + POLL_S
        for command in self._mailbox.read(self._last):
            self._last = command.number
            if command.kind is CommandKind.KILL:
                self._killed_at = self._killed_at if self.is_killed else now
                self.is_killed = True
            elif self.stop_reason in (None, INTERRUPTED):  # a user may stop a job that gives its place away
                self.stop_reason = str(command.payload.get("reason") or "user")
        self._follow_lease()

    @property
    def is_taken(self) -> bool:
        """Whether the instance ends because its lease does. That is never taken back."""
        return self.stop_reason == LEASE

    def grace_s(self, wanted_s: float) -> float:
        """How long a program may go on after a stop: not so long that what it wrote cannot be stored in the lease."""
        if self._lease is None:
            return wanted_s
        return min(wanted_s, max(0.0, self._lease.left_s - self._lease_grace_s * _KEPT_SHARE))

    def is_killed_for(self, seconds: float) -> bool:
        """Whether everything should have ended at once, and so long ago."""
        self.read()
        return self.is_killed and self._monotonic() - self._killed_at >= seconds

    def check(self) -> None:
        """Raise Ordered when the instance shall end; for work that can be given up between two steps."""
        self.read()
        if self.is_killed or self.stop_reason is not None:
            raise Ordered

    def _follow_lease(self) -> None:
        if self._lease is None:
            return
        left_s = self._lease.left_s
        if left_s <= self._lease_grace_s:
            self.stop_reason = LEASE
        if left_s <= 0:
            self._give_up()
