"""The content of what a job reads and writes, as digests that are compared later."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceContent:
    """The content of a source: an object, or all objects of a channel.

    `digest` is that of `digest_of_objects`; empty if the content is unknown, as that of a file system.
    """

    name: str
    uri: str
    digest: str = ""
    objects: int = 0
    size_bytes: int = 0


def digest_of_objects(prefix: str, objects: Iterable[tuple[str, int, str]]) -> str:
    """Return a digest of the keys, sizes and ETags of objects, in the order of their keys.

    Keys count without the prefix that they share, so that a copy at another place has the same digest.
    """
    digest = hashlib.sha256()
    for key, size, etag in sorted(objects):
        digest.update(json.dumps([key.removeprefix(prefix).lstrip("/"), size, etag.strip('"')]).encode())
    return digest.hexdigest()
