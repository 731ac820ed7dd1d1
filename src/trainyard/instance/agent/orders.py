"""What the yard wants of a running instance, as its mailbox says."""

from collections.abc import Callable

from trainyard.link.contract import INTERRUPTED, CommandKind
from trainyard.link.mailbox import Mailbox

POLL_S = 0.1


class Ordered(Exception):
    """The instance was told to end before it got to its program."""


class Orders:
    """Reads the mailbox at most every tenth of a second, however often it is asked.

    `stop_reason` is None until a stop is ordered; `is_killed` tells whether everything must end at once.
    """

    def __init__(self, mailbox: Mailbox, *, monotonic: Callable[[], float]) -> None:
        self._mailbox = mailbox
        self._monotonic = monotonic
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

    def is_killed_for(self, seconds: float) -> bool:
        """Whether everything should have ended at once, and so long ago."""
        self.read()
        return self.is_killed and self._monotonic() - self._killed_at >= seconds

    def check(self) -> None:
        """Raise Ordered when the instance shall end; for work that can be given up between two steps."""
        self.read()
        if self.is_killed or self.stop_reason is not None:
            raise Ordered
