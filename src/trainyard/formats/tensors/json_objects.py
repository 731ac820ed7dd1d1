"""The small JSON files of a trial, which tell what its large ones hold."""

import json
from typing import Any

from trainyard.foundation.errors import Corrupt
from trainyard.foundation.sources import ByteSource


def read_json_object(source: ByteSource, name: str) -> dict[str, Any]:
    """The object in a file; Corrupt when there is none in it."""
    try:
        told = json.loads(source.read(name))
    except (ValueError, RecursionError) as error:  # the second of lists within lists, which a program may have written
        raise Corrupt(f'"{name}" in {source.place} is no JSON: {error}.') from error
    if not isinstance(told, dict):
        raise Corrupt(f'"{name}" in {source.place} is no JSON object.')
    return told
