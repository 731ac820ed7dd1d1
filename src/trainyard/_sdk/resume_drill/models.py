"""Compare two models, file by file and tensor by tensor."""

import filecmp
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainyard._sdk.resume_drill.tensors import NO_DISTANCE, Distance, tensor_distance
from trainyard.foundation.disk import reserve_of
from trainyard.foundation.errors import Corrupt

_MAX_SUFFIX_LENGTH = 20


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """How two models differ.

    `largest` is the largest difference of two tensors. `others` are the files that only one model has, and those that
    differ and are not tensors.
    """

    files: int
    largest: Distance = NO_DISTANCE
    others: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        return not self.others and self.largest.value == 0.0

    def is_within(self, tolerance: float) -> bool:
        """Return whether all numbers are within a tolerance and all other files are equal."""
        return not self.others and self.largest.value <= tolerance


def compare_models(first: Path, second: Path) -> ModelComparison:
    """Compare two model.tar.gz: their bytes and, where those differ, their tensors."""
    with tempfile.TemporaryDirectory(prefix="trainyard-drill-") as folder:
        ours, theirs = (_unpack(archive, Path(folder, str(number))) for number, archive in enumerate((first, second)))
        largest, others = NO_DISTANCE, [*(ours.keys() ^ theirs.keys())]
        for name in sorted(ours.keys() & theirs.keys()):
            if filecmp.cmp(ours[name], theirs[name], shallow=False):
                continue
            found = tensor_distance(ours[name], theirs[name])
            if found is None:
                others.append(name)
            elif found.value > largest.value:
                largest = Distance(found.value, f"{name}: {found.where}" if found.where else name)
        return ModelComparison(len(ours.keys() | theirs.keys()), largest, tuple(sorted(others)))


def _unpack(archive: Path, target: Path) -> Mapping[str, Path]:
    """Unpack an archive and return its files by name. A link becomes a file that contains the target of the link.

    A job wrote the archive, so no name in it is used as a path here, and no link is created.
    """
    target.mkdir()
    files: dict[str, Path] = {}
    try:
        with tarfile.open(archive) as opened:
            for entry in opened:
                path = target / f"{len(files)}{_suffix(entry.name)}"
                if entry.isreg():
                    _require_disk_space(archive, entry, target)
                    source = opened.extractfile(entry)
                    assert source is not None, "a file has bytes"
                    with path.open("xb") as file:
                        shutil.copyfileobj(source, file)
                elif entry.issym() or entry.islnk():
                    path.write_text(f"a link to {entry.linkname}", errors="surrogateescape")
                else:
                    continue
                files[entry.name.removeprefix("./")] = path
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise Corrupt(f"{archive.name} cannot be unpacked: {error}.") from error
    return files


def _suffix(name: str) -> str:
    """Return the suffix, which shows the type of the file; empty if it is not a plausible suffix."""
    suffix = PurePosixPath(name).suffix
    return suffix if suffix[1:].isalnum() and len(suffix) <= _MAX_SUFFIX_LENGTH else ""


def _require_disk_space(archive: Path, entry: tarfile.TarInfo, target: Path) -> None:
    if not reserve_of(target).leaves(entry.size):
        raise Corrupt(
            f"{archive.name} cannot be unpacked: one of its files has {entry.size} bytes, and the disk of this machine "
            "has no room for it."
        )
