"""The layout of a trial's folder, and the columns of its files.

    steps/<worker>/<made at>-<first step>.arrows         statistics: a row for each step
    histograms/<worker>/<made at>-<first step>.arrows    a row for each tensor in each step
    values/<worker>/<step>.safetensors                   raw tensors
    <worker>.manifest.json                               the progress of the worker
    ended.json                                           the program has ended, whatever the manifests say

`made at` is in milliseconds since the epoch, in 13 digits, so that names sort by age. If a training goes back to a
checkpoint and repeats steps, the newer file replaces the older ones from its first step on.
"""

from typing import Final

from trainyard.formats.tensors.contract import Mode, Statistic, TensorTable
from trainyard.formats.tensors.encoding.arrow_stream import Field
from trainyard.formats.tensors.statistics.histograms import BINS

FORMAT: Final = "1"
STEPS: Final = "steps"
HISTOGRAMS: Final = "histograms"
VALUES: Final = "values"
SEGMENT_SUFFIX: Final = ".arrows"
MANIFEST_SUFFIX: Final = ".manifest.json"
ENDED: Final = "ended.json"
UNFINISHED_SUFFIX: Final = ".tmp"

# Keys in the metadata of schemas.
FORMAT_KEY: Final = "trainyard.tensors"
TABLE_KEY: Final = "trainyard.table"
MODES_KEY: Final = "trainyard.modes"

# A column stores a mode as an index into this tuple.
MODES: Final = (Mode.TRAIN, Mode.EVAL, Mode.PREDICT, Mode.GLOBAL)


def segment_name(made_at_ms: int, first_step: int) -> str:
    return f"{made_at_ms:013}-{first_step:012}{SEGMENT_SUFFIX}"


def values_name(step: int) -> str:
    return f"{step:012}.safetensors"


def step_fields(table: TensorTable) -> tuple[Field, ...]:
    """Return the columns of steps: those that are read most come first, empty ones are left out."""
    fields = (
        Field("step", "int64"),
        Field("mode", "uint8"),
        Field("mode_step", "int64"),
        Field("at_us", "int64"),
        Field("lacks", "int32"),
        # A bit for each tensor, the lowest first.
        Field("saved", "uint8", -(-len(table.tensors) // 8)),
        Field("scalars", "float64", len(table.scalars)),
        Field("measures", "float32", len(table.measures)),
        Field("statistics", "float32", len(table.tensors) * len(Statistic)),
    )
    return fields[:5] + tuple(each for each in fields[5:] if each.width)


HISTOGRAM_FIELDS: Final = (
    Field("step", "int64"),
    Field("mode", "uint8"),
    Field("mode_step", "int64"),
    Field("at_us", "int64"),
    # The index of the tensor in its table.
    Field("tensor", "int32"),
    Field("counts", "uint32", BINS),
)
