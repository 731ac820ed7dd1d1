"""Shows the start of a file as text, as indented JSON, as a table, or byte by byte."""

import csv
import io
import json
import re
from collections.abc import Iterator
from itertools import islice

from trainyard.server.services.contract import Shape

PIECE_BYTES = 192 * 1024
MAX_JSON_BYTES = 1024 * 1024

_MAX_SHOWN_JSON = 1_500_000
_ROWS, _COLUMNS, _CELL = 200, 60, 300
_DUMP_BYTES = 512
_CONTROLS = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")


def is_text(start: bytes) -> bool:
    """Whether a file looks like text, by its first bytes: few of them may be controls, or no UTF-8."""
    sample = start[:8192]
    if b"\0" in sample:
        return False
    unreadable = sample.decode("utf-8", "replace").count("\ufffd") - sample.decode("utf-8", "ignore").count("\ufffd")
    return len(_CONTROLS.findall(sample)) + unreadable <= max(2, len(sample) // 50)


def text_piece(piece: bytes, *, first: int, total: int) -> Shape:
    """Return a piece of a text that ends with a line where there is one, and where the next piece begins."""
    end = len(piece)
    if first + end < total:
        newline = piece.rfind(b"\n")
        end = newline + 1 if newline > 0 else _whole_characters(piece)
    following = first + end
    return {
        "kind": "text",
        "text": piece[:end].decode("utf-8", "replace"),
        "first": first,
        "next": following if following < total else None,
    }


def indented_json(content: bytes) -> Shape | None:
    """Return a JSON document with one member on each line; None if it is none, or too long that way."""
    try:
        value = json.loads(content)
        pieces, size = list[str](), 0
        # Much nesting makes much indentation.
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
            pieces.append(piece)
            size += len(piece)
            if size > _MAX_SHOWN_JSON:
                return None
    except (ValueError, RecursionError):
        return None
    return {"kind": "text", "text": "".join(pieces), "first": 0, "next": None, "isIndented": True}


def separated_table(piece: bytes, *, is_whole: bool) -> Shape | None:
    """Return the first rows of a file of separated values; None if it is none."""
    text = piece.decode("utf-8-sig", "replace")
    if not is_whole:
        text = text[: text.rfind("\n") + 1]
    separator = _separator(text.partition("\n")[0])
    if not separator:
        return None
    try:
        rows = list(islice(csv.reader(io.StringIO(text), delimiter=separator), _ROWS + 2))
    except csv.Error:
        return None
    if not rows:
        return None
    has_heading = not any(_is_number(cell) for cell in rows[0])
    heading = rows.pop(0) if has_heading else [f"{number}" for number in range(1, len(rows[0]) + 1)]
    width = min(_COLUMNS, max((len(row) for row in (heading, *rows)), default=0))
    return {
        "kind": "table",
        "columns": _cells(heading, width),
        "rows": [_cells(row, width) for row in rows[:_ROWS]],
        "hasMore": len(rows) > _ROWS or not is_whole,
        "hasMoreColumns": width == _COLUMNS and any(len(row) > width for row in (heading, *rows)),
    }


def byte_dump(start: bytes) -> Shape:
    """Return the first bytes of a file that is neither text nor anything else that is known."""
    return {"kind": "bytes", "lines": list(_dump_lines(start[:_DUMP_BYTES])), "shown": min(len(start), _DUMP_BYTES)}


def _dump_lines(data: bytes) -> Iterator[str]:
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{start:08x}  {row.hex(' '):<47}  {letters}"


def _whole_characters(piece: bytes) -> int:
    """Return how many bytes are whole characters: the last may have been cut."""
    for back in range(1, min(4, len(piece)) + 1):
        byte = piece[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(piece) - back if back < length else len(piece)
    return len(piece)


def _separator(line: str) -> str:
    counts = {each: line.count(each) for each in (",", "\t", ";", "|")}
    best = max(counts, key=lambda each: counts[each])
    return best if counts[best] else ""


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _cells(row: list[str], width: int) -> list[str]:
    cut = [cell if len(cell) <= _CELL else f"{cell[:_CELL]}…" for cell in row[:width]]
    return cut + [""] * (width - len(cut))
