"""The file of step times that each rank of a program writes: a header, then rows of one size.

A row is a step, or several steps in a row that were too short to have one each. Rows are only ever appended, so a file
whose last row is torn is complete before that row. Standard library only: hooks and agents use the format too.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainyard.formats.profiles.contract import StepPhase

SUFFIX = ".steps"
# Beside it, the facts about the program, as JSON.
FACTS_SUFFIX = ".json"
# How large the file of one rank can get; the writer makes rows stand for more steps long before.
MAX_BYTES = 64 * 1024**2
MAX_FACTS_BYTES = 1024**2

# The modes of formats/tensors, which would import numpy; rows have their positions.
MODES = ("TRAIN", "EVAL", "PREDICT")
TRAIN, EVAL, PREDICT = MODES

HEADER = struct.pack("<8sII", b"TYSTEPS\x01", 96, len(StepPhase))
# Number, count, mode, start and end in Unix microseconds, nanoseconds of each phase.
_ROW = struct.Struct("<QIIqq8Q")
ROW_BYTES = _ROW.size


class StepRow(NamedTuple):
    """One row: as many `steps` of a mode, of which the first has this number; phases are in the order of StepPhase."""

    number: int
    steps: int
    mode: str
    started_us: int
    ended_us: int
    phases_ns: Sequence[int]


def encode_row(row: StepRow) -> bytes:
    return _ROW.pack(row.number, row.steps, MODES.index(row.mode), row.started_us, row.ended_us, *row.phases_ns)


def decode_rows(data: bytes) -> Iterator[StepRow]:
    """Yield the complete rows of a file; none if it is not a file of step times.

    A program may have written anything there.
    """
    if not data.startswith(HEADER):
        return
    body = memoryview(data)[len(HEADER) :]
    for values in _ROW.iter_unpack(body[: len(body) - len(body) % ROW_BYTES]):
        number, steps, mode, started_us, ended_us, *phases_ns = values
        if steps and mode < len(MODES) and started_us <= ended_us:
            yield StepRow(number, steps, MODES[mode], started_us, ended_us, phases_ns)
