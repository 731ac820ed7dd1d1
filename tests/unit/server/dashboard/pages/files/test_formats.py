"""Pictures, arrays and texts, told apart by their first bytes."""

import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

from trainyard.server.dashboard.pages.files.arrays import (
    numpy_array,
    safetensors_header_size,
    safetensors_tensors,
)
from trainyard.server.dashboard.pages.files.pictures import picture_of
from trainyard.server.dashboard.pages.files.texts import (
    byte_dump,
    indented_json,
    is_text,
    separated_table,
    text_piece,
)
from trainyard.server.parquet_process import Unreadable, read_parquet_head

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">IIBBBBB", 30, 20, 8, 2, 0, 0, 0)
GIF = b"GIF89a" + struct.pack("<HH", 30, 20) + bytes(8)
JPEG = b"\xff\xd8\xff\xe0" + struct.pack(">H", 4) + b"ab" + b"\xff\xc0" + struct.pack(">HBHH", 17, 8, 20, 30) + bytes(9)
WEBP = b"RIFF" + bytes(4) + b"WEBPVP8X" + bytes(8) + (29).to_bytes(3, "little") + (19).to_bytes(3, "little")


@pytest.mark.parametrize(
    ("start", "content_type"), [(PNG, "image/png"), (GIF, "image/gif"), (JPEG, "image/jpeg"), (WEBP, "image/webp")]
)
def test_pictures_are_known_by_their_bytes(start: bytes, content_type: str) -> None:
    picture = picture_of(start)
    assert picture is not None
    assert (picture.content_type, picture.width, picture.height) == (content_type, 30, 20)
    assert picture.is_drawable
    assert picture_of(start[:9]) is None or not start.startswith(b"\x89PNG")


@pytest.mark.parametrize("start", [b"<svg onload=alert(1)>", b"<html>", b"", b"GIF8", zlib.compress(b"x")])
def test_nothing_else_is_a_picture(start: bytes) -> None:
    assert picture_of(start) is None


def test_a_picture_that_would_fill_the_memory_of_a_browser_is_not_drawn() -> None:
    picture = picture_of(PNG[:16] + struct.pack(">II", 60_000, 60_000) + bytes(8))
    assert picture is not None
    assert not picture.is_drawable


def test_safetensors_are_listed_by_their_header() -> None:
    file = save({"b": torch.zeros(2, 3), "a": torch.zeros(4, dtype=torch.bfloat16)}, {"format": "pt"})
    size = safetensors_header_size(file)
    assert size is not None
    found = safetensors_tensors(file[8 : 8 + size])
    assert found is not None
    tensors = {each["name"]: (each["dtype"], each["shape"], each["bytes"]) for each in found["tensors"]}
    assert tensors == {"b": ("F32", [2, 3], 24), "a": ("BF16", [4], 8)}
    assert (found["total"], found["elements"], found["metadata"]) == (2, 10, {"format": "pt"})


@pytest.mark.parametrize("header", [b"{", b"[]", b'{"a": 1}', b'{"a": {"shape": [1]}}', b"{" * 20_000, b"\xff"])
def test_a_damaged_header_is_no_safetensors(header: bytes) -> None:
    assert safetensors_tensors(header) is None


def test_a_header_of_any_size_is_not_read() -> None:
    assert safetensors_header_size(struct.pack("<Q", 2**40) + b"{") is None


@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_arrays_are_known_by_their_header(order: str) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((3, 4), dtype="<f8", order="F" if order == "F" else "C"))
    assert numpy_array(buffer.getvalue()) == {
        "dtype": "<f8",
        "shape": [3, 4],
        "elements": 12,
        "isColumnMajor": order == "F",
    }
    assert numpy_array(buffer.getvalue()[:20]) is None


def test_texts_are_told_from_bytes() -> None:
    assert is_text("Grüße, \x1b[31mred\x1b[0m\n".encode() * 1000)
    assert not is_text(bytes(range(256)))
    assert not is_text(bytes(range(128, 256)) * 50)
    assert byte_dump(b"ab\0" * 100)["lines"][0].endswith("ab.ab.ab.ab.ab.a")


def test_pieces_of_a_text_join_to_the_text() -> None:
    text = ("Zeile mit ü\n" * 40 + "ü" * 100).encode()
    found, first = "", 0
    while True:
        piece = text_piece(text[first : first + 97], first=first, total=len(text))
        found += piece["text"]
        if piece["next"] is None:
            break
        assert piece["next"] > first
        first = piece["next"]
    assert found == text.decode()


def test_json_is_indented_unless_that_would_be_long() -> None:
    shown = indented_json(b'{"a":[1]}')
    assert shown is not None
    assert shown["text"] == '{\n  "a": [\n    1\n  ]\n}'
    deep = "[" * 900 + ",".join(["1"] * 100_000) + "]" * 900
    assert indented_json(deep.encode()) is None
    assert indented_json(b"{" * 5000) is None
    assert json.loads(shown["text"]) == {"a": [1]}


def test_separated_values_become_a_table() -> None:
    table = separated_table(b'name;score\n"a; b";1\nc;2\n', is_whole=True)
    assert table is not None
    assert (table["columns"], table["rows"]) == (["name", "score"], [["a; b", "1"], ["c", "2"]])
    assert not table["hasMore"]
    numbers = separated_table(b"1,2\n3,4\n", is_whole=True)
    assert numbers is not None
    assert (numbers["columns"], len(numbers["rows"])) == (["1", "2"], 2)
    cut = separated_table(b"a,b\n1,2\n3", is_whole=False)
    assert cut is not None
    assert (cut["rows"], cut["hasMore"]) == ([["1", "2"]], True)
    assert separated_table(b"no separator\n", is_whole=True) is None


def test_parquet_is_read_by_another_process(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"id": list(range(500)), "name": ["x" * 400] * 500}), tmp_path / "a.parquet")
    found = read_parquet_head((tmp_path / "a.parquet").read_bytes())
    assert (found["columns"], found["types"], found["total"]) == (["id", "name"], ["int64", "string"], 500)
    assert (len(found["rows"]), found["rows"][1][0]) == (100, "1")
    assert len(found["rows"][0][1]) == 301
    with pytest.raises(Unreadable, match="damaged"):
        read_parquet_head(b"PAR1" + bytes(100))
