"""What a job wants installed before its program runs: what its requirements.txt lists, and its code as a package."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainyard.foundation.confined import ConfinedFolder

REQUIREMENTS = "requirements.txt"
PYPROJECT = "pyproject.toml"

_MOST_BYTES = 1 << 20  # of one file that is read
_MOST_FILES = 20  # that one file may include, itself and by others

_BUILD_SYSTEM = re.compile(r"(?m)^\s*\[\s*build-system\s*\]")
_COMMENT = re.compile(r"(^|\s)#.*$")
_OPTION = re.compile(r"(--?[A-Za-z-]+?)(?:\s+|=|(?<=^-[A-Za-z]))(\S.*)")
_PLAIN = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?:(?P<operator>==|>=)\s*(?P<version>\d+(?:\.\d+)*))?")
_INCLUDES = {"-r": "requirement", "--requirement": "requirement", "-c": "constraint", "--constraint": "constraint"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to install. `lines` are the requirements and constraints of all files, as far as they matter.

    What `is_passing` depends on more than these lines, such as files of the code or a branch elsewhere: what was
    installed for one job need not be right for the next.
    """

    lines: frozenset[str] = frozenset()
    has_requirements: bool = False
    package: str = ""  # the file that makes the code a package, setup.py or pyproject.toml
    is_passing: bool = False

    def __bool__(self) -> bool:
        return self.has_requirements or bool(self.package)

    @property
    def shown(self) -> str:
        """How messages name it."""
        return " and ".join(name for name in (REQUIREMENTS if self.has_requirements else "", self.package) if name)

    def is_satisfied_by(self, installed: Mapping[str, str]) -> bool:
        """Whether all of it is surely there; what only a resolver can tell counts as not."""
        return not self.package and not self.is_passing and all(_is_there(line, installed) for line in self.lines)


def wanted_by(entry_point: str, ml: Path) -> Wanted:
    """What the code of a Python program asks for, as SageMaker's toolkit reads it; a shell script asks for nothing.

    A pyproject.toml without a build system configures tools, and is no package.
    """
    if not entry_point or entry_point.endswith(".sh"):
        return Wanted()
    package = _package(ml)
    text = _read(ml, REQUIREMENTS) if entry_point.endswith(".py") or package or entry_point.startswith("-m ") else None
    if text is None:
        return Wanted(package=package, is_passing=bool(package))
    reader = _Reader(ml)
    reader.read(text, PurePosixPath(REQUIREMENTS), kind="requirement")
    return Wanted(frozenset(reader.lines), True, package, is_passing=reader.is_passing or bool(package))


def normal_name(name: str) -> str:
    """A distribution's name as all its spellings have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _package(ml: Path) -> str:
    if _read(ml, "setup.py") is not None:
        return "setup.py"
    text = _read(ml, PYPROJECT)
    return PYPROJECT if text is not None and _BUILD_SYSTEM.search(text) else ""


def _read(ml: Path, path: str) -> str | None:
    """A file of the code; a link is not followed, for it may point anywhere."""
    with ConfinedFolder.open(ml) as folder:
        return folder.read_text(f"code/{path}", limit_bytes=_MOST_BYTES)


class _Reader:
    """Reads a list of requirements and the lists it includes."""

    def __init__(self, ml: Path) -> None:
        self.lines: set[str] = set()
        self.is_passing = False
        self._ml = ml
        self._seen: set[tuple[str, str]] = set()

    def read(self, text: str, file: PurePosixPath, *, kind: str) -> None:
        self.is_passing |= len(text) >= _MOST_BYTES
        for line in _logical_lines(text):
            option = _OPTION.fullmatch(line) if line.startswith("-") else None
            if option and option[1] in _INCLUDES:
                self._include(option[2], file, kind=_INCLUDES[option[1]])
                continue
            self.lines.add(line if kind == "requirement" else f"{kind} {line}")
            self.is_passing |= _depends_on_more(line, option[2] if option else "")

    def _include(self, name: str, file: PurePosixPath, *, kind: str) -> None:
        path = file.parent / name
        if (str(path), kind) in self._seen:
            return
        self._seen.add((str(path), kind))
        is_plain = "://" not in name and not path.is_absolute() and ".." not in path.parts
        text = _read(self._ml, str(path)) if is_plain and len(self._seen) <= _MOST_FILES else None
        if text is None:
            self.is_passing = True  # the installer will read it, or say that it cannot
            return
        self.read(text, path, kind=kind)


def _logical_lines(text: str) -> Iterator[str]:
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        plain = " ".join(_COMMENT.sub("", line).split())
        if plain:
            yield plain


def _depends_on_more(line: str, value: str) -> bool:
    """Whether a line names a file, an address or a variable. Indexes, given by options, are what a list relies on."""
    if "${" in line or line.startswith(("-e", "--editable")):
        return True
    if line.startswith("-"):
        return "/" in value and "://" not in value and not value.startswith("/")
    requirement = line.partition(";")[0]
    return "/" in requirement or requirement.startswith(".") or requirement.endswith((".whl", ".zip", ".tar.gz"))


def _is_there(line: str, installed: Mapping[str, str]) -> bool:
    match = _PLAIN.fullmatch(line)
    version = installed.get(normal_name(match["name"])) if match else None
    if match is None or version is None:
        return False
    release = re.fullmatch(r"(\d+(?:\.\d+)*)(?:\+.*)?", version)
    if match["operator"] is None:
        return True
    if release is None:
        return False
    there, asked = _numbers(release[1]), _numbers(match["version"])
    return there == asked if match["operator"] == "==" else there >= asked


def _numbers(release: str) -> list[int]:
    """Without the zeros at the end, which mean nothing: 2.0 is 2."""
    numbers = [int(part) for part in release.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers
