"""Log streams: raw bytes in log segments, each with an index of what arrived when.

A stream is a folder. Its bytes are numbered from 0; the number of a byte is its offset and never changes. A log segment
is a file `<offset of the first byte, 20 digits>.log` with an index of fixed-size records, `<the same>.index`, one
record per append. Writing does no work per line: lines are found when they are read.

An append makes an *entry*: some bytes and the millisecond at which they came. A reader sees *events*:

- A whole entry (a message that may itself contain newlines) is one event. A newline that is not part of it follows its
  bytes, so that an empty message has its own offset too and the segment reads as text.
- In other entries every line is an event; `\\n` or `\\r\\n` ends it and is not part of it. A line belongs to the entry
  in which it starts, and has that entry's time, wherever it ends. So the time of an event never changes.
- A line without its newline is not an event yet, because it may still grow. `LogWriter.end_line` ends it; so does a
  whole entry that follows it.
- A line of more than 1 MiB is split into events of 1 MiB.

The offset of its first byte identifies an event. The bytes of an append are written before its record, and only bytes
with a record count: readers in other processes never see half an append, and after a crash the next writer truncates
bytes without a record and records without bytes. An append that returned is complete; one that was also synced survives
a power cut.

Segments may be removed from the front or the middle; a line that this cuts off ends there.
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
