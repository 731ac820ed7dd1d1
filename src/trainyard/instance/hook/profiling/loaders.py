"""Watches the data loaders of a torch program: how they are set up, what batches cost, and how long each is waited for.

Batches are made in worker processes, which are forked from this one and inherit a shared table in which each worker
writes its own rows. Workers that are not forked write nowhere, and their fetch times stay unknown. Without workers, a
batch costs what it is waited for.
"""

import functools
import mmap
import struct
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch.utils.data import DataLoader, dataloader, get_worker_info
from torch.utils.data._utils import fetch

# Of each loader, and of each worker of a loader.
_SAMPLES = 128
_MAX_LOADERS = 16
_MAX_WORKERS = 64
_WORKER_SAMPLES = 16
# How many batches a worker has made, and how many seconds each of the last ones took.
_ROW = struct.Struct(f"<Q{_WORKER_SAMPLES}d")
_COUNT, _SECONDS = struct.Struct("<Q"), struct.Struct("<d")


class LoaderListener(Protocol):
    """Receives the waits of the training thread for data. No method may raise."""

    def begin_loading(self, loader: Any) -> bool:
        """Observe a loader that is about to make an iterator; return whether it feeds the training."""

    def begin_wait(self) -> int:
        """Begin a wait of the training thread; return when in nanoseconds, or 0 on other threads."""

    def leave_phase(self) -> int:
        """End the wait; return when."""


class WatchedLoaders:
    """The data loaders that the program has iterated over. There is one object of this class in a process."""

    def __init__(self, listener: LoaderListener) -> None:
        self.listener = listener
        self._loaders: list[_WatchedLoader] = []
        self._by_dataset: dict[int, _WatchedLoader] = {}
        self._table = mmap.mmap(-1, _MAX_LOADERS * _MAX_WORKERS * _ROW.size)
        # How many the training has received; 0 if a loader cannot tell how large its batches are.
        self.samples = 0
        _attach(self)

    def detach(self) -> None:
        _detach(self)

    def facts(self) -> list[dict[str, Any]]:
        """Return the members of LoaderFacts for each loader, as JSON values."""
        return [each.facts(self._fetch_times(each)) for each in self._loaders]

    def forget(self) -> None:
        """Record what batches cost from now on: this process was forked, and may be a worker of a loader."""
        _time_fetches()

    def iterate(self, loader: Any, original: Callable[[Any], Any]) -> Any:
        """Make an iterator, which starts the workers, as a wait for data."""
        # In a later epoch, the model may still be in the mode of an evaluation.
        known = self._find(loader)
        is_training = (known is not None and known.is_training) or self.listener.begin_loading(loader)
        watched = self._watch(loader)
        iterator = self._wait(original, loader)
        if watched is not None:
            watched.is_training = is_training
            iterator._trainyard_loader = watched
        return iterator

    def record_fetch(self, dataset: Any, worker: int, seconds: float) -> None:
        """Record what a batch cost; called in the process that made it."""
        watched = self._by_dataset.get(id(dataset))
        if watched is None or worker >= _MAX_WORKERS:
            return
        offset = (watched.index * _MAX_WORKERS + worker) * _ROW.size
        (count,) = _COUNT.unpack_from(self._table, offset)
        _SECONDS.pack_into(self._table, offset + _COUNT.size + count % _WORKER_SAMPLES * _SECONDS.size, seconds)
        _COUNT.pack_into(self._table, offset, count + 1)

    def _wait(self, original: Callable[[Any], Any], loader: Any) -> Any:
        if not self.listener.begin_wait():
            return original(loader)
        try:
            return original(loader)
        finally:
            self.listener.leave_phase()

    def _watch(self, loader: Any) -> "_WatchedLoader | None":
        watched = self._find(loader) or self._add(loader)
        if watched is not None:
            # Several loaders may have the same data; the one that is iterated is the one in use.
            self._by_dataset[id(loader.dataset)] = watched
        return watched

    def _find(self, loader: Any) -> "_WatchedLoader | None":
        return next((each for each in self._loaders if each.loader() is loader), None)

    def _add(self, loader: Any) -> "_WatchedLoader | None":
        settings = _settings_of(loader)
        for each in self._loaders:
            # Programs often make a loader for each epoch.
            if each.loader() is None and each.settings == settings:
                each.loader = weakref.ref(loader)
                return each
        if len(self._loaders) == _MAX_LOADERS:
            return None
        self._loaders.append(_WatchedLoader(len(self._loaders), loader, settings))
        return self._loaders[-1]

    def _fetch_times(self, watched: "_WatchedLoader") -> list[float]:
        if not watched.workers:
            return watched.waits_s[-_WORKER_SAMPLES:]
        found: list[float] = []
        for worker in range(min(watched.workers, _MAX_WORKERS)):
            count, *times = _ROW.unpack_from(self._table, (watched.index * _MAX_WORKERS + worker) * _ROW.size)
            found += times[: min(count, _WORKER_SAMPLES)]
        return found[:_SAMPLES]


