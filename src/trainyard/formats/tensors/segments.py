"""The files of one worker of one kind, of which the newest may still grow, as rows that are read where they lie."""

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

from trainyard.formats.tensors.arrow_stream import Field, Run, Scanner, Schema, column, joined
from trainyard.formats.tensors.contract import TensorTable
from trainyard.formats.tensors.layout import FORMAT, FORMAT_KEY, SEGMENT_SUFFIX, TABLE_KEY
from trainyard.formats.tensors.tables import decode_table
from trainyard.foundation.errors import Corrupt, NotFound, Unavailable
from trainyard.foundation.sources import ByteSource, LiesInFolder

log = logging.getLogger(__name__)

_WORTH_A_VIEW = 8  # rows of a batch, from which on a look at it costs less than a copy of its numbers
_LATE = 4  # segments, of those behind which one may still come
_MOST_MAPS = 128  # at a time, because each holds a file open


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of one segment that lie at equal distances; the first of them is row `first` of the worker."""

    segment: "Segment"
    run: Run
    first: int
    rows: int

    @property
    def end(self) -> int:
        return self.first + self.rows

    @property
    def table(self) -> TensorTable:
        return self.segment.table

    def column(self, name: str, items: slice | int | None = None) -> NDArray[Any] | None:
        """A column of all rows, or of its lists the items meant; None where the segment has no such column.

        A view where the rows lie in one batch, else a copy.
        """
        found = self.segment.column(name, self.run)
        if found is None:
            return None
        if items is not None:
            found = found[:, :, items]
        return found.reshape(-1, *found.shape[2:])[: self.rows]

    def parts(self, rows: slice) -> "Iterator[Block]":
        """The batches in which some rows lie: one by one where they are large, to be read where they lie."""
        size, end = self.run.layout.rows, min(self.end, rows.stop)
        first, last = max(0, rows.start - self.first) // size, -(-(end - self.first) // size)
        together = 1 if size >= _WORTH_A_VIEW else max(1, last - first)
        for batch in range(first, last, together):
            run = replace(self.run, start=self.run.start + batch * self.run.stride, count=min(together, last - batch))
            yield Block(self.segment, run, self.first + batch * size, min(run.rows, self.rows - batch * size))

    def at(self, name: str, row: int) -> NDArray[Any] | None:
        """What a column holds in one row of the worker."""
        found = self.segment.column(name, self.run)
        if found is None:
            return None
        batch, place = divmod(row - self.first, self.run.layout.rows)
        return np.asarray(found[batch, place])


class Segment:
    """One file, and how much of it is known."""

    def __init__(self, name: str, files: "SegmentFiles") -> None:
        self.name, self._files = name, files
        self._scanner, self._size = Scanner(), 0

    @property
    def is_sealed(self) -> bool:
        """Whether nothing of it can come any more that could be read."""
        return self._scanner.has_ended or bool(self._scanner.damage)

    def may_grow_to(self, size: int) -> bool:
        return size > self._size and not self.is_sealed

    def grow(self, size: int) -> list[Run]:
        """The batches that are new now that the file is so large."""
        if not self.may_grow_to(size):
            return []
        runs = self._scanner.scan(self._files.buffer(self.name, size))
        self._size = size
        if self._scanner.damage:
            known = {"file": self.name, "byte": self._scanner.offset, "why": self._scanner.damage}
            log.warning("a file of a trial is damaged; what lies behind is left out", extra=known)
        return runs

    @cached_property
    def table(self) -> TensorTable:
        written = self._schema.metadata.get(FORMAT_KEY, "none")
        if written != FORMAT:
            raise Corrupt(
                f'The file "{self.name}" of a trial is of the format {written}, and this version of Trainyard reads '
                f"{FORMAT}; a newer one may read it."
            )
        return decode_table(self._schema.metadata.get(TABLE_KEY, ""))

    def column(self, name: str, run: Run) -> NDArray[Any] | None:
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
    """The segments of one worker of one kind, in the order in which they were made."""

    def __init__(self, folder: str, source: ByteSource, maps: "Maps") -> None:
        self._files = SegmentFiles(folder, source, maps)
        self._segments: list[Segment] = []
        self.blocks: list[Block] = []

    def __len__(self) -> int:
        return self.blocks[-1].end if self.blocks else 0

    def refresh(self, *, newest: str = "", is_thorough: bool = False) -> Iterator[Block]:
        """Find the rows that have come, block by block; the caller may `cut` what there is, and has to `add` each.

        The rows may be fewer than before: what comes out of order, as it may where files are brought to a store, takes
        its place, and what lies behind is told again. Other segments than the last are looked at where that is sealed,
        where `newest` is another, or when asked to.
        """
        last = self._segments[-1] if self._segments else None
        if last is not None and not last.is_sealed and newest == last.name and not is_thorough:
            yield from self._grow(last, self._files.size(last.name))
            return
        settled = self._segments[-_LATE - 1].name if len(self._segments) > _LATE else ""
        for name, size in self._files.after(settled):
            known = next((each for each in self._segments[-_LATE:] if each.name == name), None)
            if known is None or (known.may_grow_to(size) and known is not self._segments[-1]):
                self._forget_from(name)
                known = Segment(name, self._files)
                self._segments.append(known)
            yield from self._grow(known, size)

    def add(self, block: Block) -> None:
        """Take a block that `refresh` gave; it comes behind all that is there."""
        last = self.blocks[-1] if self.blocks else None
        if last is not None and last.segment is block.segment and last.rows == last.run.rows:
            runs = joined([last.run], [block.run])
            if len(runs) == 1:
                self.blocks[-1] = replace(last, run=runs[0], rows=runs[0].rows)
                return
        self.blocks.append(replace(block, first=len(self)))

    def cut(self, size: int) -> None:
        """Forget all rows from one on."""
        while self.blocks and self.blocks[-1].first >= size:
            self.blocks.pop()
        if self.blocks and self.blocks[-1].end > size:
            self.blocks[-1] = replace(self.blocks[-1], rows=size - self.blocks[-1].first)

    def block_of(self, row: int) -> Block:
        return self.blocks[bisect_right(self.blocks, row, key=lambda block: block.first) - 1]

    def _grow(self, segment: Segment, size: int) -> Iterator[Block]:
        for run in segment.grow(size):
            yield Block(segment, run, len(self), run.rows)

    def _forget_from(self, name: str) -> None:
        self._segments = [each for each in self._segments if each.name < name]
        while self.blocks and self.blocks[-1].segment.name >= name:
            self.blocks.pop()


class SegmentFiles:
    """The files of a folder as memory: mapped where they are local, else brought to a temporary folder first."""

    def __init__(self, folder: str, source: ByteSource, maps: "Maps") -> None:
        self._folder, self._source, self._maps = folder, source, maps
        self._near = source if isinstance(source, LiesInFolder) else None
        self._copies: Path | None = None

    def after(self, name: str) -> list[tuple[str, int]]:
        entries = self._source.entries(self._folder, after=name)
        return [(entry.name, entry.size) for entry in entries if entry.name.endswith(SEGMENT_SUFFIX)]

    def size(self, name: str) -> int:
        try:
            return self._source.size(f"{self._folder}/{name}")
        except NotFound:  # taken away by someone who tidies up
            return 0

    def buffer(self, name: str, size: int) -> memoryview:
        """The first `size` bytes of a file, or fewer where it has become shorter."""
        known = self._maps.get(self._path(name), size)
        return known or self._maps.put(self._brought(name, size), size)

    def _path(self, name: str) -> Path:
        if self._near is not None:
            return self._near.path(f"{self._folder}/{name}")
        if self._copies is None:
            self._copies = Path(tempfile.mkdtemp(prefix="trainyard-trial-"))
            weakref.finalize(self, shutil.rmtree, self._copies, ignore_errors=True)
        return self._copies / name

    def _brought(self, name: str, size: int) -> Path:
        path = self._path(name)
        have = size if self._near is not None else path.stat().st_size if path.exists() else 0
        if have < size:
            more = self._source.read(f"{self._folder}/{name}", start=have, size=size - have)
            with path.open("ab") as file:
                file.write(more)
        return path


class Maps:
    """Files in memory, as many as were looked at last."""

    def __init__(self) -> None:
        self._maps: OrderedDict[Path, memoryview] = OrderedDict()

    def get(self, path: Path, size: int) -> memoryview | None:
        """The bytes of a file, if so many of it are mapped."""
        found = self._maps.get(path)
        if found is None or len(found) < size:
            return None
        self._maps.move_to_end(path)
        return found

    def put(self, path: Path, size: int) -> memoryview:
        """Map a file; whoever still looks at one that goes for it keeps that."""
        found = self._maps[path] = _mapped(path, size)
        self._maps.move_to_end(path)
        if len(self._maps) > _MOST_MAPS:
            self._maps.popitem(last=False)
        return found


def _mapped(path: Path, size: int) -> memoryview:
    try:
        with path.open("rb", buffering=0) as file:
            size = min(size, os.fstat(file.fileno()).st_size)  # what lies behind the end of a file cannot be looked at
            return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror or error}.") from error
