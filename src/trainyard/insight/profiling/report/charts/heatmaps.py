"""Many series over time as one picture: a row for each, darker where it is higher."""

import base64
import struct
import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trainyard.insight.profiling.contract import Numbers
from trainyard.insight.profiling.report.charts.plot import Axis, draw_chart
from trainyard.insight.profiling.report.downsampling import average_by_time
from trainyard.insight.profiling.report.markup import Html, element, join
from trainyard.insight.profiling.report.units import value_text

COLUMNS = 240
# Rows with a label of their own; of more, each tenth or so has one.
MAX_LABELS = 16
# Levels of the picture, from transparent to opaque, and one for what is unknown.
LEVELS = 32
COLOUR = (47, 111, 222)


def draw_heatmap(
    title: str, rows: Mapping[str, Numbers], times_s: Numbers, *, across: Axis, subtitle: str = ""
) -> Html | None:
    """Return a picture of percentages by row; None without rows."""
    if not rows:
        return None
    means = [
        average_by_time(times_s, values, start=across.low, end=across.high, points=COLUMNS) for values in rows.values()
    ]
    width = max(len(each) for each in means)
    grid = np.stack([_stretch_row(each.means, width) for each in means])
    averages = {label: float(np.nanmean(row)) for label, row in zip(rows, grid, strict=True) if np.isfinite(row).any()}
    picture = element(
        "image",
        href=f"data:image/png;base64,{base64.b64encode(encode_levels(_levels(grid))).decode()}",
        width=1000,
        height=1000,
        preserveAspectRatio="none",
        data_rows=len(rows),
        data_columns=width,
        data_levels=LEVELS,
        data_labels="\n".join(rows),
    )
    busiest = max(averages, key=lambda label: averages[label], default="")
    return draw_chart(
        title,
        [picture],
        across=across,
        up=None,
        summary=f"{len(rows)} rows; {busiest} is busiest with {value_text(averages.get(busiest), '%')} on average.",
        subtitle=subtitle,
        kind="heatmap",
        is_full_width=True,
        y_labels=_labels(list(rows)),
        height_px=max(48, min(360, 18 * len(rows))),
    )


def encode_levels(levels: NDArray[np.uint8]) -> bytes:
    """Return a PNG in one colour, of which each level has more; the last level is what is unknown.

    The colour lies over the page, so the picture suits a light one and a dark one.
    """
    height, width = levels.shape
    opacity = [round(255 * level / (LEVELS - 1)) for level in range(LEVELS)]
    palette = bytes(COLOUR) * LEVELS + bytes((128, 128, 128))
    pixels = b"".join(b"\0" + row.tobytes() for row in levels)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", palette),
            _chunk(b"tRNS", bytes([*opacity, 40])),
            _chunk(b"IDAT", zlib.compress(pixels, 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _levels(grid: Numbers) -> NDArray[np.uint8]:
    scaled = np.clip(np.nan_to_num(grid, nan=0.0) / 100 * (LEVELS - 1), 0, LEVELS - 1)
    return np.where(np.isfinite(grid), np.rint(scaled), LEVELS).astype(np.uint8)


def _stretch_row(values: Numbers, width: int) -> Numbers:
    """Return a row of this width, with short gaps filled: samples do not come at exactly equal intervals."""
    row = values[np.arange(width) * len(values) // width]
    known = np.flatnonzero(np.isfinite(row))
    if not len(known):
        return row
    after = known[np.minimum(np.searchsorted(known, np.arange(width)), len(known) - 1)]
    before = known[np.maximum(np.searchsorted(known, np.arange(width), side="right") - 1, 0)]
    filled: Numbers = np.where(after - before <= 2, row[before], row)
    return filled


def _labels(labels: list[str]) -> Html:
    stride = -(-len(labels) // MAX_LABELS)
    return join(
        element("span", label, style=f"bottom:{1 - (number + 0.5) / len(labels):.2%}")
        for number, label in enumerate(labels)
        if number % stride == 0
    )