class _WatchedLoader:
    def __init__(self, index: int, loader: Any, settings: Mapping[str, Any]) -> None:
        self.index, self.settings = index, settings
        self.workers = int(loader.num_workers)
        # In each batch; 0 if the loader cannot tell.
        self.batch_size: int = settings["batch_size"] or 0
        self.waits_ns: deque[int] = deque(maxlen=_SAMPLES)
        self.is_training = False
        self.loader: weakref.ref[Any] = weakref.ref(loader)

    @property
    def waits_s(self) -> list[float]:
        return [each / 1e9 for each in self.waits_ns]

    def facts(self, fetch_times: list[float]) -> dict[str, Any]:
        return {
            **self.settings,
            "name": f"{self.settings['name']}{self.index or ''}",
            "fetch_s": [round(each, 7) for each in fetch_times],
            "wait_s": [round(each, 7) for each in self.waits_s],
        }


def _settings_of(loader: Any) -> Mapping[str, Any]:
    return {
        "name": type(loader.dataset).__name__,
        "workers": int(loader.num_workers),
        "is_pinning": bool(loader.pin_memory),
        "prefetch": loader.prefetch_factor,
        "batch_size": _batch_size_of(loader),
        "is_persistent": bool(loader.persistent_workers),
    }


def _batch_size_of(loader: Any) -> int | None:
    """Return the size of the batches, which a batch sampler of the program's own may know."""
    size = loader.batch_size if loader.batch_size is not None else getattr(loader.batch_sampler, "batch_size", None)
    return size if isinstance(size, int) else None


_watched: WatchedLoaders | None = None
_is_patched: list[bool] = []
_is_timing_fetches: list[bool] = []


def _attach(watched: WatchedLoaders) -> None:
    global _watched
    _watched = watched
    if _is_patched:
        return
    _is_patched.append(True)
    DataLoader.__iter__ = _with_watched_iteration(DataLoader.__iter__)
    iterator: Any = dataloader._BaseDataLoaderIter
    iterator._trainyard_loader = None
    iterator.__next__ = _with_watched_wait(iterator.__next__)


def _detach(watched: WatchedLoaders) -> None:
    global _watched
    if _watched is watched:
        _watched = None


def _time_fetches() -> None:
    if _is_timing_fetches:
        return
    _is_timing_fetches.append(True)
    for fetcher in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        fetcher.fetch = _with_timed_fetch(fetcher.fetch)


def _with_watched_iteration(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def iterate(self: Any) -> Any:
        watched = _watched
        return original(self) if watched is None else watched.iterate(self, original)

    return iterate


def _with_watched_wait(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def fetch_next(self: Any) -> Any:
        watched = _watched
        if watched is None:
            return original(self)
        listener = watched.listener
        loader = self._trainyard_loader
        began = listener.begin_wait()
        if began:
            try:
                batch = original(self)
            except BaseException:
                # The end of the data is no batch.
                listener.leave_phase()
                raise
            ended = listener.leave_phase()
            if loader is not None:
                loader.waits_ns.append(ended - began)
        else:
            # A thread of the program's own may load what the training thread uses.
            batch = original(self)
        if loader is not None and loader.is_training:
            watched.samples += loader.batch_size
        return batch

    return fetch_next


def _with_timed_fetch(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def fetch_batch(self: Any, indices: Any) -> Any:
        watched = _watched
        if watched is None:
            return original(self, indices)
        worker = get_worker_info()
        began = time.perf_counter()
        batch = original(self, indices)
        watched.record_fetch(self.dataset, 0 if worker is None else worker.id, time.perf_counter() - began)
        return batch

    return fetch_batch
