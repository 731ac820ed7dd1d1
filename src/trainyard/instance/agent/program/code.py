"""Fetches and unpacks the user's code, and builds the command that runs it."""

import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.instance.agent.program.archive import extract_tar_gz
from trainyard.instance.agent.program.environment import program_arguments
from trainyard.instance.agent.results.failure import CannotRun, FailureKind
from trainyard.instance.sandbox.contract import ML
from trainyard.link.contract import InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.objects.contract import HasLocalFile, ObjectAccess
from trainyard.objects.encryption.keys import KeyUnusable
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.objects.reader_files import ReaderFile

_MODULE = re.compile(r"(?!.*\.py$)[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class ProgramCommand:
    """The command that runs in the code folder: a Python program or any other command."""

    words: tuple[str, ...]
    is_python: bool = False

    def argv(self, interpreter: str) -> tuple[str, ...]:
        return (interpreter, *self.words) if self.is_python else self.words

    @property
    def is_script(self) -> bool:
        """Whether it runs a Python file, not a module."""
        return self.is_python and self.words[0].endswith(".py")

    @property
    def shown(self) -> str:
        """The command for messages."""
        return shlex.join(self.argv("python"))


def fetch_code(store: ObjectAccess, spec: InstanceSpec, ml: Path, *, check: Callable[[], None]) -> None:
    """Unpack the submitted code into the code folder. Does nothing for a job without code.

    Raises CannotRun when the code is missing or its archive is refused. `check` may raise to end a download.
    """
    submitted = spec.program.submit_directory
    if not submitted:
        return
    try:
        if submitted.startswith(f"{ML}/"):
            with os.fdopen(_open_in_ml(ml, submitted), "rb") as file:
                _unpack(file, submitted, ml / "code")
        else:
            with stored_file(store, parse_s3_uri(submitted, spec.account), ml, check=check) as file:
                _unpack(file, submitted, ml / "code")
    except (NotFound, FileNotFoundError, NotADirectoryError, _NotAFile) as error:
        raise CannotRun(
            f"The code {submitted} does not exist; upload it, or correct sagemaker_submit_directory.",
            FailureKind.BAD_INPUT,
        ) from error
    except KeyUnusable as error:
        raise CannotRun(f"The code {submitted} cannot be decrypted: {error.message}", FailureKind.BAD_INPUT) from error


def program_command(spec: InstanceSpec, code: Path, *, is_package: bool = False) -> ProgramCommand:
    """Return the command line of the program; CannotRun when the entry point is not in the code.

    As on SageMaker, a Python entry point runs with the job's interpreter and any other with the shell.
    `-m package.train` is a module; in code that is a package, `package.train` is one too.
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
        entry_point = _find_entry_point(code, name, folder)
        if name.endswith(".py"):
            return ProgramCommand((name, *arguments), is_python=True)
        folder.set_mode(entry_point, 0o755)
    # The shell also runs files without a #! line; `exec` leaves no shell between the program and its signals.
    return ProgramCommand(("/bin/sh", "-c", 'exec "./$0" "$@"', name, *arguments))


@contextmanager
def stored_file(store: ObjectAccess, where: Location, ml: Path, *, check: Callable[[], None]) -> Iterator[BinaryIO]:
    """Open an object as a file: the store's own file, its decrypted content, or a temporary download."""
    if isinstance(store, FilesystemObjects):
        with store.open(where) as reader:
            yield reader.file if isinstance(reader, HasLocalFile) else BufferedReader(ReaderFile(reader))
        return
    from trainyard.instance.agent.data.downloads import download_files
    from trainyard.objects.remote.downloads import DownloadRequest
    from trainyard.objects.remote.parallel import run_watched

    info = run_watched(lambda: store.info(where), check=check)
    place = ml.with_name("submitted.tar.gz")
    download_files(store, [DownloadRequest(where, place, info.etag, info.size)], what="the code", check=check)
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


class _NotAFile(OSError):
    """The path exists but is not a file."""


def _open_in_ml(ml: Path, path: str) -> int:
    """Open the file that the program would see at a path under /opt/ml, before it runs."""
    parts = PurePosixPath(path).relative_to(ML).parts
    if ".." in parts:
        raise CannotRun(f"The code {path} lies outside {ML}.", FailureKind.USER_ERROR)
    is_in_channel = parts[:2] == ("input", "data")
    root, below = (InstanceFolder(ml.parent).channels, parts[2:]) if is_in_channel else (ml, parts)
    with ConfinedFolder.open(root) as folder:
        if not folder.has_file("/".join(below)):
            raise _NotAFile
        return folder.open_file("/".join(below))


def _find_entry_point(code: Path, name: str, folder: ConfinedFolder) -> str:
    """Return the path of the entry point's file in the code, after following the archive's links."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or name.startswith("-"):
        raise CannotRun(
            f'The entry point "{name}" is not a path inside the code, such as train.py or scripts/train.sh.',
            FailureKind.USER_ERROR,
        )
    # Links are resolved by name here; the file itself is then opened without following any.
    resolved = os.path.relpath(os.path.realpath(code / path), os.path.realpath(code))
    if resolved.split("/")[0] == ".." or not folder.has_file(resolved):
        names = ", ".join(sorted(folder.names())[:20]) or "nothing"
        raise CannotRun(f'There is no entry point "{name}" in the code, which holds {names}.', FailureKind.USER_ERROR)
    return resolved
