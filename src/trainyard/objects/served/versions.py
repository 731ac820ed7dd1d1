"""Reads one version of a yard's object in ranges."""

import time
from dataclasses import dataclass

from trainyard.foundation.locations import Location
from trainyard.objects.contract import ObjectInfo, ObjectReplaced, Pause
from trainyard.objects.remote.failures import RemoteObjectChanged
from trainyard.objects.served.client import YardClient
from trainyard.objects.served.connections import YardResponse
from trainyard.objects.served.responses import CHECKSUM_MODE, parse_info


@dataclass(frozen=True, slots=True)
class ServedVersion:
    """Implements `ObjectVersion`."""

    where: Location
    size: int
    etag: str
    front: YardClient
    info: ObjectInfo | None = None

    def read(self, offset: int, size: int, *, pause: Pause = time.sleep) -> bytes:
        wanted = min(size, self.size - offset)
        if wanted <= 0:
            return b""
        headers = {"range": f"bytes={offset}-{offset + wanted - 1}", "if-match": f'"{self.etag}"'}
        try:
            return self.front.request("GET", self.where, headers=headers, take=YardResponse.read, pause=pause)
        except RemoteObjectChanged as error:
            raise ObjectReplaced(self.where) from error


@dataclass(frozen=True, slots=True)
class ServedVersions:
    """Implements `ObjectVersions`."""

    front: YardClient

    def from_listing(self, where: Location, *, etag: str, size: int) -> ServedVersion:
        return ServedVersion(where, size, etag, self.front)

    def newest(self, where: Location, *, pause: Pause = time.sleep) -> ServedVersion:
        return self.of(head_object(self.front, where, pause=pause))

    def of(self, info: ObjectInfo) -> ServedVersion:
        return ServedVersion(info.where, info.size, info.etag, self.front, info)


def head_object(front: YardClient, where: Location, *, pause: Pause = time.sleep) -> ObjectInfo:
    """Return the info of an object; NotFound if there is none."""

    def take(response: YardResponse) -> ObjectInfo:
        response.read()
        return parse_info(where, response)

    return front.request("HEAD", where, headers=CHECKSUM_MODE, take=take, pause=pause)
