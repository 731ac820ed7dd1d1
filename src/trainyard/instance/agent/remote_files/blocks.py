"""Reading files by blocks: from the cache on disk, or fetched, with what is likely to be read next."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

from trainyard.instance.agent.remote_files.ahead import Foresight
from trainyard.instance.agent.remote_files.cache import BlockCache
from trainyard.instance.agent.remote_files.tree import RemoteFile

BLOCK_BYTES = 1 << 20

_RUN_BLOCKS = 4  # fetched by one request ahead of need
_AHEAD_BYTES = 64 << 20  # under way, of what nobody has asked for yet

Fetch = Callable[[RemoteFile, int, int], bytes]  # exactly so many bytes from an offset; or it raises
Answer = Callable[[Sequence[bytes | memoryview] | Exception], None]


class BlockReader:
    """Reads the files of one channel; `read` is called by one thread.

    Fetches run in `pool`, and so do the answers that had to wait for one. Of a block that is fetched, all who want it
    wait for the same fetch.
    """

    def __init__(
        self, files: Sequence[RemoteFile], fetch: Fetch, *, cache: BlockCache, pool: ThreadPoolExecutor
    ) -> None:
        self._files = files
        self._fetch = fetch
        self._cache = cache
        self._pool = pool
        self._foresight = Foresight()
        self._lock = threading.Lock()
        self._flights: dict[tuple[int, int], _Flight] = {}  # by file and block
        self._ahead = 0  # bytes under way that nobody has asked for

    def read(self, file: RemoteFile, offset: int, size: int, answer: Answer) -> None:
        """Give the bytes of a file that there are in a span to `answer`, or what went wrong; now or later."""
        size = max(0, min(size, file.size - offset))
        pieces: list[bytes | _Awaited] = []
        for block in range(offset // BLOCK_BYTES, -(-(offset + size) // BLOCK_BYTES)):
            begin = max(offset - block * BLOCK_BYTES, 0)
            end = min(offset + size - block * BLOCK_BYTES, BLOCK_BYTES)
            pieces.append(self._piece(file, block, begin, end))
        self._look_ahead(file, offset, size)
        awaited = [piece for piece in pieces if isinstance(piece, _Awaited)]
        if not awaited:
            answer([piece for piece in pieces if isinstance(piece, bytes)])
            return
        gathering = _Gathering(pieces, len(awaited), answer)
        for piece in awaited:
            piece.flight.future.add_done_callback(gathering.one_has_come)

    def _piece(self, file: RemoteFile, block: int, begin: int, end: int) -> "bytes | _Awaited":
        with self._lock:
            flight = self._flights.get((file.number, block))
        if flight is None:
            found = self._cache.read(file, block, offset=begin, size=end - begin)
            if found is not None:
                return found
            flight = self._fly(file, block, count=1)
        return _Awaited(flight, block, begin, end)

    def _look_ahead(self, file: RemoteFile, offset: int, size: int) -> None:
        end = offset + size + self._foresight.bytes_after(file.number, offset=offset, size=size)
        # Up to the end of a run, so that what a reader comes nearer to is not fetched block by block.
        last = -(-file.size // BLOCK_BYTES) if end >= file.size else end // BLOCK_BYTES // _RUN_BLOCKS * _RUN_BLOCKS
        self._fetch_ahead(file, (offset + size) // BLOCK_BYTES, last)
        if offset:
            return
        first = file.number + 1
        for next_file in islice(self._files, first, first + self._foresight.files_after(file.number)):
            if next_file.size <= BLOCK_BYTES and not self._cache.holds(next_file, 0):
                self._fetch_ahead(next_file, 0, 1 if next_file.size else 0)

    def _fetch_ahead(self, file: RemoteFile, first: int, end: int) -> None:
        block = first
        while block < end and self._ahead < _AHEAD_BYTES:
            count = 0
            while count < _RUN_BLOCKS and block + count < end and not self._is_here(file, block + count):
                count += 1
            if count:
                self._fly(file, block, count=count, is_ahead=True)
            block += count or 1

    def _is_here(self, file: RemoteFile, block: int) -> bool:
        return (file.number, block) in self._flights or self._cache.holds(file, block)

    def _fly(self, file: RemoteFile, first: int, *, count: int, is_ahead: bool = False) -> "_Flight":
        size = min(file.size - first * BLOCK_BYTES, count * BLOCK_BYTES)
        flight = _Flight(file, first, count, size, size if is_ahead else 0)
        with self._lock:
            self._ahead += flight.ahead
            for block in range(first, first + count):
                self._flights[file.number, block] = flight
        self._pool.submit(self._carry_out, flight)
        return flight

    def _carry_out(self, flight: "_Flight") -> None:
        try:
            data = self._fetch(flight.file, flight.first * BLOCK_BYTES, flight.size)
        except Exception as error:
            self._land(flight)
            flight.future.set_exception(error)
            return
        flight.future.set_result(data)  # who waits for it need not wait for the disk
        try:
            self._keep(flight, memoryview(data))
        finally:
            self._land(flight)

    def _keep(self, flight: "_Flight", data: memoryview) -> None:
        for index in range(flight.count):
            part = data[index * BLOCK_BYTES : (index + 1) * BLOCK_BYTES]
            self._cache.keep(flight.file, flight.first + index, part)

    def _land(self, flight: "_Flight") -> None:
        with self._lock:
            self._ahead -= flight.ahead
            for block in range(flight.first, flight.first + flight.count):
                self._flights.pop((flight.file.number, block), None)


class _Flight:
    """Blocks that are fetched by one request."""

    __slots__ = ("ahead", "count", "file", "first", "future", "size")

    def __init__(self, file: RemoteFile, first: int, count: int, size: int, ahead: int) -> None:
        self.file, self.first, self.count, self.size, self.ahead = file, first, count, size, ahead
        self.future: Future[bytes] = Future()


class _Awaited:
    """A piece of a block that is fetched."""

    __slots__ = ("begin", "block", "end", "flight")

    def __init__(self, flight: _Flight, block: int, begin: int, end: int) -> None:
        self.flight, self.block, self.begin, self.end = flight, block, begin, end

    def data(self) -> memoryview:
        start = (self.block - self.flight.first) * BLOCK_BYTES
        return memoryview(self.flight.future.result())[start + self.begin : start + self.end]


class _Gathering:
    """Answers when the last piece has come."""

    def __init__(self, pieces: Sequence[bytes | _Awaited], missing: int, answer: Answer) -> None:
        self._pieces = pieces
        self._missing = missing
        self._answer = answer
        self._lock = threading.Lock()

    def one_has_come(self, _: "Future[bytes]") -> None:
        with self._lock:
            self._missing -= 1
            if self._missing:
                return
        try:
            self._answer([piece.data() if isinstance(piece, _Awaited) else piece for piece in self._pieces])
        except Exception as error:
            self._answer(error)
