"""Reads the commands that the yard puts into the mailbox of an instance, and watches the lease if there is one."""

from collections.abc import Callable, Sequence

from trainyard.link.contract import INTERRUPTED, LEASE, Command, CommandKind
from trainyard.link.lease import Lease
from trainyard.link.mailbox import Mailbox

POLL_S = 0.1

# This part of the grace period at the end of a lease is reserved for storing checkpoints after the program has ended.
_STORING_SHARE = 0.25


class StopRequested(Exception):
    """A command or the lease ends the instance."""


class CommandReader:
    """Reads the mailbox at most every tenth of a second, however often it is polled.

    `stop_reason` is None until the instance must stop; with `is_killed` everything must end at once. A lease stops the
    instance when only the grace period is left of it. When it has run out, `give_up` is called and does not return.
    `profiler_changes` has what commands about profiling asked for last, by member.
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
        self._profiling: list[Command] = []
        self.profiler_changes: dict[str, object] = {}

    def poll(self) -> None:
        """Read the commands that have arrived since the last poll."""
        now = self._monotonic()
        if now < self._next_read:
            return
        self._next_read = now + POLL_S
        for command in self._mailbox.read(self._last):
            self._last = command.number
            if command.kind is CommandKind.KILL:
                self._killed_at = self._killed_at if self.is_killed else now
                self.is_killed = True
            elif command.kind is CommandKind.PROFILE:
                self._profiling.append(command)
                self.profiler_changes.update(command.payload)
            elif self.stop_reason in (None, INTERRUPTED):
                # A user may also stop a job that is being interrupted.
                self.stop_reason = str(command.payload.get("reason") or "user")
        self._check_lease()

    @property
    def is_lease_ending(self) -> bool:
        """Whether the instance must stop because its lease is about to end. Never becomes False again."""
        return self.stop_reason == LEASE

    def grace_s(self, wanted_s: float) -> float:
        """How long a program may run after a stop, short enough to store its files before the lease ends."""
        if self._lease is None:
            return wanted_s
        return min(wanted_s, max(0.0, self._lease.left_s - self._lease_grace_s * _STORING_SHARE))

    def take_profiling(self) -> Sequence[Command]:
        """Return the commands about profiling that have arrived since the last call, in order."""
        taken, self._profiling = self._profiling, []
        return taken

    def is_killed_for(self, seconds: float) -> bool:
        """Whether a kill command arrived at least this long ago."""
        self.poll()
        return self.is_killed and self._monotonic() - self._killed_at >= seconds

    def check(self) -> None:
        """Raise StopRequested when the instance must end. For work that can be abandoned between two steps."""
        self.poll()
        if self.is_killed or self.stop_reason is not None:
            raise StopRequested

    def _check_lease(self) -> None:
        if self._lease is None:
            return
        left_s = self._lease.left_s
        if left_s <= self._lease_grace_s:
            self.stop_reason = LEASE
        if left_s <= 0:
            self._give_up()
