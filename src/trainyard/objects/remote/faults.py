"""What can go wrong with a request to the remote, besides that it cannot be used at all."""

from trainyard.foundation.errors import Unavailable


class Absent(Unavailable):
    """There is no object at the path; what the caller of a store is told is up to who asked for it."""

    def __init__(self, path: str) -> None:
        super().__init__(f"The remote store has lost {path}.")


class Moved(Unavailable):
    """The object at the path is not the one that was demanded."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was changed in the remote store at this moment. Try again.")


class Passing(Unavailable):
    """Something that may be over in a moment. `what` goes on from "the remote store"."""

    def __init__(self, what: str) -> None:
        super().__init__(f"The remote store cannot be used now: it {what}. Try again.")
        self.what = what
