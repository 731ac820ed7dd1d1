"""Reading one version of an object that a yard serves, in ranges."""

import time
from dataclasses import dataclass

from trainyard.foundation.locations import Location
from trainyard.objects.contract import ObjectInfo, Pause, Replaced
from trainyard.objects.remote.faults import Moved
from trainyard.objects.served.answers import TELLING, info_of
from trainyard.objects.served.connections import Answer
from trainyard.objects.served.front import Front


@dataclass(frozen=True, slots=True)
class ServedVersion:
    """Implements `ObjectVersion`."""

    where: Location
    size: int
    etag: str
    front: Front
    info: ObjectInfo | None = None

    def read(self, offset: int, size: int, *, pause: Pause = time.sleep) -> bytes:
        wanted = min(size, self.size - offset)
        if wanted <= 0:
            return b""
        headers = {"range": f"bytes={offset}-{offset + wanted - 1}", "if-match": f'"{self.etag}"'}
        try:
            return self.front.ask("GET", self.where, headers=headers, take=Answer.read, pause=pause)
        except Moved as error:
            raise Replaced(self.where) from error


@dataclass(frozen=True, slots=True)
class ServedVersions:
    """Implements `ObjectVersions`."""

    front: Front

    def known(self, where: Location, *, etag: str, size: int) -> ServedVersion:
        return ServedVersion(where, size, etag, self.front)

    def newest(self, where: Location, *, pause: Pause = time.sleep) -> ServedVersion:
        return self.of(look_up(self.front, where, pause=pause))

    def of(self, info: ObjectInfo) -> ServedVersion:
        return ServedVersion(info.where, info.size, info.etag, self.front, info)


def look_up(front: Front, where: Location, *, pause: Pause = time.sleep) -> ObjectInfo:
    """What is known of an object; NotFound when there is none."""

    def take(answer: Answer) -> ObjectInfo:
        answer.read()
        return info_of(where, answer)

    return front.ask("HEAD", where, headers=TELLING, take=take, pause=pause)
