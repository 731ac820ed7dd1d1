"""Preconditions of writes, and named locks for back ends that cannot check and write in one step."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager
from threading import Condition

from trainyard.foundation.locations import Location
from trainyard.objects.contract import Precondition, PreconditionFailed


def check_precondition(precondition: Precondition, where: Location, *, etag: str | None) -> None:
    """Raise PreconditionFailed unless it holds for the object at `where`; `etag` is None if there is none."""
    if precondition.absent and etag is not None:
        raise PreconditionFailed(f"{where} already exists, with the ETag {etag}.")
    check_etag(precondition.etag, where, etag=etag)


def check_etag(required: str | None, where: Location, *, etag: str | None) -> None:
    if required is None or required == etag:
        return
    state = "does not exist" if etag is None else f"has the ETag {etag}"
    raise PreconditionFailed(f"{where} {state}; the request requires the ETag {required}.")


class NamedLocks:
    """Exclusive and shared locks by name, between threads. All names of one call are acquired together."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._shared: Counter[Hashable] = Counter()
        self._exclusive: set[Hashable] = set()

    @contextmanager
    def holding(self, *, exclusive: Collection[Hashable] = (), shared: Collection[Hashable] = ()) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._are_free(exclusive, shared))
            self._exclusive.update(exclusive)
            self._shared.update(shared)
        try:
            yield
        finally:
            with self._changed:
                self._exclusive.difference_update(exclusive)
                self._shared.subtract(shared)
                # Drops names that nobody holds.
                self._shared += Counter()
                self._changed.notify_all()

    def _are_free(self, exclusive: Collection[Hashable], shared: Collection[Hashable]) -> bool:
        if any(name in self._exclusive for name in (*exclusive, *shared)):
            return False
        return not any(self._shared[name] for name in exclusive)
