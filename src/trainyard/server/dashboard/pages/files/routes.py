"""The routes of the files of a training job."""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from starlette.responses import Response

from trainyard.server.dashboard.api import ApiFault
from trainyard.server.dashboard.contract import JobTab, Page, Visit, get
from trainyard.server.dashboard.job_frame import JobFrame, load_training_job, render_job_page
from trainyard.server.dashboard.pages.files.archives import NoSuchMember
from trainyard.server.dashboard.pages.files.object_file import FoundObject, find_object
from trainyard.server.dashboard.pages.files.pictures import HEAD_BYTES, MAX_BYTES, picture_of
from trainyard.server.dashboard.pages.files.places import FilePlace, owner_of, place_named, places_of
from trainyard.server.dashboard.pages.files.preview import (
    MAX_MEMBER_BYTES,
    PreviewContent,
    content_of_member,
    content_of_object,
    preview,
    preview_object,
    read_contents,
)
from trainyard.server.services.contract import Shape

_PAGE = 200

Read = TypeVar("Read")


async def show_files(visit: Visit) -> Response:
    job = await load_training_job(visit)
    places = [place.shape() for place in places_of(job)]
    data = {"job": job.name, "isRunning": job.is_running, "places": places}
    return render_job_page(visit, "files/files.html", job, tab="files", data=data)


async def list_folder(visit: Visit) -> Response:
    """List what is directly below a path of a location, one page of it."""
    job, place = await _place_of(visit)
    path, token = visit.query.get("path", ""), visit.query.get("after", "")
    shape = {"Bucket": place.bucket, "Delimiter": "/", "MaxKeys": _PAGE, "ExpectedBucketOwner": owner_of(job)}
    page = await visit.api.call("s3", "ListObjectsV2", shape | {"Prefix": place.key + path} | _after(token))
    below = [each["Prefix"] for each in page["CommonPrefixes"]]
    # A channel is often given as s3://bucket/folder, without the slash.
    if not path and not token and below == [f"{place.key}/"] and not page["Contents"]:
        page = await visit.api.call("s3", "ListObjectsV2", shape | {"Prefix": below[0]})
    return visit.json({"entries": _entries(place, page), "next": page.get("NextContinuationToken")})


async def list_members(visit: Visit) -> Response:
    """List the members of an archive."""
    found = await read_contents(visit.api, (await _file_of(visit)).found)
    members = [{"name": member.name, "size": member.size, "kind": member.kind} for member in found.members]
    return visit.json({"members": members, "note": found.note})


async def preview_file(visit: Visit) -> Response:
    file = await _file_of(visit)
    first, is_raw = visit.query_int("first", 0, most=2**50), visit.query.get("raw") == "1"
    if file.member:
        content = await _member_content(visit, file)
        shown = await preview(content, first=first, is_raw=is_raw)
        size, is_cut = min(content.size, MAX_MEMBER_BYTES), content.size > MAX_MEMBER_BYTES
    else:
        shown = await _or_fault(preview_object(visit.api, file.found, first=first, is_raw=is_raw))
        size, is_cut = file.found.size, False
    about = {"size": size, "isCut": is_cut, "modified": file.found.modified_at, "uri": file.uri}
    return visit.json(about | shown)


async def send_picture(visit: Visit) -> Response:
    """Send a picture for an <img>. Its type is what its bytes say, and a browser that is led here only saves it."""
    content = await _content_of(visit, await _file_of(visit))
    picture = picture_of(await content.read(0, HEAD_BYTES))
    if picture is None or not picture.is_drawable or content.size > MAX_BYTES:
        raise ApiFault("NotAPicture", "This file is no picture that can be shown here.", status=404)
    headers = {"content-disposition": "attachment", "cache-control": "private, max-age=300"}
    return Response(await content.read(0, MAX_BYTES), media_type=picture.content_type, headers=headers)


async def download_file(visit: Visit) -> Response:
    """Send a file to save. A member of an archive must not be larger than what is previewed."""
    file = await _file_of(visit)
    if file.member:
        content = await _member_content(visit, file)
        if content.size > MAX_MEMBER_BYTES:
            raise ApiFault(
                "TooLarge", "This file is too large to be taken out of its archive; download that.", status=409
            )
        return visit.download(await content.read(0, content.size), content.name, size_bytes=content.size)
    found = file.found
    shape = {"Bucket": found.bucket, "Key": found.key, "ExpectedBucketOwner": found.owner, "IfMatch": found.etag}
    body = (await visit.api.call("s3", "GetObject", shape))["Body"]
    return visit.download(body, found.name, size_bytes=found.size)


PAGE = Page(
    "files",
    routes=(
        get("/training/{name}/files", show_files),
        get("/training/{name}/files/list", list_folder),
        get("/training/{name}/files/members", list_members),
        get("/training/{name}/files/preview", preview_file),
        get("/training/{name}/files/picture", send_picture),
        get("/training/{name}/files/download", download_file),
    ),
    tabs=(JobTab("files", "Files", order=30),),
)


@dataclass(frozen=True, slots=True)
class _File:
    """The object that a request names, and the member of it if it is an archive."""

    found: FoundObject
    member: str

    @property
    def uri(self) -> str:
        return f"s3://{self.found.bucket}/{self.found.key}"


async def _place_of(visit: Visit) -> tuple[JobFrame, FilePlace]:
    job = await load_training_job(visit)
    return job, place_named(job, visit.query.get("place", ""))


async def _file_of(visit: Visit) -> _File:
    job, place = await _place_of(visit)
    found = await find_object(visit.api, place.bucket, place.key + visit.query.get("path", ""), owner=owner_of(job))
    return _File(found, visit.query.get("member", ""))


async def _content_of(visit: Visit, file: _File) -> PreviewContent:
    return await _member_content(visit, file) if file.member else content_of_object(visit.api, file.found)


async def _member_content(visit: Visit, file: _File) -> PreviewContent:
    return await _or_fault(content_of_member(visit.api, file.found, file.member))


async def _or_fault(reading: Awaitable[Read]) -> Read:
    try:
        return await reading
    except NoSuchMember as error:
        raise ApiFault("NoSuchFile", str(error), status=404) from error


def _after(token: str) -> Shape:
    return {"ContinuationToken": token} if token else {}


def _entries(place: FilePlace, page: Shape) -> list[Shape]:
    folders = [_entry(place, each["Prefix"], kind="folder") for each in page["CommonPrefixes"]]
    files = [
        _entry(place, each["Key"], kind="file") | {"size": each["Size"], "modified": each["LastModified"]}
        for each in page["Contents"]
        # Consoles make empty objects that stand for folders.
        if not each["Key"].endswith("/")
    ]
    return folders + files


def _entry(place: FilePlace, key: str, *, kind: str) -> Shape:
    name = key.rstrip("/").rpartition("/")[2] or "/"
    return {"kind": kind, "name": name, "path": key.removeprefix(place.key), "uri": f"s3://{place.bucket}/{key}"}
