"""Names of jobs and other small functions, under the names of the `sagemaker` SDK."""

import random
import re
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from trainyard._sdk.job_names import MAX_LENGTH, base_of_image
from trainyard._sdk.storage.transfers import download_object
from trainyard.foundation.clock import utc_now
from trainyard.session import Session

__all__ = [
    "base_from_name",
    "base_name_from_image",
    "create_tar_file",
    "download_file",
    "download_folder",
    "name_from_base",
    "name_from_image",
    "sagemaker_short_timestamp",
    "sagemaker_timestamp",
    "unique_name_from_base",
]

_GENERATED = re.compile(r"(?P<base>.+)-(\d{4}(-\d{2}){5}-\d{3}|\d{6}-\d{4})")


def name_from_base(base: str, max_length: int = MAX_LENGTH, short: bool = False) -> str:
    """Return a name for a job: a base, which is cut if it is too long, and the time.

    Args:
        base: The base.
        max_length: The most characters.
        short: Whether to use a short form of the time, without seconds.
    """
    stamp = sagemaker_short_timestamp() if short else sagemaker_timestamp()
    return f"{base[: max_length - len(stamp) - 1]}-{stamp}"


def unique_name_from_base(base: str, max_length: int = MAX_LENGTH) -> str:
    """Return a name for a job: a base, which is cut if it is too long, the time, and four random digits.

    Args:
        base: The base.
        max_length: The most characters.
    """
    unique = f"{int(utc_now().timestamp())}-{random.randrange(16**4):04x}"
    return f"{base[: max_length - len(unique) - 1]}-{unique}"


def name_from_image(image: str, max_length: int = MAX_LENGTH) -> str:
    """Return a name for a job: the repository of an image and the time.

    Args:
        image: Name of the image.
        max_length: The most characters.
    """
    return name_from_base(base_name_from_image(image), max_length=max_length)


def base_name_from_image(image: str, default_base_name: str | None = None) -> str:
    """Return the repository of an image.

    Args:
        image: Name of the image.
        default_base_name: What to return if the image has no name.
    """
    return base_of_image(image) or default_base_name or image


def base_from_name(name: str) -> str:
    """Return the base of a generated name, or the name itself.

    Args:
        name: The name.
    """
    match = _GENERATED.fullmatch(name)
    return match["base"] if match else name


def sagemaker_timestamp() -> str:
    """Return the time in UTC as generated names have it: `2026-07-01-12-00-00-123`."""
    now = utc_now()
    return f"{now:%Y-%m-%d-%H-%M-%S}-{now.microsecond // 1000:03}"


def sagemaker_short_timestamp() -> str:
    """Return the time in UTC in the short form of generated names: `260701-1200`."""
    return f"{utc_now():%y%m%d-%H%M}"


def create_tar_file(source_files: Sequence[str], target: str | None = None) -> str:
    """Pack files into an archive, without their folders, and return its path.

    Args:
        source_files: Paths of the files.
        target: Path of the archive. Default: a new temporary file.
    """
    if target is None:
        with tempfile.NamedTemporaryFile(suffix=".tar.gz", delete=False) as file:
            target = file.name
    with tarfile.open(target, "w:gz") as archive:
        for path in source_files:
            archive.add(path, arcname=Path(path).name)
    return target


def download_folder(bucket_name: str, prefix: str, target: str, sagemaker_session: Session) -> None:
    """Download all objects with a prefix into a folder.

    Args:
        bucket_name: The bucket.
        prefix: Prefix of the keys.
        target: The folder.
        sagemaker_session: The session to use.
    """
    sagemaker_session.download_data(target, bucket_name, prefix.lstrip("/"))


def download_file(bucket_name: str, path: str, target: str, sagemaker_session: Session) -> None:
    """Download an object to a file.

    Args:
        bucket_name: The bucket.
        path: The key of the object.
        target: Path of the file.
        sagemaker_session: The session to use.
    """
    download_object(sagemaker_session.api, Path(target), bucket=bucket_name, key=path.lstrip("/"))
