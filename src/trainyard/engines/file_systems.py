"""Which folder of this machine, or which S3 prefix, a file system of a channel maps to.

The home folder's file_systems.toml maps the ids of file systems (EFS or FSx for Lustre) to folders or S3 prefixes; the
DirectoryPath of a channel is relative to that. The permissions of a folder decide what the job's user may do in it. A
prefix is in a bucket of the job's user, and is read-only.

    [file_systems]
    "fs-0123456789abcdef0" = "/srv/datasets"
    "fs-0fedcba9876543210" = "s3://datasets/images"
"""

import tomllib
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest

_S3 = "s3://"


class FileSystems:
    """The file systems of one yard. The file is read for each call, so a change takes effect at once.

    `cache` is the folder that caches what jobs read from prefixes in a remote S3.
    """

    def __init__(self, file: Path, *, cache: Path | None = None) -> None:
        self.cache = cache
        self._file = file

    def prefix(self, identifier: str, directory: str) -> str | None:
        """Return the S3 prefix of a directory, with a slash at its end; None if the file system is a folder.

        Raises InvalidRequest if the prefix is invalid, or the directory's path leads out of it.
        """
        named = self._read_mappings().get(identifier, "")
        if not named.startswith(_S3):
            return None
        if not named.removeprefix(_S3).strip("/"):
            raise InvalidRequest(f'The file system "{identifier}" maps to "{named}", which names no bucket.')
        if ".." in directory.split("/"):
            raise InvalidRequest(f'The directory "/{directory}" is not below the file system "{identifier}".')
        parts = [part for part in directory.split("/") if part not in ("", ".")]
        return "".join(f"{part}/" for part in (named.rstrip("/"), *parts))

    def folder(self, identifier: str) -> Path:
        """Return the folder of a file system. Raises InvalidRequest if there is none, or if no job may see it."""
        named = self._read_mappings().get(identifier)
        if named is None:
            raise InvalidRequest(
                f'The file system "{identifier}" maps to no folder of this machine; add a folder or an S3 prefix for '
                f"it under [file_systems] in {self._file}."
            )
        folder, home = Path(named), self._file.parent.resolve()
        if not folder.is_absolute() or not folder.is_dir():
            raise InvalidRequest(
                f'The file system "{identifier}" maps to "{named}", which is not the absolute path of a folder of this '
                f"machine; correct {self._file}."
            )
        if home.is_relative_to(folder.resolve()) or folder.resolve().is_relative_to(home):
            raise InvalidRequest(
                f'The file system "{identifier}" maps to {folder}, where the yard keeps data that no job may see; '
                f"choose another folder in {self._file}."
            )
        return folder

    def require(self, identifier: str, directory: str) -> None:
        """Raise InvalidRequest if the directory does not exist, or its path leads out of the file system."""
        folder = self.folder(identifier)
        place = (folder / directory).resolve()
        if not place.is_relative_to(folder.resolve()) or not place.is_dir():
            raise InvalidRequest(
                f'There is no directory "/{directory}" in the file system "{identifier}", which is {folder} on this '
                "machine."
            )

    def _read_mappings(self) -> dict[str, str]:
        try:
            table = tomllib.loads(self._file.read_text()).get("file_systems", {})
        except FileNotFoundError:
            return {}
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"{self._file} is not valid TOML: {error}.") from error
        if not isinstance(table, dict) or not all(isinstance(folder, str) for folder in table.values()):
            raise InvalidRequest(f"{self._file}: [file_systems] maps ids of file systems to folders or S3 prefixes.")
        return table
