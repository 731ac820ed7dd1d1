"""The segment files of one worker and kind as rows, read in place. The newest may still grow."""

import logging
import mmap
import os
import shutil
import tempfile
import weakref
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import TensorTable
from trainyard.formats.tensors.encoding.arrow_stream import BatchRun, Field, Scanner, Schema, column, merge_runs
from trainyard.formats.tensors.encoding.json_documents import decode_table
from trainyard.formats.tensors.recordings.layout import FORMAT, FORMAT_KEY, SEGMENT_SUFFIX, TABLE_KEY
from trainyard.foundation.errors import Corrupt, NotFound, Unavailable
from trainyard.foundation.sources import ByteSource, HasLocalFiles

log = logging.getLogger(__name__)

# From this many rows per batch on, a view costs less than a copy.
_MIN_VIEW_ROWS = 8
# A segment may arrive late, behind up to this many newer ones.
_MAX_LATE_SEGMENTS = 4
# Each map keeps a file open.
_MAX_MAPS = 128


@dataclass(frozen=True, slots=True)
class Block:
    """Equally spaced rows of one segment; the first is row `first` of the worker."""

    segment: "TensorSegment"
    run: BatchRun
    first: int
    rows: int

    @property
    def end(self) -> int:
        return self.first + self.rows

    @property
    def table(self) -> TensorTable:
        return self.segment.table

    def column(self, name: str, items: slice | int | None = None) -> NDArray[Any] | None:
        """Return a column of all rows, or the selected items of its lists; None if the segment lacks the column.

        A view if the rows are in one batch, else a copy.
        """
        found = self.segment.column(name, self.run)
        if found is None:
            return None
        if items is not None:
            found = found[:, :, items]
        return found.reshape(-1, *found.shape[2:])[: self.rows]

    def parts(self, rows: slice) -> "Iterator[Block]":
        """Iterate over the batches with some rows; large ones one by one, so that each is read in place."""
        size, end = self.run.layout.rows, min(self.end, rows.stop)
        first, last = max(0, rows.start - self.first) // size, -(-(end - self.first) // size)
        together = 1 if size >= _MIN_VIEW_ROWS else max(1, last - first)
        for batch in range(first, last, together):
            run = replace(self.run, start=self.run.start + batch * self.run.stride, count=min(together, last - batch))
            yield Block(self.segment, run, self.first + batch * size, min(run.rows, self.rows - batch * size))

    def at(self, name: str, row: int) -> NDArray[Any] | None:
        """Return the value of a column in one row of the worker."""
        found = self.segment.column(name, self.run)
        if found is None:
            return None
        batch, place = divmod(row - self.first, self.run.layout.rows)
        return np.asarray(found[batch, place])


class TensorSegment:
    """One segment file, and how much of it has been read."""

    def __init__(self, name: str, files: "SegmentFiles") -> None:
        self.name, self._files = name, files
        self._scanner, self._size = Scanner(), 0

    @property
    def is_sealed(self) -> bool:
        """Whether no further batch of it can be read: it has ended or is damaged."""
        return self._scanner.has_ended or bool(self._scanner.damage)

    def may_grow_to(self, size: int) -> bool:
        return size > self._size and not self.is_sealed

    def grow(self, size: int) -> list[BatchRun]:
        """Read the batches that are new now that the file has `size` bytes."""
        if not self.may_grow_to(size):
            return []
        runs = self._scanner.scan(self._files.buffer(self.name, size))
        self._size = size
        if self._scanner.damage:
            known = {"file": self.name, "byte": self._scanner.offset, "why": self._scanner.damage}
            log.warning("a segment of a trial is damaged; the rest of it is skipped", extra=known)
        return runs

    @cached_property
    def table(self) -> TensorTable:
        written = self._schema.metadata.get(FORMAT_KEY, "none")
        if written != FORMAT:
            raise Corrupt(
                f'The trial file "{self.name}" has the format {written}, but this version of Trainyard reads '
                f"{FORMAT}. Try a newer version."
            )
        return decode_table(self._schema.metadata.get(TABLE_KEY, ""))

    def column(self, name: str, run: BatchRun) -> NDArray[Any] | None:
        if name not in self._fields:
            return None
        place, field = self._fields[name]
        return column(self._files.buffer(self.name, self._size), run, place, of=field)

    @cached_property
    def _fields(self) -> dict[str, tuple[int, Field]]:
        return {field.name: (place, field) for place, field in enumerate(self._schema.fields)}

    @property
    def _schema(self) -> Schema:
        assert self._scanner.schema is not None, "a segment with rows has a schema"
        return self._scanner.schema


