"""The user's code: fetched, unpacked, and turned into the command that runs it."""

import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.instance.agent.archive import extract_tar_gz
from trainyard.instance.agent.environment import program_arguments
from trainyard.instance.agent.failure import CannotRun, FailureKind
from trainyard.instance.sandbox.contract import ML
from trainyard.link.contract import InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.objects.contract import ObjectAccess
from trainyard.objects.filesystem import FilesystemObjects

_MODULE = re.compile(r"(?!.*\.py$)[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class ProgramCommand:
    """What is executed, in the code folder: a Python program, or any other command."""

    words: tuple[str, ...]
    is_python: bool = False

    def argv(self, interpreter: str) -> tuple[str, ...]:
        return (interpreter, *self.words) if self.is_python else self.words

    @property
    def is_script(self) -> bool:
        """Whether it is a Python file with its arguments, and no module."""
        return self.is_python and self.words[0].endswith(".py")

    @property
    def shown(self) -> str:
        """The command as messages name it."""
        return shlex.join(self.argv("python"))


def fetch_code(store: ObjectAccess, spec: InstanceSpec, ml: Path, *, check: Callable[[], None]) -> None:
    """Unpack the submitted code into the code folder; nothing happens for a job that brings none.

    CannotRun when it is missing, or is not an archive that may be unpacked. `check` may raise to end a download.
    """
    submitted = spec.program.submit_directory
    if not submitted:
        return
    try:
        if submitted.startswith(f"{ML}/"):
            with os.fdopen(_open_inside(ml, submitted), "rb") as file:
                _unpack(file, submitted, ml / "code")
        else:
            with stored_file(store, parse_s3_uri(submitted, spec.account), ml, check=check) as file:
                _unpack(file, submitted, ml / "code")
    except (NotFound, FileNotFoundError, NotADirectoryError, _NoFile) as error:
        raise CannotRun(
            f"The code {submitted} does not exist; upload it, or correct sagemaker_submit_directory.",
            FailureKind.BAD_INPUT,
        ) from error


def program_command(spec: InstanceSpec, code: Path, *, is_package: bool = False) -> ProgramCommand:
    """The command line of the program.

    A Python entry point runs with the job's interpreter, any other by the shell, as SageMaker does; `-m package.train`,
    or in code that is a package also `package.train`, is a module. CannotRun when the entry point is not of the code.
    """
    name = spec.program.entry_point
    if not name and not spec.program.command:
        raise CannotRun(
            "The job names no program: give it a sagemaker_program hyperparameter or a ContainerEntrypoint.",
            FailureKind.USER_ERROR,
        )
    if not name:
        return ProgramCommand(tuple(spec.program.command))
    arguments = program_arguments(spec)
    if name.startswith("-m "):
        return ProgramCommand(("-m", name.removeprefix("-m ").strip(), *arguments), is_python=True)
    with ConfinedFolder.open(code.parent, code.name) as folder:
        if is_package and _MODULE.fullmatch(name) and not folder.has_file(name):
            return ProgramCommand(("-m", name, *arguments), is_python=True)
        entry_point = _entry_point(code, name, folder)
        if name.endswith(".py"):
            return ProgramCommand((name, *arguments), is_python=True)
        folder.set_mode(entry_point, 0o755)
    # The shell also runs what has no #! line; `exec` leaves no shell between the program and its signals.
    return ProgramCommand(("/bin/sh", "-c", 'exec "./$0" "$@"', name, *arguments))


@contextmanager
def stored_file(store: ObjectAccess, where: Location, ml: Path, *, check: Callable[[], None]) -> Iterator[BinaryIO]:
    """An object as a file: the store's own, or one that was downloaded and goes again."""
    if isinstance(store, FilesystemObjects):
        with store.open(where) as reader:
            yield reader.file
        return
    from trainyard.instance.agent.downloads import bring_files
    from trainyard.objects.remote.crew import do_attended
    from trainyard.objects.remote.downloading import Wanted

    info = do_attended(lambda: store.info(where), check=check)
    place = ml.with_name("submitted.tar.gz")
    bring_files(store, [Wanted(where, place, info.etag, info.size)], what="the code", check=check)
    try:
        with place.open("rb") as file:
            yield file
    finally:
        place.unlink()


def _unpack(file: BinaryIO, shown: str, code: Path) -> None:
    try:
        extract_tar_gz(file, code)
    except InvalidRequest as error:
        raise CannotRun(f"The code {shown} is refused: {error.message}.", FailureKind.BAD_INPUT) from error


class _NoFile(OSError):
    """There is something else where a file should be."""


def _open_inside(ml: Path, path: str) -> int:
    """A descriptor of the file that the program would see at a path under /opt/ml, before it runs."""
    parts = PurePosixPath(path).relative_to(ML).parts
    if ".." in parts:
        raise CannotRun(f"The code {path} lies outside {ML}.", FailureKind.USER_ERROR)
    is_brought = parts[:2] == ("input", "data")
    root, below = (InstanceFolder(ml.parent).channels, parts[2:]) if is_brought else (ml, parts)
    with ConfinedFolder.open(root) as folder:
        if not folder.has_file("/".join(below)):
            raise _NoFile
        return folder.open_file("/".join(below))


def _entry_point(code: Path, name: str, folder: ConfinedFolder) -> str:
    """The path in the code at which the file of the entry point lies, after all links of the archive."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or name.startswith("-"):
        raise CannotRun(
            f'The entry point "{name}" is not a path inside the code, such as train.py or scripts/train.sh.',
            FailureKind.USER_ERROR,
        )
    # Where links lead is read by name; what is done there is done without following any.
    place = os.path.relpath(os.path.realpath(code / path), os.path.realpath(code))
    if place.split("/")[0] == ".." or not folder.has_file(place):
        held = ", ".join(sorted(folder.names())[:20]) or "nothing"
        raise CannotRun(f'There is no entry point "{name}" in the code, which holds {held}.', FailureKind.USER_ERROR)
    return place
