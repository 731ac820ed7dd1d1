"""A process group that logs its collectives, so that a rank that has run out of data can still take part with zeros.

Over torch.distributed, every rank must post the collectives of a process group in the same order. An ordered group
counts and logs what is posted. When a rank has called `join`, the others announce their collectives to it, and it takes
part with zeros. Until a rank joins, this costs no communication.
"""

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist

# Collectives wait for each other, so no rank can be further ahead of another than this.
_LOG_LENGTH = 4096


class CollectiveWork(Protocol):
    """A collective in progress, as in torch.distributed."""

    def wait(self) -> Any: ...

    def is_completed(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class PostedCollective:
    """What a rank must know of a collective to take part with zeros. Only sums allow that."""

    # The name of the function, for messages.
    what: str
    is_sum: bool = False
    count: int = 0
    dtype: str = ""
    device: str = ""

    @classmethod
    def of_sum(cls, what: str, tensor: torch.Tensor) -> "PostedCollective":
        return cls(what, True, tensor.numel(), str(tensor.dtype).removeprefix("torch."), tensor.device.type)

    def zeros(self) -> torch.Tensor:
        return torch.zeros(self.count, dtype=getattr(torch, self.dtype), device=self.device)


class OrderedGroup:
    """Posts and logs the collectives of one process group. Safe to share between threads."""

    def __init__(self, name: str, group: dist.ProcessGroup, store: dist.Store) -> None:
        self.name = name
        self.group = group
        self._store = store
        self._lock = threading.Lock()
        self._count = 0
        self._posted = deque[PostedCollective](maxlen=_LOG_LENGTH)
        self._works = deque[CollectiveWork]()
        # The join to which every collective is announced.
        self._announced_join = ""

    @property
    def count(self) -> int:
        """How many collectives this rank has posted."""
        return self._count

    @property
    def is_waiting(self) -> bool:
        """Whether a collective is in progress, perhaps because a rank has joined and does not know about it."""
        with self._lock:
            return any(not work.is_completed() for work in self._works)

    @property
    def is_announcing(self) -> bool:
        return bool(self._announced_join)

    def post(self, entry: PostedCollective, start: Callable[[dist.ProcessGroup], CollectiveWork]) -> CollectiveWork:
        """Start a collective. Raises RuntimeError if a rank that has joined cannot take part in it."""
        with self._lock:
            if self._announced_join:
                self._require_sum(entry)
                self._announce(self._announced_join, self._count, entry)
            work = start(self.group)
            self._log(entry, work)
            return work

    def start_announcing(self, join: str, since: int) -> None:
        """Announce every collective from number `since` on to the ranks in a join, including future ones."""
        with self._lock:
            self._announced_join = join
            first = self._count - len(self._posted)
            for number in range(max(since, first), self._count):
                self._announce(join, number, self._posted[number - first])

    def stop_announcing(self) -> None:
        with self._lock:
            self._announced_join = ""

    def wait_for_posted(self) -> None:
        """Wait until every rank has finished all posted collectives."""
        while self._works:
            self._works.popleft().wait()

    def announce_last(self, join: str, rank: int) -> None:
        """Announce that this rank was the last to join."""
        self._store.set(self._key(join, self._count), json.dumps({"last": rank}))

    def participate(self, join: str) -> int | None:
        """Take part in what the others have posted. Returns the last rank to join once it is known, else None."""
        while self._store.check([self._key(join, self._count)]):
            announcement = json.loads(self._store.get(self._key(join, self._count)))
            if "last" in announcement:
                return int(announcement["last"])
            entry = PostedCollective(**announcement)
            self._require_sum(entry)
            zeros = entry.zeros()
            self.post(entry, lambda group, zeros=zeros: dist.all_reduce(zeros, group=group, async_op=True))  # type: ignore[misc]
        return None

    def _log(self, entry: PostedCollective, work: CollectiveWork) -> None:
        self._count += 1
        self._posted.append(entry)
        while self._works and self._works[0].is_completed():
            self._works.popleft()
        self._works.append(work)

    def _announce(self, join: str, number: int, entry: PostedCollective) -> None:
        self._store.set(self._key(join, number), json.dumps(asdict(entry)))

    def _key(self, join: str, number: int) -> str:
        return f"{join}/{self.name}/{number}"

    def _require_sum(self, entry: PostedCollective) -> None:
        if not entry.is_sum:
            raise RuntimeError(
                f"{entry.what} was called after a rank called join, which cannot take part in it. Until all ranks have "
                "joined, only allreduce with Sum or Average, and barrier, are possible."
            )
