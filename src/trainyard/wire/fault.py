"""AWS faults: the exception that carries an AWS error code, and the tables that map our errors to codes."""

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

    `headers` are sent with it: a 304 has no body, so it carries the ETag in a header.
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
    """An AWS code and its status. `member` is the extra member that carries the name of what was not found.

    `words` is AWS's message, with `{name}` as the placeholder of the name; without it, our own message is sent.
    """

    code: str
    status: int = 400
    member: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class FaultTable:
    """Maps our errors to the codes of one AWS service.

    `not_found` and `already_exists` have rows by kind of resource, which take precedence over `rows`.
    """

    rows: dict[type[TrainyardError], FaultRow]
    not_found: dict[str, FaultRow] = field(default_factory=dict)
    already_exists: dict[str, FaultRow] = field(default_factory=dict)

    def fault(self, error: TrainyardError) -> Fault:
        """Return the fault for an error; a Fault is returned unchanged."""
        if isinstance(error, Fault):
            return error
        row = self._row_of_kind(error)
        for cls in type(error).__mro__:
            row = row or self.rows.get(cls) or _DEFAULTS.get(cls)
        assert row is not None, f"no row for {type(error).__name__}: TrainyardError needs one"
        members = {row.member: error.name} if row.member and isinstance(error, NotFound) else None
        return Fault(row.code, _message(row, error), status=row.status, members=members)

    def _row_of_kind(self, error: TrainyardError) -> FaultRow | None:
        if isinstance(error, NotFound):
            return self.not_found.get(error.kind)
        return self.already_exists.get(error.kind) if isinstance(error, AlreadyExists) else None


def _message(row: FaultRow, error: TrainyardError) -> str:
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
