"""Which folder of this machine, or which S3 prefix, stands for a file system that a channel names.

The home folder's file_systems.toml maps the ids of file systems, be they of EFS or FSx for Lustre, to folders or to S3
prefixes; the DirectoryPath of a channel lies below. What a job may do in a folder is a matter of its permissions for
the job's user. A prefix is in a bucket of the job's user, and can only be read.

    [file_systems]
    "fs-0123456789abcdef0" = "/srv/datasets"
    "fs-0fedcba9876543210" = "s3://datasets/images"
"""

import tomllib
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest

_S3 = "s3://"


class FileSystems:
    """The file systems of one yard. The file is read anew with each question, so a change counts at once.

    `cache` is the folder that keeps what jobs have read of S3 prefixes in a remote S3.
    """

    def __init__(self, file: Path, *, cache: Path | None = None) -> None:
        self.cache = cache
        self._file = file

    def prefix(self, identifier: str, directory: str) -> str | None:
        """The S3 location under which the files of a directory lie, with a slash at its end; None for a folder.

        InvalidRequest when the location is none, or the directory's path leads out of it.
        """
        named = self._read().get(identifier, "")
        if not named.startswith(_S3):
            return None
        if not named.removeprefix(_S3).strip("/"):
            raise InvalidRequest(f'The file system "{identifier}" stands for "{named}", which names no bucket.')
        if ".." in directory.split("/"):
            raise InvalidRequest(f'The directory "/{directory}" is not below the file system "{identifier}".')
        parts = [part for part in directory.split("/") if part not in ("", ".")]
        return "".join(f"{part}/" for part in (named.rstrip("/"), *parts))

    def folder(self, identifier: str) -> Path:
        """The folder that stands for a file system; InvalidRequest when there is none, or it cannot be given away."""
        named = self._read().get(identifier)
        if named is None:
            raise InvalidRequest(
                f'The file system "{identifier}" stands for no folder of this machine; name one for it, or an S3 '
                f"prefix, under [file_systems] in {self._file}."
            )
        folder, home = Path(named), self._file.parent.resolve()
        if not folder.is_absolute() or not folder.is_dir():
            raise InvalidRequest(
                f'The file system "{identifier}" stands for "{named}", which is no folder of this machine with an '
                f"absolute path; correct {self._file}."
            )
        if home.is_relative_to(folder.resolve()) or folder.resolve().is_relative_to(home):
            raise InvalidRequest(
                f'The file system "{identifier}" stands for {folder}, where the yard keeps what no job may see; name '
                f"another folder in {self._file}."
            )
        return folder

    def require(self, identifier: str, directory: str) -> None:
        """InvalidRequest when there is no such directory in a file system, or its path leads out of that."""
        folder = self.folder(identifier)
        place = (folder / directory).resolve()
        if not place.is_relative_to(folder.resolve()) or not place.is_dir():
            raise InvalidRequest(
                f'There is no directory "/{directory}" in the file system "{identifier}", which is {folder} of this '
                "machine."
            )

    def _read(self) -> dict[str, str]:
        try:
            table = tomllib.loads(self._file.read_text()).get("file_systems", {})
        except FileNotFoundError:
            return {}
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"{self._file} is not valid TOML: {error}.") from error
        if not isinstance(table, dict) or not all(isinstance(folder, str) for folder in table.values()):
            raise InvalidRequest(f"{self._file}: [file_systems] maps ids of file systems to folders or S3 prefixes.")
        return table
