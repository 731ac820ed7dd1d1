"""Whether two models are the same: archives compared file by file."""

import filecmp
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainyard.drilling.tensors import NONE, Distance, distance
from trainyard.foundation.errors import Corrupt


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
        ours, theirs = Path(folder, "first"), Path(folder, "second")
        for archive, target in ((first, ours), (second, theirs)):
            _unpack(archive, target)
        return compare_folders(ours, theirs)


def compare_folders(first: Path, second: Path) -> Comparison:
    ours, theirs = set(_files(first)), set(_files(second))
    apart, others = NONE, [*(ours ^ theirs)]
    for name in sorted(ours & theirs):
        if filecmp.cmp(first / name, second / name, shallow=False):
            continue
        found = distance(first / name, second / name)
        if found is None:
            others.append(name)
        elif found.value > apart.value:
            apart = Distance(found.value, f"{name}: {found.where}" if found.where else name)
    return Comparison(len(ours | theirs), apart, tuple(sorted(others)))


def _unpack(archive: Path, target: Path) -> None:
    try:
        with tarfile.open(archive) as opened:
            opened.extractall(target, filter="data")
    except (tarfile.TarError, EOFError) as error:
        raise Corrupt(f"{archive.name} cannot be unpacked: {error}.") from error


def _files(folder: Path) -> Iterator[str]:
    return (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
