"""The content of what a job reads and writes, as digests that are compared later."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceContent:
    """The content of a source: an object, or all objects of a channel.

    `digest` is that of `digest_of_objects`; empty if the content is unknown, as that of a file system. A single object
    at exactly that URI also has its `etag`.
    """

    name: str
    uri: str
    digest: str = ""
    etag: str = ""
    objects: int = 0
    size_bytes: int = 0


def digest_of_objects(prefix: str, objects: Iterable[tuple[str, int, str]]) -> str:
    """Return a digest of the keys, sizes and ETags of objects, in the order of their keys.

    Keys count without the prefix that they share, so that a copy at another place has the same digest.
    """
    lines = [f"{key.removeprefix(prefix).lstrip('/')}\0{size}\0{etag}\n" for key, size, etag in sorted(objects)]
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def digest_of_packages(packages: Iterable[str]) -> str:
    """Return a digest of installed packages, such as `numpy==2.4.6`."""
    return hashlib.sha256("\n".join(sorted(packages)).encode("utf-8", "surrogatepass")).hexdigest()
