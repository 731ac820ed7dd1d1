"""What the yard sends to nodes that have nothing but Ray: its own code, and the libraries that agents use.

It is packed in the yard's environment into a folder that is named for what is in it:

source/trainyard    the code as it lies on nodes, from which the process that speaks to Ray runs too
code.tar.gz         the same, packed
<library>.tar.gz    each library, for nodes that lack it
made-for            the Python and the platform of the yard, which the libraries are for
"""

import contextlib
import hashlib
import importlib.metadata
import shutil
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard.engines.local.code import PACKAGE, PARTS, sources
from trainyard.foundation.syncing import sync_file_system

SENT = (*PARTS, "engines")

# What agents import beyond the standard library, by the names of the distributions.
LIBRARIES = ("awscrt", "obstore", "regex", "typing-extensions")

_SUFFIX = ".tar.gz"
_CODE = "code"
_LEVEL = 1  # of compression: half the time of 6, for a tenth more bytes


@dataclass(frozen=True, slots=True)
class Parcel:
    """One that is packed."""

    folder: Path

    @property
    def digest(self) -> str:
        return self.folder.name

    @property
    def source(self) -> Path:
        """What has to be on the path of whoever imports the code."""
        return self.folder / "source"

    @property
    def python(self) -> str:
        return self._made_for.read_text().split()[0]

    @property
    def platform(self) -> str:
        return self._made_for.read_text().split()[1]

    @property
    def _made_for(self) -> Path:
        return self.folder / "made-for"

    def code(self) -> bytes:
        return (self.folder / f"{_CODE}{_SUFFIX}").read_bytes()

    def libraries(self) -> Mapping[str, bytes]:
        """The archives of the libraries, by their names."""
        found = {path.name.removesuffix(_SUFFIX): path for path in self.folder.glob(f"*{_SUFFIX}")}
        return {name: path.read_bytes() for name, path in sorted(found.items()) if name != _CODE}


def ensure_parcel(parcels: Path, package: Path = PACKAGE) -> Parcel:
    """The parcel of the code that is installed now, packed if it is not there; all others are removed."""
    parcels.mkdir(parents=True, exist_ok=True)
    current = Parcel(parcels / _digest(package))
    if not current.folder.exists():
        _pack(current, package)
    for folder in parcels.iterdir():
        if folder != current.folder:
            shutil.rmtree(folder, ignore_errors=True)
    return current


def _digest(package: Path) -> str:
    digest = hashlib.sha256(_made_for().encode())
    for library in _libraries():
        digest.update(f"{library.name}\0{library.version}\0".encode())
    for path in sources(package, SENT):
        digest.update(f"{path.relative_to(package)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _made_for() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor} {sysconfig.get_platform()}"


def _libraries() -> Iterator[importlib.metadata.Distribution]:
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            yield importlib.metadata.distribution(name)


def _pack(parcel: Parcel, package: Path) -> None:
    """Laid out beside its place and then renamed, so that a parcel is whole or absent, also after a power cut."""
    staging = Parcel(Path(tempfile.mkdtemp(prefix=".new-", dir=parcel.folder.parent)))
    for path in sources(package, SENT):
        target = staging.source / package.name / path.relative_to(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    (staging.folder / "made-for").write_text(_made_for())
    with _archive(staging, _CODE) as archive:
        archive.add(staging.source / package.name, package.name)
    for library in _libraries():
        with _archive(staging, library.name) as archive:
            for file in _files(library):
                archive.add(str(library.locate_file(file)), str(file), recursive=False)
    sync_file_system(staging.folder)
    with contextlib.suppress(OSError):  # another process was faster with the same parcel
        staging.folder.rename(parcel.folder)
    shutil.rmtree(staging.folder, ignore_errors=True)


def _archive(parcel: Parcel, name: str) -> tarfile.TarFile:
    return tarfile.open(parcel.folder / f"{name}{_SUFFIX}", "w:gz", compresslevel=_LEVEL)


def _files(library: importlib.metadata.Distribution) -> Iterator[importlib.metadata.PackagePath]:
    """Those that are imported, and those that tell which library it is; not the programs that come with it."""
    for path in library.files or ():
        if (
            ".." not in path.parts
            and "__pycache__" not in path.parts
            and Path(str(library.locate_file(path))).is_file()
        ):
            yield path
