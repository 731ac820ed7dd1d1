"""Replacing files of the user so that every byte can be put back.

What was there and what was written are both kept in a folder, with a manifest that is written before the first file is
touched. So at any moment each file is the user's own or ours, and anything else was changed by someone since.
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
class Replaced:
    """One file that was replaced. `mode` is that of the original; None when there was none."""

    path: Path
    copy: str  # the name under which both texts are kept
    mode: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """A file that is neither the user's own nor what was written."""

    path: Path
    written: bytes
    found: bytes


@dataclass(frozen=True, slots=True)
class Replacements:
    """All that was replaced, as the manifest in `folder` says; empty when nothing was."""

    folder: Path
    files: Sequence[Replaced] = ()
    made: Sequence[Path] = ()  # folders that did not exist, outermost first

    def original(self, path: Path) -> bytes | None:
        """The user's own bytes of a file, replaced or not; None when they had none."""
        for file in self.files:
            if file.path == path.resolve():
                return None if file.mode is None else (self.folder / "originals" / file.copy).read_bytes()
        return read_if_there(path)

    def changes(self) -> list[Change]:
        """What somebody else did to the files since."""
        changes = []
        for file in self.files:
            written, found = (self.folder / "written" / file.copy).read_bytes(), read_if_there(file.path)
            if found not in (written, self.original(file.path)):
                changes.append(Change(file.path, written, found or b""))
        return changes

    def undo(self) -> None:
        """Put back every byte; files and folders that were not there go away. May be repeated after a crash."""
        for file in self.files:
            original, found = self.original(file.path), read_if_there(file.path)
            if original is None and found is not None:
                file.path.unlink()
            elif original is not None and original != found:
                file.path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
                replace_file(file.path, original, mode=file.mode or PRIVATE_FILE)
        for made in reversed(self.made):
            if made.is_dir() and not any(made.iterdir()):
                made.rmdir()
        _manifest(self.folder).unlink(missing_ok=True)  # first, since without it the copies mean nothing
        shutil.rmtree(self.folder, ignore_errors=True)


def load_replacements(folder: Path) -> Replacements:
    """What an earlier `replace_files` with this folder did."""
    manifest = _manifest(folder)
    if not manifest.exists():
        return Replacements(folder)
    try:
        values = json.loads(manifest.read_bytes())
        files = [Replaced(Path(file["path"]), file["copy"], file["mode"]) for file in values["files"]]
        return Replacements(folder, files, [Path(made) for made in values["made"]])
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"{manifest} is damaged; the original files are beside it, in {folder / 'originals'}.") from error


def replace_files(folder: Path, contents: Sequence[tuple[Path, bytes]]) -> None:
    """Write every file or none. An OSError leaves all of them as they were."""
    replacements = _keep(folder, contents)
    try:
        for file, (_, content) in zip(replacements.files, contents, strict=True):
            file.path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            replace_file(file.path, content, mode=file.mode or PRIVATE_FILE)
    except OSError:
        replacements.undo()
        raise


def read_if_there(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _keep(folder: Path, contents: Sequence[tuple[Path, bytes]]) -> Replacements:
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("originals", "written"):
        (folder / name).mkdir(mode=PRIVATE_FOLDER, parents=True)
    files, made = [], []
    for number, (path, content) in enumerate(contents):
        target = path.resolve()  # a link is followed, so that it stays a link
        copy, original = f"{number}-{target.name}", read_if_there(target)
        if original is not None:
            replace_file(folder / "originals" / copy, original)
        replace_file(folder / "written" / copy, content)
        mode = None if original is None else stat.S_IMODE(target.stat().st_mode)
        files.append(Replaced(target, copy, mode))
        made += [parent for parent in reversed(target.parents) if not parent.exists() and parent not in made]
    replacements = Replacements(folder, files, made)
    values = {
        "files": [dataclasses.asdict(file) | {"path": str(file.path)} for file in files],
        "made": [str(path) for path in made],
    }
    replace_file(_manifest(folder), json.dumps(values, indent=2).encode() + b"\n")
    return replacements


def _manifest(folder: Path) -> Path:
    return folder / "manifest.json"
