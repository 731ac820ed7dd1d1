"""Collectives in an order that all ranks share, and what becomes of them once a rank has run out of data.

Over torch.distributed, the collectives of one process group must be posted in the same order by every rank. A lane is
such a group. It counts what is posted and remembers the last of it, so that a rank that has called `join` can be told
what the others do, and take its part with zeros. As long as nobody has joined, that costs no communication.
"""

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist

_REMEMBERED = 4096  # more than any rank can be ahead of another in collectives that wait for each other


class Work(Protocol):
    """A collective under way, as torch.distributed has it."""

    def wait(self) -> Any: ...

    def is_completed(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One collective, as far as a rank must know it that takes part with zeros."""

    what: str  # the name of the function, for messages
    is_sum: bool = False  # others cannot be joined
    count: int = 0
    dtype: str = ""
    device: str = ""

    @classmethod
    def of_sum(cls, what: str, tensor: torch.Tensor) -> "Entry":
        return cls(what, True, tensor.numel(), str(tensor.dtype).removeprefix("torch."), tensor.device.type)

    def zeros(self) -> torch.Tensor:
        return torch.zeros(self.count, dtype=getattr(torch, self.dtype), device=self.device)


class Lane:
    """The collectives of one process group. Threads may post at the same time."""

    def __init__(self, name: str, group: dist.ProcessGroup, store: dist.Store) -> None:
        self.name = name
        self.group = group
        self._store = store
        self._lock = threading.Lock()
        self._count = 0
        self._last = deque[Entry](maxlen=_REMEMBERED)
        self._works = deque[Work]()
        self._told = ""  # the join whose ranks are told of every collective

    @property
    def count(self) -> int:
        """How many collectives this rank has posted."""
        return self._count

    @property
    def is_waiting(self) -> bool:
        """Whether a collective is under way, perhaps because a rank has joined that does not know of it."""
        with self._lock:
            return any(not work.is_completed() for work in self._works)

    @property
    def is_telling(self) -> bool:
        return bool(self._told)

    def post(self, entry: Entry, start: Callable[[dist.ProcessGroup], Work]) -> Work:
        """Start a collective. RuntimeError when a rank that has joined cannot take part in it."""
        with self._lock:
            if self._told:
                self._require_sum(entry)
                self._tell(self._told, self._count, entry)
            work = start(self.group)
            self._remember(entry, work)
            return work

    def begin_telling(self, join: str, since: int) -> None:
        """Tell the ranks in a join of every collective from number `since` on, those to come too."""
        with self._lock:
            self._told = join
            first = self._count - len(self._last)
            for number in range(max(since, first), self._count):
                self._tell(join, number, self._last[number - first])

    def end_telling(self) -> None:
        with self._lock:
            self._told = ""

    def settle(self) -> None:
        """Wait until all that was posted is done by every rank."""
        while self._works:
            self._works.popleft().wait()

    def end(self, join: str, rank: int) -> None:
        """Tell the others that this rank was the last to join."""
        self._store.set(self._key(join, self._count), json.dumps({"last": rank}))

    def take_part(self, join: str) -> int | None:
        """Take part in what the others have posted; the last rank to join when that is known, else None."""
        while self._store.check([self._key(join, self._count)]):
            news = json.loads(self._store.get(self._key(join, self._count)))
            if "last" in news:
                return int(news["last"])
            entry = Entry(**news)
            self._require_sum(entry)
            zeros = entry.zeros()
            self.post(entry, lambda group, zeros=zeros: dist.all_reduce(zeros, group=group, async_op=True))  # type: ignore[misc]
        return None

    def _remember(self, entry: Entry, work: Work) -> None:
        self._count += 1
        self._last.append(entry)
        while self._works and self._works[0].is_completed():
            self._works.popleft()
        self._works.append(work)

    def _tell(self, join: str, number: int, entry: Entry) -> None:
        self._store.set(self._key(join, number), json.dumps(asdict(entry)))

    def _key(self, join: str, number: int) -> str:
        return f"{join}/{self.name}/{number}"

    def _require_sum(self, entry: Entry) -> None:
        if not entry.is_sum:
            raise RuntimeError(
                f"{entry.what} was called while a rank has called join, which has no part in it. Until all ranks have "
                "joined, only allreduce with Sum or Average, and barrier, are possible."
            )
