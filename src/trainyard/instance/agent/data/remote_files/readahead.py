"""Predicts what will be read next: more of a file that is read sequentially, and the files after it."""

from collections import OrderedDict
from dataclasses import dataclass

# Files whose last reads are remembered.
_MAX_TRACKED = 4096
_FIRST_BYTES, _MAX_BYTES = 4 << 20, 32 << 20
_FIRST_FILES, _MAX_FILES = 4, 64


@dataclass(slots=True)
class _FileReads:
    """The end of the last read, the bytes to read ahead, and how many files in a row were read up to this one."""

    end: int
    ahead: int
    run: int


class ReadAheadPredictor:
    """Watches the reads of one channel. Used by one thread."""

    def __init__(self) -> None:
        self._reads: OrderedDict[int, _FileReads] = OrderedDict()

    def bytes_after(self, file: int, *, offset: int, size: int) -> int:
        """How many bytes to fetch after a read of a file; 0 when it is read randomly."""
        known = self._reads.get(file)
        if known is None:
            known = self._track(file)
            known.end, known.ahead = offset + size, _FIRST_BYTES if offset == 0 else 0
            return known.ahead
        self._reads.move_to_end(file)
        # Requests of one reader may arrive out of order.
        if known.end <= offset <= known.end + size:
            known.ahead = min(_MAX_BYTES, max(_FIRST_BYTES, known.ahead * 2))
            known.end = offset + size
        elif not known.end - 4 * size <= offset <= known.end:
            known.ahead, known.end = 0, offset + size
        return known.ahead

    def files_after(self, file: int) -> int:
        """How many of the next files to fetch when a file is opened."""
        known = self._reads.get(file)
        if known is None or known.run < 2:
            return 0
        return int(min(_MAX_FILES, _FIRST_FILES << min(known.run - 2, 8)))

    def _track(self, file: int) -> _FileReads:
        before = self._reads.get(file - 1)
        reads = self._reads[file] = _FileReads(0, 0, 1 if before is None else before.run + 1)
        if len(self._reads) > _MAX_TRACKED:
            self._reads.popitem(last=False)
        return reads
