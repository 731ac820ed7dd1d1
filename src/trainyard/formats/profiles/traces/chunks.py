"""The text of a trace as batches of events, with a bounded part of it in memory.

A trace is an object with `traceEvents`, or those alone. It is read in blocks, each cut where one event ends and the
next begins. Whether a place that looks so is one is known when the text before it decodes: text that ends inside an
event or a string does not. Where a block does not decode, its events are taken one by one, and those that are damaged
are left out and counted.
"""

import json
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from trainyard.formats.profiles.traces.records import EventRecord, decode_record, decode_records

# Blocks of this size stay in the caches of a processor while they are parsed: larger ones take half as long again.
BLOCK_BYTES = 1 << 19
# Longer than the properties of many devices, and than any event.
MAX_HEADER_BYTES = 16 << 20
MAX_EVENT_BYTES = 32 << 20

_GZIP = b"\x1f\x8b"
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BORDER = re.compile(rb"\}\s*,\s*(?=\{)")
_TEXT_BORDER = re.compile(r"\}(?=\s*(?:,\s*\{|\]))")
_END = re.compile(rb"\}\s*\]")
_SPACE = " \t\r\n"
_DECODER = json.JSONDecoder(strict=False)
# In how many places the end of a damaged event is looked for.
_MAX_ENDS = 8
# The longest word or escape that text can end in the middle of.
_MAX_LITERAL = 16


class TraceText:
    """The parts of a trace's text. `batches` is read once; what is known afterwards are the other attributes."""

    def __init__(self, file: BinaryIO) -> None:
        self.header: dict[str, object] = {}
        self.notes: list[str] = []
        self.is_complete = True
        self.is_trace = True
        self.damaged = 0
        self._blocks = self._read_blocks(file)
        self._buffer = b""

    def batches(self) -> Iterator[list[EventRecord]]:
        """Yield the events in the order of the file."""
        if not self._find_events():
            return
        while True:
            block = next(self._blocks, b"")
            self._buffer = self._buffer + block if self._buffer else block
            records, has_ended = self._take_records(is_last=not block)
            if records:
                yield records
            if has_ended or not block:
                break
        if not has_ended:
            self._miss_rest()

    def _find_events(self) -> bool:
        """Read up to the first event; False if there is none."""
        while not (found := _EVENTS.search(self._buffer)):
            block = next(self._blocks, b"")
            self._buffer += block
            start = self._buffer.lstrip()[:1]
            if start == b"[":
                self._buffer = self._buffer.lstrip()[1:]
                return True
            if not block or start not in (b"{", b"") or len(self._buffer) > MAX_HEADER_BYTES:
                self._refuse(is_empty=not start)
                return False
        self._read_header(self._buffer[: found.start()].rstrip().rstrip(b",") + b"}")
        self._buffer = self._buffer[found.end() :]
        return True

    def _refuse(self, *, is_empty: bool) -> None:
        self.is_trace = False
        if is_empty and not self.notes:
            self.notes.append("The file is empty.")
        elif not self.notes:
            self.notes.append("The file is not a trace: it has no traceEvents.")

    def _read_header(self, text: bytes) -> None:
        for candidate in (text, re.sub(rb"\\(?![\\\"/bfnrtu])", rb"\\\\", text)):
            try:
                document = json.loads(candidate.decode(errors="replace"), strict=False)
            except (ValueError, RecursionError):
                continue
            if isinstance(document, dict):
                self.header |= document
            return
        self.notes.append("What the trace says about itself is damaged and was left out.")

    def _take_records(self, *, is_last: bool) -> tuple[list[EventRecord], bool]:
        """Take the whole events from the buffer, and return whether their list has ended."""
        buffer = self._buffer
        if is_last:
            end = _last_match(_END, buffer)
            records = decode_records(buffer[: end.start() + 1]) if end else None
            if end and records is not None:
                self._read_footer(buffer[end.end() :])
                return records, True
        else:
            border = _last_match(_BORDER, buffer)
            records = decode_records(buffer[: border.start() + 1]) if border else None
            if border and records is not None:
                self._buffer = buffer[border.end() :]
                return records, False
        return self._take_one_by_one(is_last=is_last)

    def _take_one_by_one(self, *, is_last: bool) -> tuple[list[EventRecord], bool]:
        text = self._buffer.decode(errors="surrogateescape")
        records: list[EventRecord] = []
        place = 0
        while True:
            place = _skip(text, place, _SPACE + ",")
            if place >= len(text) or text[place] == "]":
                break
            record, end = _next_record(text, place)
            if end is None:
                if is_last or len(text) - place < MAX_EVENT_BYTES:
                    break
                end = len(text)
            place = end
            if record is None:
                self.damaged += 1
            else:
                records.append(record)
        rest = text[place:].encode(errors="surrogateescape")
        if rest.startswith(b"]"):
            self._read_footer(rest[1:])
            return records, True
        self._buffer = rest
        return records, False

    def _read_footer(self, text: bytes) -> None:
        for block in self._blocks:
            text += block
            if len(text) > MAX_HEADER_BYTES:
                break
        text = text.strip().strip(b",").strip()
        if text not in (b"", b"}"):
            self._read_header(b"{" + text)

    def _miss_rest(self) -> None:
        self.is_complete = False
        if self._buffer.strip(b" \t\r\n,"):
            self.notes.append("The trace ends in the middle of an event; what is before it was read.")
        else:
            self.notes.append("The trace ends before its list of events does; what is there was read.")

    def _read_blocks(self, file: BinaryIO) -> Iterator[bytes]:
        block = file.read(BLOCK_BYTES)
        if block.startswith(_GZIP):
            yield from self._decompress(file, block)
            return
        while block:
            yield block
            block = file.read(BLOCK_BYTES)

    def _decompress(self, file: BinaryIO, data: bytes) -> Iterator[bytes]:
        inflater = zlib.decompressobj(wbits=31)
        while data:
            try:
                block = inflater.decompress(data, BLOCK_BYTES)
            except zlib.error:
                self.is_complete = False
                self.notes.append("The compressed data is damaged; what is before the damage was read.")
                return
            if block:
                yield block
            data = inflater.unconsumed_tail
            if inflater.eof:
                data = inflater.unused_data or file.read(BLOCK_BYTES)
                # What may follow is another compressed part, or padding.
                if not data.startswith(_GZIP):
                    return
                inflater = zlib.decompressobj(wbits=31)
            data = data or file.read(BLOCK_BYTES)
        self.is_complete = False
        self.notes.append("The compressed data ends early; what is there was read.")


