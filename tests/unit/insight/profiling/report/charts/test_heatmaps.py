import base64
import struct
import zlib

import numpy as np

from tests.report_pages import read_page
from trainyard.insight.profiling.report.charts.heatmaps import LEVELS, draw_heatmap, encode_levels
from trainyard.insight.profiling.report.charts.plot import Axis


def pixels_of(png: bytes) -> list[bytes]:
    """Decode the pixels of a picture with a palette, row by row, and check every chunk on the way."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    place, chunks = 8, {}
    while place < len(png):
        length, kind = struct.unpack(">I4s", png[place : place + 8])
        body = png[place + 8 : place + 8 + length]
        (check,) = struct.unpack(">I", png[place + 8 + length : place + 12 + length])
        assert check == zlib.crc32(kind + body)
        chunks[kind] = body
        place += 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    raw = zlib.decompress(chunks[b"IDAT"])
    assert len(chunks[b"PLTE"]) == 3 * len(chunks[b"tRNS"]) == 3 * (LEVELS + 1)
    return [raw[row * (width + 1) + 1 : (row + 1) * (width + 1)] for row in range(height)]


def test_a_picture_has_a_pixel_for_each_value() -> None:
    levels = np.array([[0, 5, LEVELS], [31, 1, 0]], dtype=np.uint8)
    assert pixels_of(encode_levels(levels)) == [bytes(row) for row in levels.tolist()]


def test_each_row_is_a_series_and_the_fuller_the_higher() -> None:
    times = np.arange(100.0)
    rows = {"core 0": np.full(100, 100.0), "core 1": np.zeros(100), "core 2": np.full(100, np.nan)}
    chart = draw_heatmap("Cores", rows, times, across=Axis(0, 100, "elapsed"))
    assert chart is not None
    page = read_page(chart)
    picture = page.find("image").attributes
    data = picture["href"].removeprefix("data:image/png;base64,")
    first, second, third = pixels_of(base64.b64decode(data))
    assert set(first) == {LEVELS - 1}
    assert set(second) == {0}
    assert set(third) == {LEVELS}
    assert picture["data-labels"].splitlines() == ["core 0", "core 1", "core 2"]
    assert "core 0 is busiest with 100 % on average." in page.find("svg").attributes["aria-label"]


def test_of_many_rows_some_have_labels() -> None:
    rows = {f"core {number}": np.full(10, 50.0) for number in range(96)}
    chart = draw_heatmap("Cores", rows, np.arange(10.0), across=Axis(0, 10))
    assert chart is not None
    assert 8 <= len(read_page(chart).find(of_class="y-axis").find_all("span")) <= 16


def test_no_rows_need_no_picture() -> None:
    assert draw_heatmap("Cores", {}, np.zeros(0), across=Axis(0, 10)) is None
