"""How ranks that have run out of data wait for the others, and still take part in their sums.

The first rank to call `join` leaves word in the store at which the ranks have met. A rank that waits for a collective
looks there a few times a second, in a thread: the other one may not know of it. From then on each collective is told
there before it starts.
"""

import json
import threading
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from .lanes import Lane

_LOOK_S = 0.1
_PART_S = 0.001


class Joining:
    """The joins of one rank, one after another; all ranks call `join` equally often."""

    def __init__(self, store: dist.Store, lanes: Sequence[Lane], *, rank: int, size: int) -> None:
        self._store = store
        self._lanes = lanes  # grows as optimizers are made
        self._rank, self._size = rank, size
        self._round = 0
        self._has_joined = False
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._watch = threading.Thread(target=self._look_out, name="horovod-join", daemon=True)
        self._watch.start()

    def join(self) -> int:
        """Take part with zeros until all ranks have joined; the rank that was the last."""
        for lane in self._lanes:
            lane.settle()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        with self._lock:
            self._has_joined = True
            for lane in self._lanes:
                lane.end_telling()
        last = self._wait_for_all()
        with self._lock:
            self._round += 1
            self._has_joined = False
        return last

    def close(self) -> None:
        """Look out no more; called again, it has no effect."""
        self._stopping.set()
        self._watch.join()

    @property
    def _name(self) -> str:
        return f"join/{self._round}"

    def _wait_for_all(self) -> int:
        arrived = self._store.add(f"{self._name}/arrived", 1)
        if arrived == self._size:
            for lane in self._lanes:
                lane.end(self._name, self._rank)
            return self._rank
        if arrived == 1:
            self._store.set(f"{self._name}/first", json.dumps({lane.name: lane.count for lane in self._lanes}))
        return self._take_part()

    def _take_part(self) -> int:
        ended: dict[str, int] = {}
        while len(ended) < len(self._lanes):
            for lane in self._lanes:
                last = None if lane.name in ended else lane.take_part(self._name)
                if last is not None:
                    ended[lane.name] = last
            time.sleep(_PART_S)
        for lane in self._lanes:
            lane.settle()
        return ended[self._lanes[0].name]

    def _look_out(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            try:
                self._look()
            except dist.DistError:  # the rank that keeps the store has ended, and nobody will join
                return

    def _look(self) -> None:
        if not any(lane.is_waiting for lane in tuple(self._lanes)):
            return
        with self._lock:
            if self._has_joined or not self._store.check([f"{self._name}/first"]):
                return
            counts = json.loads(self._store.get(f"{self._name}/first"))
            for lane in self._lanes:
                if not lane.is_telling:
                    lane.begin_telling(self._name, counts.get(lane.name, 0))
