"""The packages that a job's code asks for: those in its requirements.txt, and the code itself as a package."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainyard.foundation.confined import ConfinedFolder

REQUIREMENTS = "requirements.txt"
PYPROJECT = "pyproject.toml"

_MAX_FILE_BYTES = 1 << 20
# How many files one file may include, directly or through others.
_MAX_INCLUDES = 20

_BUILD_SYSTEM = re.compile(r"(?m)^\s*\[\s*build-system\s*\]")
_COMMENT = re.compile(r"(^|\s)#.*$")
_OPTION = re.compile(r"(--?[A-Za-z-]+?)(?:\s+|=|(?<=^-[A-Za-z]))(\S.*)")
_PLAIN = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?:(?P<operator>==|>=)\s*(?P<version>\d+(?:\.\d+)*))?")
_INCLUDES = {"-r": "requirement", "--requirement": "requirement", "-c": "constraint", "--constraint": "constraint"}


@dataclass(frozen=True, slots=True)
class PackageRequests:
    """What to install. `lines` are the requirements and constraints of all files that could be read.

    `package` is the file that makes the code a package: setup.py or pyproject.toml. Requests with `is_job_specific`
    depend on more than these lines, such as files of the code or a branch elsewhere, so what was installed for one job
    may be wrong for the next.
    """

    lines: frozenset[str] = frozenset()
    has_requirements: bool = False
    package: str = ""
    is_job_specific: bool = False

    def __bool__(self) -> bool:
        return self.has_requirements or bool(self.package)

    @property
    def shown(self) -> str:
        """The names of the files, for messages."""
        return " and ".join(name for name in (REQUIREMENTS if self.has_requirements else "", self.package) if name)

    def is_satisfied_by(self, installed: Mapping[str, str]) -> bool:
        """Whether everything is certainly installed. False where only a resolver could tell."""
        return (
            not self.package and not self.is_job_specific and all(_is_installed(line, installed) for line in self.lines)
        )


def read_package_requests(entry_point: str, ml: Path) -> PackageRequests:
    """Read what the code of a Python program asks for, as SageMaker's toolkit does. A shell script asks for nothing.

    A pyproject.toml without a build system only configures tools; it does not make the code a package.
    """
    if not entry_point or entry_point.endswith(".sh"):
        return PackageRequests()
    package = _package_file(ml)
    text = (
        _read_code(ml, REQUIREMENTS)
        if entry_point.endswith(".py") or package or entry_point.startswith("-m ")
        else None
    )
    if text is None:
        return PackageRequests(package=package, is_job_specific=bool(package))
    reader = _RequirementsReader(ml)
    reader.read(text, PurePosixPath(REQUIREMENTS), kind="requirement")
    is_job_specific = reader.is_job_specific or bool(package)
    return PackageRequests(frozenset(reader.lines), True, package, is_job_specific=is_job_specific)


def normal_name(name: str) -> str:
    """The normalized name of a distribution, which all its spellings share."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _package_file(ml: Path) -> str:
    if _read_code(ml, "setup.py") is not None:
        return "setup.py"
    text = _read_code(ml, PYPROJECT)
    return PYPROJECT if text is not None and _BUILD_SYSTEM.search(text) else ""


def _read_code(ml: Path, path: str) -> str | None:
    """Read a file of the code. Links are not followed, because they may point anywhere."""
    with ConfinedFolder.open(ml) as folder:
        return folder.read_text(f"code/{path}", limit_bytes=_MAX_FILE_BYTES)


class _RequirementsReader:
    """Reads a requirements file and the files it includes."""

    def __init__(self, ml: Path) -> None:
        self.lines: set[str] = set()
        self.is_job_specific = False
        self._ml = ml
        self._seen: set[tuple[str, str]] = set()

    def read(self, text: str, file: PurePosixPath, *, kind: str) -> None:
        self.is_job_specific |= len(text) >= _MAX_FILE_BYTES
        for line in _logical_lines(text):
            option = _OPTION.fullmatch(line) if line.startswith("-") else None
            if option and option[1] in _INCLUDES:
                self._include(option[2], file, kind=_INCLUDES[option[1]])
                continue
            self.lines.add(line if kind == "requirement" else f"{kind} {line}")
            self.is_job_specific |= _depends_on_more(line, option[2] if option else "")

    def _include(self, name: str, file: PurePosixPath, *, kind: str) -> None:
        path = file.parent / name
        if (str(path), kind) in self._seen:
            return
        self._seen.add((str(path), kind))
        is_plain = "://" not in name and not path.is_absolute() and ".." not in path.parts
        text = _read_code(self._ml, str(path)) if is_plain and len(self._seen) <= _MAX_INCLUDES else None
        if text is None:
            # The installer will read it, or report that it cannot.
            self.is_job_specific = True
            return
        self.read(text, path, kind=kind)


def _logical_lines(text: str) -> Iterator[str]:
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        plain = " ".join(_COMMENT.sub("", line).split())
        if plain:
            yield plain


def _depends_on_more(line: str, value: str) -> bool:
    """Whether a line names a file, an address or a variable. Indexes in options do not count."""
    if "${" in line or line.startswith(("-e", "--editable")):
        return True
    if line.startswith("-"):
        return "/" in value and "://" not in value and not value.startswith("/")
    requirement = line.partition(";")[0]
    return "/" in requirement or requirement.startswith(".") or requirement.endswith((".whl", ".zip", ".tar.gz"))


def _is_installed(line: str, installed: Mapping[str, str]) -> bool:
    match = _PLAIN.fullmatch(line)
    version = installed.get(normal_name(match["name"])) if match else None
    if match is None or version is None:
        return False
    release = re.fullmatch(r"(\d+(?:\.\d+)*)(?:\+.*)?", version)
    if match["operator"] is None:
        return True
    if release is None:
        return False
    found, required = _numbers(release[1]), _numbers(match["version"])
    return found == required if match["operator"] == "==" else found >= required


def _numbers(release: str) -> list[int]:
    """The parts of a version without trailing zeros, which mean nothing: 2.0 is 2."""
    numbers = [int(part) for part in release.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers
