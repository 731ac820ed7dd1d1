"""What waiting for a job may end with."""

from collections.abc import Sequence

from trainyard.foundation.errors import TrainyardError


class UnexpectedStatusException(TrainyardError):
    """A job ended otherwise than was waited for. `str` of it has the job's name and the reason."""

    def __init__(self, message: str, allowed_statuses: Sequence[str], actual_status: str) -> None:
        super().__init__(message)
        self.allowed_statuses, self.actual_status = tuple(allowed_statuses), actual_status


class CapacityError(UnexpectedStatusException):
    """A job failed because there was no room for it."""
