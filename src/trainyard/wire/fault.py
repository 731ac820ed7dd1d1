"""AWS faults: the one exception that carries a code of theirs, and the table that gives ours one."""

from dataclasses import dataclass, field

from trainyard.foundation.errors import (
    AlreadyExists,
    Conflict,
    Corrupt,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    NotPermitted,
    TrainyardError,
    Unavailable,
)


class Fault(TrainyardError):
    """An error with an AWS code, an HTTP status, and the extra members some codes carry (`BucketName`, `Key`).

    `headers` are sent with it: a 304 tells the ETag by them, and has no body to tell it in.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = 400,
        members: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.status, self.members, self.headers = code, status, members or {}, headers or {}


@dataclass(frozen=True, slots=True)
class FaultRow:
    """A code and its status. `member` is the extra member that carries the name of what was not found.

    `words` is the sentence that AWS has for it, with `{name}` where the name goes; without one, ours is given.
    """

    code: str
    status: int = 400
    member: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class FaultTable:
    """How one service words our errors.

    `kinds` are the exceptions for the NotFound of one kind, `taken` those for its AlreadyExists.
    """

    rows: dict[type[TrainyardError], FaultRow]
    kinds: dict[str, FaultRow] = field(default_factory=dict)
    taken: dict[str, FaultRow] = field(default_factory=dict)

    def fault(self, error: TrainyardError) -> Fault:
        if isinstance(error, Fault):
            return error
        row = self._row_of_kind(error)
        for cls in type(error).__mro__:
            row = row or self.rows.get(cls) or _DEFAULTS.get(cls)
        assert row is not None, f"no row for {type(error).__name__}: the root has one"
        members = {row.member: error.name} if row.member and isinstance(error, NotFound) else None
        return Fault(row.code, _words(row, error), status=row.status, members=members)

    def _row_of_kind(self, error: TrainyardError) -> FaultRow | None:
        if isinstance(error, NotFound):
            return self.kinds.get(error.kind)
        return self.taken.get(error.kind) if isinstance(error, AlreadyExists) else None


def _words(row: FaultRow, error: TrainyardError) -> str:
    if row.words and isinstance(error, NotFound | AlreadyExists):
        return row.words.replace("{name}", error.name)
    return error.message


_DEFAULTS: dict[type, FaultRow] = {
    NotFound: FaultRow("ResourceNotFoundException"),
    AlreadyExists: FaultRow("ResourceInUse"),
    InvalidRequest: FaultRow("ValidationException"),
    Conflict: FaultRow("ConflictException"),
    LimitExceeded: FaultRow("ResourceLimitExceeded"),
    NotPermitted: FaultRow("AccessDeniedException", 403),
    Unavailable: FaultRow("ServiceUnavailable", 503),
    Corrupt: FaultRow("InternalFailure", 500),
    TrainyardError: FaultRow("ValidationException"),
}