class SegmentLog:
    """The segments of one worker and kind, in the order in which they were made."""

    def __init__(self, folder: str, source: ByteSource, maps: "FileMaps") -> None:
        self._files = SegmentFiles(folder, source, maps)
        self._segments: list[TensorSegment] = []
        self.blocks: list[Block] = []

    def __len__(self) -> int:
        return self.blocks[-1].end if self.blocks else 0

    def refresh(self, *, newest: str = "", is_thorough: bool = False) -> Iterator[Block]:
        """Iterate over new rows, block by block; the caller may `truncate` the log and must `add` each block.

        The log may get shorter: a segment that arrives out of order, as it may when files are uploaded to a store,
        takes its place, and the rows after it come again. Segments other than the last are read only if that is sealed,
        if `newest` is another, or if `is_thorough`.
        """
        last = self._segments[-1] if self._segments else None
        if last is not None and not last.is_sealed and newest == last.name and not is_thorough:
            yield from self._grow(last, self._files.size(last.name))
            # The next segment is not announced yet.
            if not last.is_sealed:
                return
        settled = self._segments[-_MAX_LATE_SEGMENTS - 1].name if len(self._segments) > _MAX_LATE_SEGMENTS else ""
        for name, size in self._files.after(settled):
            known = next((each for each in self._segments[-_MAX_LATE_SEGMENTS:] if each.name == name), None)
            if known is None or (known.may_grow_to(size) and known is not self._segments[-1]):
                self._remove_from(name)
                known = TensorSegment(name, self._files)
                self._segments.append(known)
            yield from self._grow(known, size)

    def add(self, block: Block) -> None:
        """Append a block from `refresh`."""
        last = self.blocks[-1] if self.blocks else None
        if last is not None and last.segment is block.segment and last.rows == last.run.rows:
            runs = merge_runs([last.run], [block.run])
            if len(runs) == 1:
                self.blocks[-1] = replace(last, run=runs[0], rows=runs[0].rows)
                return
        self.blocks.append(replace(block, first=len(self)))

    def truncate(self, size: int) -> None:
        """Remove all rows from `size` on."""
        while self.blocks and self.blocks[-1].first >= size:
            self.blocks.pop()
        if self.blocks and self.blocks[-1].end > size:
            self.blocks[-1] = replace(self.blocks[-1], rows=size - self.blocks[-1].first)

    def block_of(self, row: int) -> Block:
        return self.blocks[bisect_right(self.blocks, row, key=lambda block: block.first) - 1]

    def _grow(self, segment: TensorSegment, size: int) -> Iterator[Block]:
        for run in segment.grow(size):
            yield Block(segment, run, len(self), run.rows)

    def _remove_from(self, name: str) -> None:
        self._segments = [each for each in self._segments if each.name < name]
        while self.blocks and self.blocks[-1].segment.name >= name:
            self.blocks.pop()


class SegmentFiles:
    """Memory maps of the files of a folder; remote files are first downloaded to a temporary folder."""

    def __init__(self, folder: str, source: ByteSource, maps: "FileMaps") -> None:
        self._folder, self._source, self._maps = folder, source, maps
        self._local = source if isinstance(source, HasLocalFiles) else None
        self._download_folder: Path | None = None

    def after(self, name: str) -> list[tuple[str, int]]:
        entries = self._source.entries(self._folder, after=name)
        return [(entry.name, entry.size) for entry in entries if entry.name.endswith(SEGMENT_SUFFIX)]

    def size(self, name: str) -> int:
        try:
            return self._source.size(f"{self._folder}/{name}")
        # Someone has deleted it.
        except NotFound:
            return 0

    def buffer(self, name: str, size: int) -> memoryview:
        """Return the first `size` bytes of a file, or fewer if it has become shorter."""
        known = self._maps.get(self._path(name), size)
        return known or self._maps.put(self._fetch(name, size), size)

    def _path(self, name: str) -> Path:
        if self._local is not None:
            return self._local.path(f"{self._folder}/{name}")
        if self._download_folder is None:
            self._download_folder = Path(tempfile.mkdtemp(prefix="trainyard-trial-"))
            weakref.finalize(self, shutil.rmtree, self._download_folder, ignore_errors=True)
        return self._download_folder / name

    def _fetch(self, name: str, size: int) -> Path:
        path = self._path(name)
        present_bytes = size if self._local is not None else path.stat().st_size if path.exists() else 0
        if present_bytes < size:
            missing = self._source.read(f"{self._folder}/{name}", start=present_bytes, size=size - present_bytes)
            with path.open("ab") as file:
                file.write(missing)
        return path


class FileMaps:
    """Memory maps of the most recently used files."""

    def __init__(self) -> None:
        self._maps: OrderedDict[Path, memoryview] = OrderedDict()

    def get(self, path: Path, size: int) -> memoryview | None:
        """Return the bytes of a file if at least `size` of them are mapped."""
        found = self._maps.get(path)
        if found is None or len(found) < size:
            return None
        self._maps.move_to_end(path)
        return found

    def put(self, path: Path, size: int) -> memoryview:
        """Map a file. A map that is evicted stays valid for its users."""
        found = self._maps[path] = _map_file(path, size)
        self._maps.move_to_end(path)
        if len(self._maps) > _MAX_MAPS:
            self._maps.popitem(last=False)
        return found


def _map_file(path: Path, size: int) -> memoryview:
    try:
        with path.open("rb", buffering=0) as file:
            # Reading a map beyond the end of its file would crash the process.
            size = min(size, os.fstat(file.fileno()).st_size)
            return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror or error}.") from error
