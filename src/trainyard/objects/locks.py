"""Locks by name, for back ends that cannot check and change in one step."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager
from threading import Condition


class NamedLocks:
    """Threads of this process hold names, alone or shared. All names of one call are taken together or waited for."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._shared: Counter[Hashable] = Counter()
        self._alone: set[Hashable] = set()

    @contextmanager
    def holding(self, *, alone: Collection[Hashable] = (), shared: Collection[Hashable] = ()) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._are_free(alone, shared))
            self._alone.update(alone)
            self._shared.update(shared)
        try:
            yield
        finally:
            with self._changed:
                self._alone.difference_update(alone)
                self._shared.subtract(shared)
                self._shared += Counter()  # drops what nobody holds any more
                self._changed.notify_all()

    def _are_free(self, alone: Collection[Hashable], shared: Collection[Hashable]) -> bool:
        if any(name in self._alone for name in (*alone, *shared)):
            return False
        return not any(self._shared[name] for name in alone)
