"""Pack the code of a training job into sourcedir.tar.gz. The same files give the same bytes."""

import gzip
import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainyard.foundation.errors import InvalidRequest

ARCHIVE = "sourcedir.tar.gz"


@dataclass(frozen=True, slots=True)
class SourceCode:
    """The archive to upload, and the script in it."""

    archive: bytes
    script: str


def pack(entry_point: str, source_dir: str | None, dependencies: Sequence[str] = ()) -> SourceCode:
    """Pack the content of `source_dir`, or the script alone, together with the dependencies.

    With a `source_dir`, the entry point is a path in it. Links are followed, so that the archive is complete. A link
    to a parent folder raises InvalidRequest.
    """
    script = _script_in(Path(source_dir), entry_point) if source_dir else _script_alone(entry_point)
    roots = sorted(Path(source_dir).iterdir()) if source_dir else [Path(entry_point)]
    members: dict[str, Path] = {}
    for root in [*roots, *(_require_path(path) for path in dependencies)]:
        members |= dict(_members(root, PurePosixPath(root.name or root.resolve().name), above=()))
    return SourceCode(_archive(members), script)


def _script_in(folder: Path, entry_point: str) -> str:
    if not folder.is_dir():
        raise InvalidRequest(f'source_dir "{folder}" is not a folder.')
    inside = PurePosixPath(entry_point)
    if inside.is_absolute() or ".." in inside.parts or not (folder / entry_point).is_file():
        raise InvalidRequest(f'There is no file "{entry_point}" in source_dir "{folder}"; entry_point is a path in it.')
    return str(inside)


def _script_alone(entry_point: str) -> str:
    if not Path(entry_point).is_file():
        raise InvalidRequest(f'entry_point "{entry_point}" does not exist or is not a file.')
    return Path(entry_point).name


def _require_path(dependency: str) -> Path:
    path = Path(dependency)
    if not path.exists():
        raise InvalidRequest(f'dependencies has "{dependency}", which does not exist.')
    return path


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
