"""The code that the yard sends to nodes that have only Ray: its own, and the libraries that agents use.

It is packed in the yard's environment into a folder named after a digest of its content:

source/trainyard    the code as on nodes; the proxy process runs from it too
code.tar.gz         the same, packed
<library>.tar.gz    each library, for nodes that do not have it
made-for            the Python and the platform of the yard, for which the libraries are built
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

from trainyard.engines.local.code import PACKAGE, PARTS, package_files
from trainyard.foundation.file_system_sync import sync_file_system

SENT_PARTS = (*PARTS, "engines")

# The distributions that agents import beyond the standard library.
LIBRARIES = ("awscrt", "obstore", "regex", "typing-extensions")

_SUFFIX = ".tar.gz"
_CODE = "code"
# Takes half the time of level 6, for a tenth more bytes.
_COMPRESSION_LEVEL = 1


@dataclass(frozen=True, slots=True)
class CodeBundle:
    """One packed bundle."""

    folder: Path

    @property
    def digest(self) -> str:
        return self.folder.name

    @property
    def source(self) -> Path:
        """The folder to put on the path of a process that imports the code."""
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
        """Return the archives of the libraries by name."""
        found = {path.name.removesuffix(_SUFFIX): path for path in self.folder.glob(f"*{_SUFFIX}")}
        return {name: path.read_bytes() for name, path in sorted(found.items()) if name != _CODE}


def ensure_code_bundle(bundles: Path, package: Path = PACKAGE) -> CodeBundle:
    """Return the bundle of the installed code, packed if need be, and remove all others."""
    bundles.mkdir(parents=True, exist_ok=True)
    current = CodeBundle(bundles / _digest(package))
    if not current.folder.exists():
        _pack(current, package)
    for folder in bundles.iterdir():
        if folder != current.folder:
            shutil.rmtree(folder, ignore_errors=True)
    return current


def _digest(package: Path) -> str:
    digest = hashlib.sha256(_made_for().encode())
    for library in _libraries():
        digest.update(f"{library.name}\0{library.version}\0".encode())
    for path in package_files(package, SENT_PARTS):
        digest.update(f"{path.relative_to(package)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _made_for() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor} {sysconfig.get_platform()}"


def _libraries() -> Iterator[importlib.metadata.Distribution]:
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            yield importlib.metadata.distribution(name)


def _pack(bundle: CodeBundle, package: Path) -> None:
    """Write the bundle to a staging folder and rename that, so that it is whole or absent, even after a power cut."""
    staging = CodeBundle(Path(tempfile.mkdtemp(prefix=".new-", dir=bundle.folder.parent)))
    for path in package_files(package, SENT_PARTS):
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
    # Another process may have been faster with the same bundle.
    with contextlib.suppress(OSError):
        staging.folder.rename(bundle.folder)
    shutil.rmtree(staging.folder, ignore_errors=True)


def _archive(bundle: CodeBundle, name: str) -> tarfile.TarFile:
    return tarfile.open(bundle.folder / f"{name}{_SUFFIX}", "w:gz", compresslevel=_COMPRESSION_LEVEL)


def _files(library: importlib.metadata.Distribution) -> Iterator[importlib.metadata.PackagePath]:
    """Yield the modules and the metadata of a library, but not the programs that come with it."""
    for path in library.files or ():
        if (
            ".." not in path.parts
            and "__pycache__" not in path.parts
            and Path(str(library.locate_file(path))).is_file()
        ):
            yield path
