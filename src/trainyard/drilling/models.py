"""Whether two models are the same: archives compared file by file."""

import filecmp
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainyard.drilling.tensors import NONE, Distance, distance
from trainyard.foundation.disk import reserve_of
from trainyard.foundation.errors import Corrupt

_LONGEST_SUFFIX = 20


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two models differ. `others` are files that only one has, or whose bytes differ and that hold no tensors."""

    files: int
    apart: Distance = NONE
    others: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        return not self.others and self.apart.value == 0.0

    def is_within(self, tolerance: float) -> bool:
        """Whether all numbers are as close as that, and all else is equal."""
        return not self.others and self.apart.value <= tolerance


def compare_models(first: Path, second: Path) -> Comparison:
    """Compare two model.tar.gz: bytes first and, where they differ, the tensors in them."""
    with tempfile.TemporaryDirectory(prefix="trainyard-drill-") as folder:
        ours, theirs = (_unpack(archive, Path(folder, str(number))) for number, archive in enumerate((first, second)))
        apart, others = NONE, [*(ours.keys() ^ theirs.keys())]
        for name in sorted(ours.keys() & theirs.keys()):
            if filecmp.cmp(ours[name], theirs[name], shallow=False):
                continue
            found = distance(ours[name], theirs[name])
            if found is None:
                others.append(name)
            elif found.value > apart.value:
                apart = Distance(found.value, f"{name}: {found.where}" if found.where else name)
        return Comparison(len(ours.keys() | theirs.keys()), apart, tuple(sorted(others)))


def _unpack(archive: Path, target: Path) -> Mapping[str, Path]:
    """The files of an archive, by their names in it; a link is a file that says where it leads.

    A job wrote the archive, or whatever ran in it: so no name in it becomes a path here, and no link is made.
    """
    target.mkdir()
    files: dict[str, Path] = {}
    try:
        with tarfile.open(archive) as opened:
            for entry in opened:
                place = target / f"{len(files)}{_suffix(entry.name)}"
                if entry.isreg():
                    _require_room(archive, entry, target)
                    source = opened.extractfile(entry)
                    assert source is not None, "a file has bytes"
                    with place.open("xb") as file:
                        shutil.copyfileobj(source, file)
                elif entry.issym() or entry.islnk():
                    place.write_text(f"a link to {entry.linkname}", errors="surrogateescape")
                else:
                    continue
                files[entry.name.removeprefix("./")] = place
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise Corrupt(f"{archive.name} cannot be unpacked: {error}.") from error
    return files


def _suffix(name: str) -> str:
    """By which it is known what kind of file it is; nothing where that may be none."""
    suffix = PurePosixPath(name).suffix
    return suffix if suffix[1:].isalnum() and len(suffix) <= _LONGEST_SUFFIX else ""


def _require_room(archive: Path, entry: tarfile.TarInfo, target: Path) -> None:
    if not reserve_of(target).leaves(entry.size):
        raise Corrupt(
            f"{archive.name} cannot be unpacked: a file in it has {entry.size} bytes, for which there is no room here."
        )
