"""Every error Trainyard raises on purpose.

    TrainyardError
    ├── NotFound         the named thing does not exist, or not for this caller
    ├── AlreadyExists    the name is taken
    ├── InvalidRequest   the request can never succeed as it stands
    ├── Conflict         the thing is in a state that forbids this
    ├── LimitExceeded    a quota or a size limit is reached
    ├── NotPermitted     the caller is known but may not
    ├── Unavailable      not now; the same request may succeed later
    └── Corrupt          stored data cannot be read back intact

A message says what is wrong, with which value, and what to do.
"""


class TrainyardError(Exception):
    """The root of the tree; `str(error)` is a sentence for the user."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFound(TrainyardError):
    """The named thing does not exist, or not for this caller."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f'There is no {_words(kind)} named "{name}".')
        self.kind, self.name = kind, name


class AlreadyExists(TrainyardError):
    """A living thing of this kind has the name already."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f'A {_words(kind)} named "{name}" already exists.')
        self.kind, self.name = kind, name


class InvalidRequest(TrainyardError):
    """The request can never succeed as it stands."""


class Conflict(TrainyardError):
    """The thing is in a state that forbids what was asked."""

    def __init__(self, kind: str, name: str, why: str) -> None:
        super().__init__(f'{kind[:1].upper()}{kind[1:]} "{name}" {why}.')
        self.kind, self.name, self.why = kind, name, why


class LimitExceeded(TrainyardError):
    """A quota or a size limit is reached."""


class NotPermitted(TrainyardError):
    """The caller is known but may not do this."""


class Unavailable(TrainyardError):
    """Not possible now; the same request may succeed later."""


class Corrupt(TrainyardError):
    """Stored data cannot be read back intact."""


def _words(kind: str) -> str:
    """Return the kind of a resource, such as `training-job`, as it is written in a sentence."""
    return kind.replace("-", " ")
