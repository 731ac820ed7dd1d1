"""Replace files of the user in a way that can be undone byte for byte.

A folder holds the originals, the new contents, and a manifest that is written before the first file is replaced. So at
any time each file is either the original or ours; any other content is a later change by someone else.
"""

import dataclasses
import json
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.errors import Corrupt
from trainyard.foundation.files import PRIVATE_FILE, PRIVATE_FOLDER, replace_file


@dataclass(frozen=True, slots=True)
class ReplacedFile:
    """A replaced file. `copy` is the name of its copies; `mode` is that of the original, None if there was none."""

    path: Path
    copy: str
    mode: int | None


@dataclass(frozen=True, slots=True)
class FileChange:
    """A replaced file that someone else has changed since."""

    path: Path
    written: bytes
    found: bytes


@dataclass(frozen=True, slots=True)
class Replacements:
    """The replaced files and the folders that were created for them, outermost first."""

    folder: Path
    files: Sequence[ReplacedFile] = ()
    created_folders: Sequence[Path] = ()

    def original(self, path: Path) -> bytes | None:
        """Return the original content of a file, replaced or not; None if it did not exist."""
        for file in self.files:
            if file.path == path.resolve():
                return None if file.mode is None else (self.folder / "originals" / file.copy).read_bytes()
        return read_if_present(path)

    def changes(self) -> list[FileChange]:
        """Return the files that someone else has changed since they were replaced."""
        changes = []
        for file in self.files:
            written, found = (self.folder / "written" / file.copy).read_bytes(), read_if_present(file.path)
            if found not in (written, self.original(file.path)):
                changes.append(FileChange(file.path, written, found or b""))
        return changes

    def undo(self) -> None:
        """Restore all originals, and remove the files and folders that were created. Can be repeated after a crash."""
        for file in self.files:
            original, found = self.original(file.path), read_if_present(file.path)
            if original is None and found is not None:
                file.path.unlink()
            elif original is not None and original != found:
                file.path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
                replace_file(file.path, original, mode=file.mode or PRIVATE_FILE)
        for created in reversed(self.created_folders):
            if created.is_dir() and not any(created.iterdir()):
                created.rmdir()
        # The manifest first: without it, the copies are ignored.
        _manifest(self.folder).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def load_replacements(folder: Path) -> Replacements:
    """Return what an earlier `replace_files` with this folder replaced."""
    manifest = _manifest(folder)
    if not manifest.exists():
        return Replacements(folder)
    try:
        values = json.loads(manifest.read_bytes())
        files = [ReplacedFile(Path(file["path"]), file["copy"], file["mode"]) for file in values["files"]]
        return Replacements(folder, files, [Path(created) for created in values["made"]])
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"{manifest} is damaged; the original files are in {folder / 'originals'}.") from error


def replace_files(folder: Path, contents: Sequence[tuple[Path, bytes]]) -> None:
    """Write all files or none. An OSError leaves all of them unchanged."""
    replacements = _save_originals(folder, contents)
    try:
        for file, (_, content) in zip(replacements.files, contents, strict=True):
            file.path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            replace_file(file.path, content, mode=file.mode or PRIVATE_FILE)
    except OSError:
        replacements.undo()
        raise


def read_if_present(path: Path) -> bytes | None:
    """Return the content of a file; None if it does not exist."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _save_originals(folder: Path, contents: Sequence[tuple[Path, bytes]]) -> Replacements:
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("originals", "written"):
        (folder / name).mkdir(mode=PRIVATE_FOLDER, parents=True)
    files, created = [], []
    for number, (path, content) in enumerate(contents):
        # Follow links, so that a link stays a link.
        target = path.resolve()
        copy, original = f"{number}-{target.name}", read_if_present(target)
        if original is not None:
            replace_file(folder / "originals" / copy, original)
        replace_file(folder / "written" / copy, content)
        mode = None if original is None else stat.S_IMODE(target.stat().st_mode)
        files.append(ReplacedFile(target, copy, mode))
        created += [parent for parent in reversed(target.parents) if not parent.exists() and parent not in created]
    replacements = Replacements(folder, files, created)
    values = {
        "files": [dataclasses.asdict(file) | {"path": str(file.path)} for file in files],
        "made": [str(path) for path in created],
    }
    replace_file(_manifest(folder), json.dumps(values, indent=2).encode() + b"\n")
    return replacements


def _manifest(folder: Path) -> Path:
    return folder / "manifest.json"
