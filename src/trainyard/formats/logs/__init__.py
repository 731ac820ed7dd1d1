"""Logs: raw bytes in segments, and beside each an index that says what arrived when.

A stream is a folder. Its bytes are numbered from 0; a byte's number is its offset and never changes. Segments are
files `<offset of the first byte, 20 digits>.log`, each with an index of fixed records, `<the same>.index`, one record
per append. Nothing is done per line when writing: lines are found when they are read.

An append makes an *entry*: some bytes and the millisecond they came at. What a reader sees are *events*:

- A whole entry (a message that may itself hold newlines) is one event. Its bytes are followed by a newline that is not
  part of it, so that an empty message has an offset of its own too and the segment reads as text.
- In other entries every line is an event; `\\n` or `\\r\\n` ends it and is not part of it. A line belongs to the entry
  that it starts in, and has that entry's time, wherever it ends. So the time of an event never changes.
- A line without its newline is no event yet, because it may still grow. `LogWriter.end_line` ends it; so does a whole
  entry that follows it.
- A line of more than 1 MiB is cut into events of 1 MiB.

An event is named by the offset of its first byte. The bytes of an append are written before its record, and only what
has a record exists: readers in other processes never see half an append, and after a crash the next writer cuts off
what has no record, or a record whose bytes are missing. An append that returned is whole; one that was also synced
survives a power cut.

Segments may be removed from the front or the middle; a line that was cut off by that ends there.
"""

from trainyard.formats.logs.reader import LogPage, LogReader, LogSummary
from trainyard.formats.logs.segments import MAX_EVENT_BYTES, SEGMENT_BYTES
from trainyard.formats.logs.view import LogEvent, TimeRange
from trainyard.formats.logs.writer import LogWriter

__all__ = [
    "MAX_EVENT_BYTES",
    "SEGMENT_BYTES",
    "LogEvent",
    "LogPage",
    "LogReader",
    "LogSummary",
    "LogWriter",
    "TimeRange",
]
