"""Many objects of the remote as files at once: small ones side by side, the pieces of a large one as well."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import Location
from trainyard.objects.contract import ObjectVersion, ObjectVersions, Replaced
from trainyard.objects.remote.crew import Pause, do_all

PIECE_BYTES = 4 << 20  # in memory at once for each request under way


@dataclass(frozen=True, slots=True)
class Wanted:
    """An object that shall become a file, whose folder exists. Without an `etag` the newest version is meant."""

    where: Location
    place: Path
    etag: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """The version of an object that becomes the file."""

    wanted: Wanted
    version: ObjectVersion


Missed = Callable[[Wanted, Exception], None]


def look_up(
    versions: ObjectVersions, wanted: Sequence[Wanted], *, check: Callable[[], None], missed: Missed | None = None
) -> list[Found]:
    """The versions that are wanted, in any order; only what has no `etag` is asked for.

    `check` is called every moment and may raise to end it. An object that is gone ends it too, with NotFound, unless
    `missed` wants to know of it. So does Unavailable.
    """
    found = [Found(each, versions.known(each.where, etag=each.etag, size=each.size)) for each in wanted if each.etag]
    gone: list[tuple[Wanted, Exception]] = []

    def look(each: Wanted, pause: Pause) -> None:
        try:
            found.append(Found(each, versions.newest(each.where, pause=pause)))
        except NotFound as error:
            if missed is None:
                raise
            gone.append((each, error))

    do_all(look, [each for each in wanted if not each.etag], check=check)
    if missed is not None:
        for each, error in gone:
            missed(each, error)
    return found


def download(found: Sequence[Found], *, check: Callable[[], None], missed: Missed | None = None) -> list[Found]:
    """Make files of versions, with a bounded number of requests and bytes under way; of which there are files now.

    `check` is called every moment and may raise to end it: what is under way then ends by itself, unheeded. An object
    that is gone or was replaced ends it too, with NotFound or Replaced, unless `missed` wants to know of it; there is
    no file of it then. Unavailable and OSError end it always.
    """
    lost: dict[Path, tuple[Wanted, Exception]] = {}

    def bring(piece: _Piece, pause: Pause) -> None:
        wanted = piece.of.wanted
        if wanted.place in lost:
            return
        try:
            data = piece.of.version.read(piece.offset, PIECE_BYTES, pause=pause)
        except (NotFound, Replaced) as error:
            if missed is None:
                raise
            lost[wanted.place] = wanted, error
        else:
            _write(wanted.place, piece.offset, data)

    do_all(bring, _pieces(found), check=check)
    for wanted, error in lost.values():
        wanted.place.unlink()
        assert missed is not None, "an object is lost only where someone wants to know"
        missed(wanted, error)
    return [each for each in found if each.wanted.place not in lost]


@dataclass(frozen=True, slots=True)
class _Piece:
    of: Found
    offset: int


def _pieces(found: Sequence[Found]) -> Iterator[_Piece]:
    """All pieces, in order; a file is made, and the disk promises its space, before its first piece is given."""
    for each in found:
        size = each.version.size
        with each.wanted.place.open("xb", buffering=0) as file:
            if size > PIECE_BYTES:
                os.posix_fallocate(file.fileno(), 0, size)
        yield from (_Piece(each, offset) for offset in range(0, size, PIECE_BYTES))


def _write(place: Path, offset: int, data: bytes) -> None:
    with place.open("r+b", buffering=0) as file:
        view = memoryview(data)
        while view:
            written = os.pwrite(file.fileno(), view, offset)
            offset, view = offset + written, view[written:]
