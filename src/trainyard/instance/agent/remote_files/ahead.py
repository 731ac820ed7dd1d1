"""What is likely to be read next: more of a file that is read from front to back, and the files after those."""

from collections import OrderedDict
from dataclasses import dataclass

_REMEMBERED = 4096  # files of which the last reads are known
_FIRST_BYTES, _MOST_BYTES = 4 << 20, 32 << 20
_FIRST_FILES, _MOST_FILES = 4, 64


@dataclass(slots=True)
class _Reading:
    end: int  # of the last read
    ahead: int  # bytes
    run: int  # how many files in a row were read up to this one


class Foresight:
    """Used by one thread."""

    def __init__(self) -> None:
        self._readings: OrderedDict[int, _Reading] = OrderedDict()

    def bytes_after(self, file: int, *, offset: int, size: int) -> int:
        """How much is worth fetching of a file after a piece that is read; nothing when it is read here and there."""
        known = self._readings.get(file)
        if known is None:
            known = self._remember(file)
            known.end, known.ahead = offset + size, _FIRST_BYTES if offset == 0 else 0
            return known.ahead
        self._readings.move_to_end(file)
        if known.end <= offset <= known.end + size:  # requests of one reader may change places
            known.ahead = min(_MOST_BYTES, max(_FIRST_BYTES, known.ahead * 2))
            known.end = offset + size
        elif not known.end - 4 * size <= offset <= known.end:
            known.ahead, known.end = 0, offset + size
        return known.ahead

    def files_after(self, file: int) -> int:
        """How many of the files after one whose reading begins are worth fetching."""
        known = self._readings.get(file)
        if known is None or known.run < 2:
            return 0
        return int(min(_MOST_FILES, _FIRST_FILES << min(known.run - 2, 8)))

    def _remember(self, file: int) -> _Reading:
        before = self._readings.get(file - 1)
        reading = self._readings[file] = _Reading(0, 0, 1 if before is None else before.run + 1)
        if len(self._readings) > _REMEMBERED:
            self._readings.popitem(last=False)
        return reading
