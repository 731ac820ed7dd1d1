"""The objects of a yard on another machine, through the S3 that it serves."""

import base64
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import (
    ANY_STATE,
    Attributes,
    ChecksumAlgorithm,
    Listing,
    ObjectInfo,
    Precondition,
    PreconditionFailed,
    Written,
)
from trainyard.objects.preconditions import check_precondition
from trainyard.objects.remote.crew import Pause, do_all
from trainyard.objects.remote.faults import Moved
from trainyard.objects.remote.patience import Patience
from trainyard.objects.remote.reader import RemoteReader
from trainyard.objects.remote.staging import Staged, StagedPart, StagedWriter
from trainyard.objects.served.answers import (
    TELLING,
    attribute_headers,
    completion,
    condition_headers,
    etag_of,
    info_of,
    listing_of,
    upload_id_of,
)
from trainyard.objects.served.connections import Answer
from trainyard.objects.served.front import STEADFAST, Front, Unsure
from trainyard.objects.served.signing import Keys
from trainyard.objects.served.versions import ServedVersions, look_up

# A larger body goes in parts of this size, or of one by which they are few enough. Not a smaller one: of a body that
# goes whole nothing is left with the yard when its sender is killed.
PART_BYTES = 1 << 30

_MOST_PARTS = 9_000  # S3 takes 10,000
_SENDERS = 4
_PAGE = 1000


class ServedObjects:
    """`ObjectAccess` to the buckets of a yard, under their own names and with the keys of one attempt.

    It needs nothing but the standard library, so that a node needs no more either, and can name every key there is.
    Bodies are collected in `staging` and sent when they are committed; whether there is the bucket shows only then.
    One that goes in parts keeps no checksum.
    Of what a yard knows of an object it does not tell tags and parts. A reader outlives a replacement of its object up
    to 1 MiB, and beyond that while it reads from front to back.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        staging: Path,
        access_key_id: str,
        secret_access_key: str,
        session_token: str = "",
        region: str = "us-east-1",
        patience: Patience = STEADFAST,
    ) -> None:
        self._front = Front(endpoint, Keys(access_key_id, secret_access_key, session_token, region), patience=patience)
        self._staging = staging
        self.versions = ServedVersions(self._front)
        staging.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        self._front.close()

    def writer(
        self, where: Location, attributes: Attributes, *, algorithms: Sequence[ChecksumAlgorithm] = ()
    ) -> StagedWriter:
        def record(staged: Staged, written: Written, precondition: Precondition) -> Written:
            is_whole = staged.size <= PART_BYTES
            headers = attribute_headers(attributes, written.checksum if is_whole else None)
            send = self._send_whole if is_whole else self._send_in_parts
            try:
                etag = send(where, staged, headers=headers, precondition=precondition)
                return replace(written, etag=etag, checksum=written.checksum if is_whole else None)
            except Moved as error:
                raise PreconditionFailed(f"{where} is not in the state that was demanded.") from error
            except NotFound as error:
                if error.kind == "key":  # so is answered a demand on an object that is not there
                    raise PreconditionFailed(f"{where} does not exist.") from error
                raise

        return StagedWriter(Staged(self._staging, algorithms), record=record)

    def open(self, where: Location) -> RemoteReader:
        answer = self._front.ask("GET", where, headers=TELLING, take=lambda answer: answer)
        return RemoteReader(self.versions.of(info_of(where, answer)), answer)

    def info(self, where: Location) -> ObjectInfo:
        return look_up(self._front, where)

    def list_objects(
        self, bucket: BucketRef, *, prefix: str = "", delimiter: str = "", after: str = "", limit: int = _PAGE
    ) -> Listing:
        query = {"list-type": "2", "encoding-type": "url", "max-keys": str(min(limit, _PAGE))}
        asked = {"prefix": prefix, "delimiter": delimiter, "start-after": after}
        query |= {name: text for name, text in asked.items() if text}
        return listing_of(self._front.ask("GET", bucket, query=query, take=Answer.read))

    def delete(self, where: Location, *, precondition: Precondition = ANY_STATE) -> bool:
        while True:
            etag = self._etag(where)
            check_precondition(precondition, where, etag=etag)
            if etag is None:
                return False
            try:
                # S3 does not tell whether there was an object, but it deletes only the one that we have seen.
                headers = condition_headers(Precondition(etag=etag))
                self._front.ask("DELETE", where, headers=headers, take=Answer.read)
            except Unsure:
                return True
            except (Moved, NotFound):
                continue
            return True

    def _etag(self, where: Location) -> str | None:
        try:
            return look_up(self._front, where).etag
        except NotFound as error:
            if error.kind == "bucket":
                raise
            return None

    def _send_whole(
        self, where: Location, staged: Staged, *, headers: dict[str, str], precondition: Precondition
    ) -> str:
        digest = base64.b64encode(bytes.fromhex(staged.digests.etag)).decode()
        sent = {
            **headers,
            **condition_headers(precondition),
            "content-length": str(staged.size),
            "content-md5": digest,
        }
        try:
            return self._front.ask("PUT", where, headers=sent, body=staged.body, take=_etag)
        except Unsure:
            if self._etag(where) != staged.digests.etag:
                raise
            return staged.digests.etag

    def _send_in_parts(
        self, where: Location, staged: Staged, *, headers: dict[str, str], precondition: Precondition
    ) -> str:
        upload_id = self._front.ask(
            "POST", where, query={"uploads": ""}, headers=headers, take=lambda answer: upload_id_of(answer.read())
        )
        query = {"uploadId": upload_id}
        try:
            etags = self._send_parts(where, staged, query=query)
            return self._front.ask(
                "POST",
                where,
                query=query,
                headers=condition_headers(precondition),
                body=lambda: completion(etags),
                take=lambda answer: etag_of(answer.read()),
            )
        except BaseException:
            self._abandon(where, query)
            raise

    def _send_parts(self, where: Location, staged: Staged, *, query: dict[str, str]) -> dict[int, str]:
        etags: dict[int, str] = {}
        size = max(PART_BYTES, -(-staged.size // _MOST_PARTS))

        def send(number: int, pause: Pause) -> None:
            def part() -> StagedPart:
                return staged.part((number - 1) * size, size)

            etags[number] = self._front.ask(
                "PUT",
                where,
                query={**query, "partNumber": str(number)},
                headers={"content-length": str(part().size)},
                body=part,
                take=_etag,
                pause=pause,
            )

        do_all(send, range(1, -(-staged.size // size) + 1), check=_go_on, threads=_SENDERS)
        return etags

    def _abandon(self, where: Location, query: dict[str, str]) -> None:
        try:
            self._front.ask("DELETE", where, query=query, take=Answer.read)
        except TrainyardError:  # then its parts stay until somebody aborts the upload, as with any S3
            return


def _etag(answer: Answer) -> str:
    answer.read()
    return answer.header("etag").strip('"')


def _go_on() -> None:
    """Sending has no end but its own: what gives up while it lasts is killed."""
