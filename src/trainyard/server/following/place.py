"""How much of a job has been told, in a text from which another follower goes on."""

import re
from dataclasses import dataclass
from typing import Self

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.records.contract import ResourceId

_ID_LENGTH = 12  # of a job's id, from its end, where it is random: enough to know a namesake of a deleted job
_CURSOR = re.compile(r"(?P<job>[0-9a-f]{12})(?P<numbers>(?:\.[0-9]{1,19}){3,})")


@dataclass(frozen=True, slots=True)
class Place:
    """What was told: so many statuses and notes, and the logs of the attempts before this one.

    `offsets` says where the log of each instance of this attempt goes on, in the order of the instances.
    """

    job: str
    steps: int = 0
    notes: int = 0
    attempt: int = 1
    offsets: tuple[int, ...] = ()

    @classmethod
    def before(cls, job_id: ResourceId) -> Self:
        """Where nothing has been told yet."""
        return cls(job_id[-_ID_LENGTH:])

    @classmethod
    def parse(cls, cursor: str, job_id: ResourceId) -> Self:
        """The place that a cursor names; InvalidRequest when it is none, or of another job."""
        found = _CURSOR.fullmatch(cursor)
        if found is None:
            raise InvalidRequest("The cursor is none of FollowJob's; give that of the last line, or none.")
        if found["job"] != job_id[-_ID_LENGTH:]:
            raise InvalidRequest("The cursor is of another job, perhaps a deleted one of that name; follow without it.")
        steps, notes, attempt, *offsets = map(int, found["numbers"][1:].split("."))
        return cls(found["job"], steps, notes, attempt, tuple(offsets))

    def __str__(self) -> str:
        return ".".join(map(str, (self.job, self.steps, self.notes, self.attempt, *self.offsets)))