def _last_match(pattern: re.Pattern[bytes], text: bytes) -> re.Match[bytes] | None:
    """Return the last match, looking at a growing part of the end."""
    window = 1 << 14
    while True:
        start = max(0, len(text) - window)
        found = None
        for found in pattern.finditer(text, start):  # noqa: B007
            pass
        if found or not start:
            return found
        window <<= 4


def _next_record(text: str, place: int) -> tuple[EventRecord | None, int | None]:
    """Return the event at a place and where it ends. It is None if damaged; the end is None if the event has none."""
    try:
        _, end = _DECODER.raw_decode(text, place)
    except RecursionError:
        return _mended_record(text, place)
    except json.JSONDecodeError as error:
        is_cut = error.pos >= len(text) - _MAX_LITERAL or error.msg.startswith("Unterminated string")
        return (None, None) if is_cut else _mended_record(text, place)
    return decode_record(text[place:end]), end


def _mended_record(text: str, place: int) -> tuple[EventRecord | None, int | None]:
    first = None
    for number, border in enumerate(_TEXT_BORDER.finditer(text, place)):
        end = border.end()
        first = first or end
        record = decode_record(text[place:end])
        if record is not None:
            return record, end
        if number == _MAX_ENDS:
            break
    return None, first


def _skip(text: str, place: int, characters: str) -> int:
    while place < len(text) and text[place] in characters:
        place += 1
    return place
