"""The objects of a yard on another machine, through its S3 API."""

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
    WriteResult,
)
from trainyard.objects.encryption.headers import encryption_headers
from trainyard.objects.preconditions import check_precondition
from trainyard.objects.remote.failures import RemoteObjectChanged, RetryPolicy
from trainyard.objects.remote.parallel import Pause, run_all
from trainyard.objects.remote.reader import RemoteReader
from trainyard.objects.remote.staging import StagedBody, StagedPart, StagedWriter
from trainyard.objects.served.client import LONG_RETRIES, OutcomeUnknown, YardClient
from trainyard.objects.served.connections import YardResponse
from trainyard.objects.served.responses import (
    CHECKSUM_MODE,
    attribute_headers,
    completion_document,
    condition_headers,
    parse_etag,
    parse_info,
    parse_listing,
    parse_upload_id,
)
from trainyard.objects.served.signing import AttemptKeys
from trainyard.objects.served.versions import ServedVersions, head_object

# A larger body is sent in parts of this size, or larger if there would be too many. The size is large because a body
# that is sent whole leaves nothing behind at the yard when its sender is killed.
PART_BYTES = 1 << 30

# S3 allows 10,000.
_MAX_PARTS = 9_000
_SENDERS = 4
_PAGE = 1000


class ServedObjects:
    """`ObjectAccess` to the buckets of a yard, with the credentials of one attempt.

    It needs only the standard library, so that a node needs no packages. Bodies are collected in `staging` and sent on
    commit; only then does a missing bucket show. A body sent in parts keeps no checksum. Infos have no tags and parts.
    If an object of up to 1 MiB is replaced, its readers are unaffected. So are readers of a larger one as long as they
    read sequentially.
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
        retry_policy: RetryPolicy = LONG_RETRIES,
    ) -> None:
        self._client = YardClient(
            endpoint, AttemptKeys(access_key_id, secret_access_key, session_token, region), retry_policy=retry_policy
        )
        self._staging = staging
        self.versions = ServedVersions(self._client)
        staging.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        self._client.close()

    def writer(
        self, where: Location, attributes: Attributes, *, algorithms: Sequence[ChecksumAlgorithm] = ()
    ) -> StagedWriter:
        def record(staged: StagedBody, written: WriteResult, precondition: Precondition) -> WriteResult:
            is_whole = staged.size <= PART_BYTES
            headers = attribute_headers(attributes, written.checksum if is_whole else None)
            send = self._send_whole if is_whole else self._send_in_parts
            try:
                etag = send(where, staged, headers=headers, precondition=precondition)
                checksum = written.checksum if is_whole else None
                return replace(written, etag=etag, checksum=checksum, encryption=encryption_headers(attributes))
            except RemoteObjectChanged as error:
                raise PreconditionFailed(f"{where} does not meet the precondition.") from error
            except NotFound as error:
                # The response to If-Match on a missing object.
                if error.kind == "key":
                    raise PreconditionFailed(f"{where} does not exist.") from error
                raise

        return StagedWriter(StagedBody(self._staging, algorithms), record=record)

    def open(self, where: Location) -> RemoteReader:
        response = self._client.request("GET", where, headers=CHECKSUM_MODE, take=lambda response: response)
        return RemoteReader(self.versions.of(parse_info(where, response)), response)

    def info(self, where: Location) -> ObjectInfo:
        return head_object(self._client, where)

    def list_objects(
        self, bucket: BucketRef, *, prefix: str = "", delimiter: str = "", after: str = "", limit: int = _PAGE
    ) -> Listing:
        query = {"list-type": "2", "encoding-type": "url", "max-keys": str(min(limit, _PAGE))}
        filters = {"prefix": prefix, "delimiter": delimiter, "start-after": after}
        query |= {name: text for name, text in filters.items() if text}
        return parse_listing(self._client.request("GET", bucket, query=query, take=YardResponse.read))

    def delete(self, where: Location, *, precondition: Precondition = ANY_STATE) -> bool:
        while True:
            etag = self._etag(where)
            check_precondition(precondition, where, etag=etag)
            if etag is None:
                return False
            try:
                # S3 does not say whether there was an object, but If-Match deletes only the one we have seen.
                headers = condition_headers(Precondition(etag=etag))
                self._client.request("DELETE", where, headers=headers, take=YardResponse.read)
            except OutcomeUnknown:
                return True
            except (RemoteObjectChanged, NotFound):
                continue
            return True

    def _etag(self, where: Location) -> str | None:
        try:
            return head_object(self._client, where).etag
        except NotFound as error:
            if error.kind == "bucket":
                raise
            return None

    def _send_whole(
        self, where: Location, staged: StagedBody, *, headers: dict[str, str], precondition: Precondition
    ) -> str:
        digest = base64.b64encode(bytes.fromhex(staged.digests.etag)).decode()
        sent = {
            **headers,
            **condition_headers(precondition),
            "content-length": str(staged.size),
            "content-md5": digest,
        }
        try:
            return self._client.request("PUT", where, headers=sent, body=staged.body, take=_etag)
        except OutcomeUnknown:
            if self._etag(where) != staged.digests.etag:
                raise
            return staged.digests.etag

    def _send_in_parts(
        self, where: Location, staged: StagedBody, *, headers: dict[str, str], precondition: Precondition
    ) -> str:
        upload_id = self._client.request(
            "POST",
            where,
            query={"uploads": ""},
            headers=headers,
            take=lambda response: parse_upload_id(response.read()),
        )
        query = {"uploadId": upload_id}
        try:
            etags = self._send_parts(where, staged, query=query)
            return self._client.request(
                "POST",
                where,
                query=query,
                headers=condition_headers(precondition),
                body=lambda: completion_document(etags),
                take=lambda response: parse_etag(response.read()),
            )
        except BaseException:
            self._abort_upload(where, query)
            raise

    def _send_parts(self, where: Location, staged: StagedBody, *, query: dict[str, str]) -> dict[int, str]:
        etags: dict[int, str] = {}
        size = max(PART_BYTES, -(-staged.size // _MAX_PARTS))

        def send(number: int, pause: Pause) -> None:
            def part() -> StagedPart:
                return staged.part((number - 1) * size, size)

            etags[number] = self._client.request(
                "PUT",
                where,
                query={**query, "partNumber": str(number)},
                headers={"content-length": str(part().size)},
                body=part,
                take=_etag,
                pause=pause,
            )

        run_all(send, range(1, -(-staged.size // size) + 1), check=_never_stop, threads=_SENDERS)
        return etags

    def _abort_upload(self, where: Location, query: dict[str, str]) -> None:
        try:
            self._client.request("DELETE", where, query=query, take=YardResponse.read)
        # As with any S3, the parts then stay until somebody aborts the upload.
        except TrainyardError:
            return


def _etag(response: YardResponse) -> str:
    response.read()
    return response.header("etag").strip('"')


def _never_stop() -> None:
    """Let the upload run to its end; a sender that must stop earlier is killed."""
