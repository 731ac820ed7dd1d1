"""Lines of log streams by number: where each begins, in constant time and without reading what comes before.

A line is what a person sees in the text of a stream: bytes up to a newline, however many appends, events or segments
they came in. Lines are numbered from 0. The last one may still grow. Where segments were removed, the line before the
gap ends there, and what is left of the line after it begins a new one; only lines that remain are counted.
"""

from trainyard.formats.logs.lines.index import IndexedLines, LineIndex, LineIndexes
from trainyard.formats.logs.lines.merged import MergedLines
from trainyard.formats.logs.lines.reader import LineReader, LogLine

__all__ = ["IndexedLines", "LineIndex", "LineIndexes", "LineReader", "LogLine", "MergedLines"]
