"""Pack the code of a training job into sourcedir.tar.gz. The same files give the same bytes."""

import gzip
import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainyard._sdk.training.local_modules import LocalCode
from trainyard.foundation.errors import InvalidRequest

ARCHIVE = "sourcedir.tar.gz"


@dataclass(frozen=True, slots=True)
class SourceCode:
    """The archive to upload, and the script in it."""

    archive: bytes
    script: str


def pack(
    entry_point: str, source_dir: str | None, dependencies: Sequence[str] = (), local_code: LocalCode | None = None
) -> SourceCode:
    """Pack the content of `source_dir`, or the script with its local code, together with the dependencies.

    With a `source_dir`, the entry point is a path in it. Links are followed, so that the archive is complete. A link
    to a parent folder raises InvalidRequest.
    """
    script = _script_in(Path(source_dir), entry_point) if source_dir else _script_alone(entry_point)
    roots = sorted(Path(source_dir).iterdir()) if source_dir else [Path(entry_point)]
    members = _members_of(local_code) if local_code else {}
    for root in [*roots, *(_require_path(path) for path in dependencies)]:
        members |= dict(_members(root, PurePosixPath(root.name or root.resolve().name), above=()))
    return SourceCode(_archive(members), script)


def require_files(entry_point: str, source_dir: str | None, dependencies: Sequence[str]) -> None:
    """Raise InvalidRequest if a file to pack does not exist."""
    _ = _script_in(Path(source_dir), entry_point) if source_dir else _script_alone(entry_point)
    for path in dependencies:
        _require_path(path)


def _script_in(folder: Path, entry_point: str) -> str:
    if not folder.is_dir():
        raise InvalidRequest(f'The source directory "{folder}" is not a folder.')
    inside = PurePosixPath(entry_point)
    if inside.is_absolute() or ".." in inside.parts or not (folder / entry_point).is_file():
        raise InvalidRequest(
            f'There is no script "{entry_point}" in the source directory "{folder}"; the script is a path in it.'
            + _similar_file(folder / entry_point)
        )
    return str(inside)


def _script_alone(entry_point: str) -> str:
    if not Path(entry_point).is_file():
        raise InvalidRequest(f'There is no script "{entry_point}".' + _similar_file(Path(entry_point)))
    return Path(entry_point).name


def _similar_file(missing: Path) -> str:
    """Return the question whether a file with a similar name was meant; empty if there is none beside it."""
    # Imported here: only a mistake needs it.
    from difflib import get_close_matches

    names = [path.name for path in missing.parent.iterdir()] if missing.parent.is_dir() else []
    found = get_close_matches(missing.name, names, 1, cutoff=0.7)
    return f' Did you mean "{missing.with_name(found[0])}"?' if found else ""


def _require_path(dependency: str) -> Path:
    path = Path(dependency)
    if not path.exists():
        raise InvalidRequest(f'The dependency "{dependency}" does not exist.')
    return path


def _members_of(code: LocalCode) -> dict[str, Path]:
    """Return the files of local code and the folders around them."""
    folders = {parent for file in code.files for parent in file.parents if parent.name}
    return {str(path): code.folder / path for path in sorted([*folders, *code.files])}


def _members(path: Path, name: PurePosixPath, *, above: tuple[Path, ...]) -> Iterator[tuple[str, Path]]:
    """Yield the file or folder, then all files and folders below it, sorted by name."""
    yield str(name), path
    if not path.is_dir():
        return
    real = path.resolve()
    if real in above:
        raise InvalidRequest(f'"{path}" is a link to one of its parent folders, so packing it would never end.')
    for child in sorted(path.iterdir()):
        if child.name != "__pycache__":
            yield from _members(child, name / child.name, above=(*above, real))


def _archive(members: dict[str, Path]) -> bytes:
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", filename="", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, path in members.items():
            _add(archive, name, path)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, path: Path) -> None:
    entry = tarfile.TarInfo(name)
    if path.is_dir():
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(entry)
    elif path.is_file():
        content = path.read_bytes()
        entry.size, entry.mode = len(content), 0o755 if os.access(path, os.X_OK) else 0o644
        archive.addfile(entry, io.BytesIO(content))
    else:
        raise InvalidRequest(f'"{path}" is neither a file nor a folder, so it cannot be packed.')
