"""Reads what is installed in the environment that an image maps to, without starting its Python."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trainyard.instance.agent.program.requirements import normal_name

_LISTED = (".dist-info", ".egg-info", ".pth")
_DISTRIBUTION = re.compile(r"(?P<name>.+?)-(?P<version>\d[^-]*?)(?:-py[\d.]+)?\.(?:dist|egg)-info")
_VERSION = re.compile(r"python(3\.\d+)t?")


@dataclass(frozen=True)
class ImageEnvironment:
    """A Python and its packages, as they are when first read."""

    interpreter: Path

    @property
    def installed(self) -> Mapping[str, str]:
        """Names and versions of the distributions that its programs see; empty when that is not certain."""
        return distributions_in(name for _, names in reversed(self._listing) for name in names)

    @property
    def fingerprint(self) -> str:
        """A hash that changes with the version of Python or of anything installed."""
        status = self._executable.stat()
        digest = hashlib.sha256(
            f"{self.interpreter}\0{self._executable}\0{status.st_size}\0{status.st_mtime_ns}".encode()
        )
        for folder, names in self._listing:
            digest.update(os.fsencode("\0".join((str(folder), *names, ""))))
        return digest.hexdigest()

    @cached_property
    def _executable(self) -> Path:
        return Path(os.path.realpath(self.interpreter))

    @cached_property
    def _listing(self) -> list[tuple[Path, list[str]]]:
        """The folders of packages in search order, each with the entries that say what is installed."""
        listing: dict[Path, list[str]] = {}
        for folder in self._package_folders():
            for path in (folder, *_path_file_folders(folder)):
                if path not in listing:
                    listing[path] = sorted(name for name in _names(path) if name.endswith(_LISTED))
        return list(listing.items())

    def _package_folders(self) -> Iterator[Path]:
        version = _VERSION.fullmatch(self._executable.name)
        if version is None:
            return
        prefix = self.interpreter.absolute().parent.parent
        config = prefix / "pyvenv.cfg"
        if config.is_file():
            yield from _packages_in(prefix, version[1])
            if not re.search(r"(?mi)^include-system-site-packages\s*=\s*true\s*$", config.read_text(errors="replace")):
                return
        base = self._executable.parent.parent
        for part in (base / "local", base):
            yield from _packages_in(part, version[1])


def distributions_in(names: Iterable[str]) -> Mapping[str, str]:
    """Return the names and versions of the distributions whose folders of metadata have these names."""
    matches = [_DISTRIBUTION.fullmatch(name) for name in names]
    return {normal_name(match["name"]): match["version"] for match in matches if match}


def _packages_in(prefix: Path, version: str) -> Iterator[Path]:
    for library in ("lib", "lib64"):
        for python in (f"python{version}", "python3"):
            for packages in ("site-packages", "dist-packages"):
                folder = prefix / library / python / packages
                if folder.is_dir():
                    yield folder.resolve()


def _path_file_folders(folder: Path) -> Iterator[Path]:
    """The folders that .pth files add."""
    for name in _names(folder):
        if name.endswith(".pth"):
            for line in (folder / name).read_text(errors="replace").splitlines():
                path = folder / line.strip()
                if line.strip() and not line.startswith(("import ", "import\t", "#")) and path.is_dir():
                    yield path.resolve()


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - the names are all that is needed
    except OSError:
        return []
