"""Where the parts of a trial lie in its folder, and which columns its files have.

    steps/<worker>/<made at>-<first step>.arrows         statistics: a row for each step
    histograms/<worker>/<made at>-<first step>.arrows    a row for each tensor in each step
    values/<worker>/<step>.safetensors                   raw tensors
    <worker>.manifest.json                               how far the worker has come
    ended.json                                           the program is over, whatever the workers still say

`made at` is in milliseconds since the epoch, in 13 digits, so that names sort by age, also where a training went back
to a checkpoint and repeats steps: what is newer counts, from its first step on.
"""

from typing import Final

from trainyard.formats.tensors.arrow_stream import Field
from trainyard.formats.tensors.contract import Column, Mode, TensorTable
from trainyard.formats.tensors.histograms import BINS

FORMAT: Final = "1"
STEPS: Final = "steps"
HISTOGRAMS: Final = "histograms"
VALUES: Final = "values"
SEGMENT_SUFFIX: Final = ".arrows"
MANIFEST_SUFFIX: Final = ".manifest.json"
ENDED: Final = "ended.json"
UNFINISHED_SUFFIX: Final = ".tmp"

FORMAT_KEY: Final = "trainyard.tensors"  # in the metadata of schemas
TABLE_KEY: Final = "trainyard.table"
MODES_KEY: Final = "trainyard.modes"

MODES: Final = (Mode.TRAIN, Mode.EVAL, Mode.PREDICT, Mode.GLOBAL)  # a column tells a mode by its place here


def segment_name(made_at_ms: int, first_step: int) -> str:
    return f"{made_at_ms:013}-{first_step:012}{SEGMENT_SUFFIX}"


def values_name(step: int) -> str:
    return f"{step:012}.safetensors"


def step_fields(table: TensorTable) -> tuple[Field, ...]:
    """The columns of steps: what is read most first, and none that would be empty."""
    fields = (
        Field("step", "int64"),
        Field("mode", "uint8"),
        Field("mode_step", "int64"),
        Field("at_us", "int64"),
        Field("lacks", "int32"),
        Field("saved", "uint8", -(-len(table.tensors) // 8)),  # a bit for each tensor, the lowest first
        Field("scalars", "float64", len(table.scalars)),
        Field("measures", "float32", len(table.measures)),
        Field("statistics", "float32", len(table.tensors) * len(Column)),
    )
    return fields[:5] + tuple(each for each in fields[5:] if each.width)


HISTOGRAM_FIELDS: Final = (
    Field("step", "int64"),
    Field("mode", "uint8"),
    Field("mode_step", "int64"),
    Field("at_us", "int64"),
    Field("tensor", "int32"),  # its place in the table
    Field("counts", "uint32", BINS),
)
