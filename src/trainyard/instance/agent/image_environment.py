"""The environment that an image stands for: what is installed in it, found without starting its Python."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trainyard.instance.agent.requirements import normal_name

_LISTED = (".dist-info", ".egg-info", ".pth")
_DISTRIBUTION = re.compile(r"(?P<name>.+?)-(?P<version>\d[^-]*?)(?:-py[\d.]+)?\.(?:dist|egg)-info")
_VERSION = re.compile(r"python(3\.\d+)t?")


@dataclass(frozen=True)
class ImageEnvironment:
    """One Python and its packages, as they are when they are first asked for."""

    interpreter: Path

    @property
    def installed(self) -> Mapping[str, str]:
        """Names and versions of the distributions that its programs see; none when that cannot be told for sure."""
        matches = [_DISTRIBUTION.fullmatch(name) for _, names in reversed(self._listing) for name in names]
        return {normal_name(match["name"]): match["version"] for match in matches if match}

    @property
    def fingerprint(self) -> str:
        """Another one when Python or anything installed has another version."""
        found = self._executable.stat()
        digest = hashlib.sha256(
            f"{self.interpreter}\0{self._executable}\0{found.st_size}\0{found.st_mtime_ns}".encode()
        )
        for folder, names in self._listing:
            digest.update(os.fsencode("\0".join((str(folder), *names, ""))))
        return digest.hexdigest()

    @cached_property
    def _executable(self) -> Path:
        return Path(os.path.realpath(self.interpreter))

    @cached_property
    def _listing(self) -> list[tuple[Path, list[str]]]:
        """Its folders of packages in the order in which they are looked at, and what tells what is installed there."""
        found: dict[Path, list[str]] = {}
        for folder in self._package_folders():
            for place in (folder, *_named_in(folder)):
                if place not in found:
                    found[place] = sorted(name for name in _names(place) if name.endswith(_LISTED))
        return list(found.items())

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


def _packages_in(prefix: Path, version: str) -> Iterator[Path]:
    for library in ("lib", "lib64"):
        for python in (f"python{version}", "python3"):
            for packages in ("site-packages", "dist-packages"):
                folder = prefix / library / python / packages
                if folder.is_dir():
                    yield folder.resolve()


def _named_in(folder: Path) -> Iterator[Path]:
    """Folders that path files add."""
    for name in _names(folder):
        if name.endswith(".pth"):
            for line in (folder / name).read_text(errors="replace").splitlines():
                place = folder / line.strip()
                if line.strip() and not line.startswith(("import ", "import\t", "#")) and place.is_dir():
                    yield place.resolve()


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - the names are all that is needed
    except OSError:
        return []
