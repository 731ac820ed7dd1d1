"""Compare training jobs: read their code and list their inputs."""

import io
import tarfile
from collections.abc import Mapping
from itertools import islice
from pathlib import PurePosixPath

from trainyard._sdk.connection import Api
from trainyard._sdk.storage.transfers import list_objects
from trainyard._sdk.training.stream import Description
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.locations import parse_s3_uri
from trainyard.insight.comparison import (
    LOCATION,
    MAX_CODE_BYTES,
    MAX_INPUT_OBJECTS,
    CodeFile,
    DataObject,
    JobFacts,
    code_location,
    compare_facts,
    diff_code,
    facts_of_job,
    listed_locations,
)
from trainyard.wire.client import CallFailed

__all__ = ["LOCATION", "JobFacts", "compare_facts", "diff_code", "facts_of"]


def facts_of(api: Api, description: Description) -> JobFacts:
    """Return the facts of a job. The code is read from S3, and input data is listed there."""
    listings = {uri: _list_location(api, uri) for uri in listed_locations(description)}
    return facts_of_job(description, _read_code(api, description), listings)


def _read_code(api: Api, description: Description) -> Mapping[str, CodeFile]:
    """Return the files of a job's code by their paths; none if it has none, or if that is gone or too large."""
    uri = code_location(description)
    if uri is None:
        return {}
    try:
        place = parse_s3_uri(uri, account="")
        request = {"Bucket": place.bucket.name, "Key": place.key}
        if api.call("s3", "HeadObject", **request)["ContentLength"] > MAX_CODE_BYTES:
            return {}
        return _unpack(api.call("s3", "GetObject", **request)["Body"])
    except (CallFailed, InvalidRequest, tarfile.TarError, EOFError, OSError):
        return {}


def _unpack(archive: bytes) -> dict[str, CodeFile]:
    """Return the files of an archive, in memory, up to the limit."""
    found: dict[str, CodeFile] = {}
    left = MAX_CODE_BYTES
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:*") as opened:
        for member in opened:
            file = opened.extractfile(member) if member.isfile() else None
            if file is not None and member.size <= left:
                found[str(PurePosixPath(member.name))] = CodeFile.of(file.read())
                left -= member.size
    return found


def _list_location(api: Api, uri: str) -> list[DataObject] | None:
    """Return all objects below a location; None if it cannot be listed, or has too many."""
    try:
        place = parse_s3_uri(uri, account="")
        listed = list_objects(api, place.bucket.name, place.key)
        objects = list(islice(listed, MAX_INPUT_OBJECTS + 1))
    except (CallFailed, InvalidRequest):
        return None
    if len(objects) > MAX_INPUT_OBJECTS:
        return None
    return [DataObject(each.key, each.size, each.etag) for each in objects]
