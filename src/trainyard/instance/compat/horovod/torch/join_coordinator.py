"""Lets ranks that have run out of data wait for the others, and still take part in their sums.

The first rank to call `join` writes a key to the ranks' shared store. A rank that waits for a collective checks that
key a few times a second, in a thread, because the joined rank may not know about the collective. From then on, each
collective is announced in the store before it starts.
"""

import json
import threading
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from .ordered_group import OrderedGroup

_WATCH_INTERVAL_S = 0.1
_PARTICIPATE_INTERVAL_S = 0.001


class JoinCoordinator:
    """Coordinates the joins of one rank, one after another. All ranks call `join` equally often."""

    def __init__(self, store: dist.Store, groups: Sequence[OrderedGroup], *, rank: int, size: int) -> None:
        self._store = store
        # Grows as optimizers are created.
        self._groups = groups
        self._rank, self._size = rank, size
        self._round = 0
        self._has_joined = False
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="horovod-join", daemon=True)
        self._watcher.start()

    def join(self) -> int:
        """Take part with zeros until all ranks have joined. Returns the last rank to join."""
        for group in self._groups:
            group.wait_for_posted()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        with self._lock:
            self._has_joined = True
            for group in self._groups:
                group.stop_announcing()
        last = self._wait_for_all()
        with self._lock:
            self._round += 1
            self._has_joined = False
        return last

    def close(self) -> None:
        """Stop the watcher thread. A second call has no effect."""
        self._stopping.set()
        self._watcher.join()

    @property
    def _name(self) -> str:
        return f"join/{self._round}"

    def _wait_for_all(self) -> int:
        arrived = self._store.add(f"{self._name}/arrived", 1)
        if arrived == self._size:
            for group in self._groups:
                group.announce_last(self._name, self._rank)
            return self._rank
        if arrived == 1:
            self._store.set(f"{self._name}/first", json.dumps({group.name: group.count for group in self._groups}))
        return self._participate()

    def _participate(self) -> int:
        ended: dict[str, int] = {}
        while len(ended) < len(self._groups):
            for group in self._groups:
                last = None if group.name in ended else group.participate(self._name)
                if last is not None:
                    ended[group.name] = last
            time.sleep(_PARTICIPATE_INTERVAL_S)
        for group in self._groups:
            group.wait_for_posted()
        return ended[self._groups[0].name]

    def _watch(self) -> None:
        while not self._stopping.wait(_WATCH_INTERVAL_S):
            try:
                self._check_for_join()
            # The rank that hosts the store has exited, so nobody will join.
            except dist.DistError:
                return

    def _check_for_join(self) -> None:
        if not any(group.is_waiting for group in tuple(self._groups)):
            return
        with self._lock:
            if self._has_joined or not self._store.check([f"{self._name}/first"]):
                return
            counts = json.loads(self._store.get(f"{self._name}/first"))
            for group in self._groups:
                if not group.is_announcing:
                    group.start_announcing(self._name, counts.get(group.name, 0))
