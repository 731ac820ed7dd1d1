"""Reads files by blocks, from the cache on disk or from the remote S3, with read-ahead."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

from trainyard.instance.agent.data.remote_files.cache import BlockCache
from trainyard.instance.agent.data.remote_files.readahead import ReadAheadPredictor
from trainyard.instance.agent.data.remote_files.tree import RemoteFile

BLOCK_BYTES = 1 << 20

# Blocks per request when reading ahead.
_RUN_BLOCKS = 4
# The limit of read-ahead requests in progress.
_MAX_AHEAD_BYTES = 64 << 20

# Returns exactly the given number of bytes from an offset of a file, or raises.
Fetch = Callable[[RemoteFile, int, int], bytes]
Answer = Callable[[Sequence[bytes | memoryview] | Exception], None]


class BlockReader:
    """Reads the files of one channel. `read_span` is called by one thread.

    Fetches run in `pool`, and so do the answers that wait for one. All readers of a block share the same fetch.
    """

    def __init__(
        self, files: Sequence[RemoteFile], fetch: Fetch, *, cache: BlockCache, pool: ThreadPoolExecutor
    ) -> None:
        self._files = files
        self._fetch = fetch
        self._cache = cache
        self._pool = pool
        self._predictor = ReadAheadPredictor()
        self._lock = threading.Lock()
        # By file and block.
        self._fetches: dict[tuple[int, int], _BlockFetch] = {}
        self._ahead_bytes = 0

    def read_span(self, file: RemoteFile, offset: int, size: int, answer: Answer) -> None:
        """Call `answer`, now or later, with the bytes of a span of a file, or with the error."""
        size = max(0, min(size, file.size - offset))
        pieces: list[bytes | _AwaitedSlice] = []
        for block in range(offset // BLOCK_BYTES, -(-(offset + size) // BLOCK_BYTES)):
            begin = max(offset - block * BLOCK_BYTES, 0)
            end = min(offset + size - block * BLOCK_BYTES, BLOCK_BYTES)
            pieces.append(self._slice(file, block, begin, end))
        self._read_ahead(file, offset, size)
        awaited = [piece for piece in pieces if isinstance(piece, _AwaitedSlice)]
        if not awaited:
            answer([piece for piece in pieces if isinstance(piece, bytes)])
            return
        pending = _PendingRead(pieces, len(awaited), answer)
        for piece in awaited:
            piece.fetch.future.add_done_callback(pending.on_fetched)

    def _slice(self, file: RemoteFile, block: int, begin: int, end: int) -> "bytes | _AwaitedSlice":
        with self._lock:
            fetch = self._fetches.get((file.number, block))
        if fetch is None:
            cached = self._cache.read_block(file, block, offset=begin, size=end - begin)
            if cached is not None:
                return cached
            fetch = self._start_fetch(file, block, count=1)
        return _AwaitedSlice(fetch, block, begin, end)

    def _read_ahead(self, file: RemoteFile, offset: int, size: int) -> None:
        end = offset + size + self._predictor.bytes_after(file.number, offset=offset, size=size)
        # Up to the end of a run, so that a reader that advances does not cause requests of single blocks.
        last = -(-file.size // BLOCK_BYTES) if end >= file.size else end // BLOCK_BYTES // _RUN_BLOCKS * _RUN_BLOCKS
        self._fetch_ahead(file, (offset + size) // BLOCK_BYTES, last)
        if offset:
            return
        first = file.number + 1
        for next_file in islice(self._files, first, first + self._predictor.files_after(file.number)):
            if next_file.size <= BLOCK_BYTES and not self._cache.has_block(next_file, 0):
                self._fetch_ahead(next_file, 0, 1 if next_file.size else 0)

    def _fetch_ahead(self, file: RemoteFile, first: int, end: int) -> None:
        block = first
        while block < end and self._ahead_bytes < _MAX_AHEAD_BYTES:
            count = 0
            while count < _RUN_BLOCKS and block + count < end and not self._is_available(file, block + count):
                count += 1
            if count:
                self._start_fetch(file, block, count=count, is_ahead=True)
            block += count or 1

    def _is_available(self, file: RemoteFile, block: int) -> bool:
        return (file.number, block) in self._fetches or self._cache.has_block(file, block)

    def _start_fetch(self, file: RemoteFile, first: int, *, count: int, is_ahead: bool = False) -> "_BlockFetch":
        size = min(file.size - first * BLOCK_BYTES, count * BLOCK_BYTES)
        fetch = _BlockFetch(file, first, count, size, size if is_ahead else 0)
        with self._lock:
            self._ahead_bytes += fetch.ahead
            for block in range(first, first + count):
                self._fetches[file.number, block] = fetch
        self._pool.submit(self._run_fetch, fetch)
        return fetch

    def _run_fetch(self, fetch: "_BlockFetch") -> None:
        try:
            data = self._fetch(fetch.file, fetch.first * BLOCK_BYTES, fetch.size)
        except Exception as error:
            self._finish_fetch(fetch)
            fetch.future.set_exception(error)
            return
        # First, so that readers do not wait for the disk.
        fetch.future.set_result(data)
        try:
            self._cache_blocks(fetch, memoryview(data))
        finally:
            self._finish_fetch(fetch)

    def _cache_blocks(self, fetch: "_BlockFetch", data: memoryview) -> None:
        for index in range(fetch.count):
            part = data[index * BLOCK_BYTES : (index + 1) * BLOCK_BYTES]
            self._cache.store_block(fetch.file, fetch.first + index, part)

    def _finish_fetch(self, fetch: "_BlockFetch") -> None:
        with self._lock:
            self._ahead_bytes -= fetch.ahead
            for block in range(fetch.first, fetch.first + fetch.count):
                self._fetches.pop((fetch.file.number, block), None)


class _BlockFetch:
    """Blocks that are fetched with one request."""

    __slots__ = ("ahead", "count", "file", "first", "future", "size")

    def __init__(self, file: RemoteFile, first: int, count: int, size: int, ahead: int) -> None:
        self.file, self.first, self.count, self.size, self.ahead = file, first, count, size, ahead
        self.future: Future[bytes] = Future()


class _AwaitedSlice:
    """A slice of a block that is being fetched."""

    __slots__ = ("begin", "block", "end", "fetch")

    def __init__(self, fetch: _BlockFetch, block: int, begin: int, end: int) -> None:
        self.fetch, self.block, self.begin, self.end = fetch, block, begin, end

    def data(self) -> memoryview:
        start = (self.block - self.fetch.first) * BLOCK_BYTES
        return memoryview(self.fetch.future.result())[start + self.begin : start + self.end]


class _PendingRead:
    """Answers a read when its last piece has arrived."""

    def __init__(self, pieces: Sequence[bytes | _AwaitedSlice], missing: int, answer: Answer) -> None:
        self._pieces = pieces
        self._missing = missing
        self._answer = answer
        self._lock = threading.Lock()

    def on_fetched(self, _: "Future[bytes]") -> None:
        with self._lock:
            self._missing -= 1
            if self._missing:
                return
        try:
            self._answer([piece.data() if isinstance(piece, _AwaitedSlice) else piece for piece in self._pieces])
        except Exception as error:
            self._answer(error)
