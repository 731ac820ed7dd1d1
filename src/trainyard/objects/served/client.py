"""The client of a yard's S3 API, for instances on other machines."""

import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TypeVar

from trainyard.foundation.clock import utc_now
from trainyard.foundation.errors import NotFound, Unavailable
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Pause
from trainyard.objects.remote.failures import RemoteObjectChanged, RetryPolicy, TransientFailure
from trainyard.objects.served.connections import Body, Connections, YardResponse
from trainyard.objects.served.signing import AttemptKeys, sign_headers, target_of

# A yard that restarts responds again within seconds. If it stays away, the lease ends the attempt.
LONG_RETRIES = RetryPolicy(tries=16, first_pause_s=0.2, max_pause_s=8.0, read_timeout_s=60.0)

T = TypeVar("T")

_REVOKED_CODES = frozenset({"InvalidAccessKeyId", "InvalidToken", "ExpiredToken", "InvalidClientTokenId"})
_NOT_FOUND_KINDS = {"NoSuchBucket": "bucket", "NoSuchUpload": "upload"}
_SKEWED_CODE = "RequestTimeTooSkewed"
_RETRYABLE_STATUSES = (408, 429)


class CredentialsRevoked(Unavailable):
    """The yard has revoked the credentials of this attempt; retrying is useless."""

    def __init__(self) -> None:
        super().__init__(
            "The yard has revoked the credentials of this attempt, because the attempt has ended or another one has "
            "replaced it."
        )


class OutcomeUnknown(RemoteObjectChanged):
    """A condition does not hold, but an earlier try without a response may have changed the object itself."""


class YardClient:
    """Sends requests to the yard and retries transient failures. Safe to share between threads.

    NotFound says what is missing. RemoteObjectChanged means that a condition on an ETag does not hold,
    CredentialsRevoked that the attempt has lost its credentials, and Unavailable any other failure.
    """

    def __init__(self, endpoint: str, keys: AttemptKeys, *, retry_policy: RetryPolicy = LONG_RETRIES) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._retry_policy = retry_policy
        self._connections = Connections(endpoint, read_timeout_s=retry_policy.read_timeout_s)
        # How far the yard's clock is ahead of ours.
        self._clock_offset = timedelta()

    def close(self) -> None:
        self._connections.close()

    def request(
        self,
        method: str,
        where: Location | BucketRef,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Callable[[], Body] = bytes,
        take: Callable[[YardResponse], T],
        pause: Pause = time.sleep,
    ) -> T:
        """Send a request, retry transient failures, and return what `take` makes of the response.

        `pause` waits some seconds between two tries, and may raise to give up.
        """
        started_s, tried = time.monotonic(), 0
        while True:
            try:
                return take(self._send(method, where, query=query or {}, headers=headers or {}, body=body))
            except (RemoteObjectChanged, NotFound) as error:
                may_be_ours = isinstance(error, RemoteObjectChanged) or method == "DELETE"
                raise OutcomeUnknown(str(where)) if tried and may_be_ours else error from None
            except TransientFailure as error:
                tried += 1
                if tried >= self._retry_policy.tries:
                    raise self._retries_exhausted(error, tried=tried, seconds=time.monotonic() - started_s) from error
            pause(self._retry_policy.pause_s(tried))

    def _send(
        self,
        method: str,
        where: Location | BucketRef,
        *,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Callable[[], Body],
    ) -> YardResponse:
        bucket, key = (where.bucket, where.key) if isinstance(where, Location) else (where, "")
        target = target_of(bucket.name, key, query)
        unsigned = {"x-amz-expected-bucket-owner": bucket.account, **headers}
        for _ in range(2):
            signed = sign_headers(
                self._keys,
                method,
                target,
                host=self._connections.host,
                headers=unsigned,
                now=utc_now() + self._clock_offset,
            )
            response = self._connections.request(method, target, headers=signed, body=body())
            if response.status < 300:
                return response
            code, message = _fault(response)
            if code != _SKEWED_CODE or not self._set_clock(response):
                break
        if method == "HEAD" and response.status != 412:
            self._raise_cause(bucket)
        raise _error(response.status, code, message, bucket=bucket, key=key)

    def _set_clock(self, response: YardResponse) -> bool:
        """Adopt the yard's time for later signatures, since a node's clock may be wrong; False if it sent none."""
        document = response.header("date")
        if not document:
            return False
        self._clock_offset = parsedate_to_datetime(document) - utc_now()
        return True

    def _raise_cause(self, bucket: BucketRef) -> None:
        """Raise the cause of a failed HEAD if it is not the key: the response itself has only a status."""
        self._send("GET", bucket, query={"location": ""}, headers={}, body=bytes).read()

    def _retries_exhausted(self, error: TransientFailure, *, tried: int, seconds: float) -> Unavailable:
        return Unavailable(
            f"The yard at {self._endpoint} is unavailable: it {error.what}. Tried {tried} times in {seconds:.1f} s. "
            "Check that the yard runs and that this machine can reach that address, which its setting `advertise` "
            "gives."
        )


def _fault(response: YardResponse) -> tuple[str, str]:
    """Return the code and the message of an error response, or empty strings."""
    text = response.read()
    try:
        document = ET.fromstring(text)
    except ET.ParseError:
        return "", ""
    return document.findtext("Code") or "", document.findtext("Message") or ""


def _error(status: int, code: str, message: str, *, bucket: BucketRef, key: str) -> Exception:
    if code in _REVOKED_CODES:
        return CredentialsRevoked()
    if status >= 500 or status in _RETRYABLE_STATUSES:
        return TransientFailure(f"answered {status}{f' {code}' if code else ''}")
    if status == 412:
        return RemoteObjectChanged(f"s3://{bucket.name}/{key}")
    if status == 404:
        return NotFound(_NOT_FOUND_KINDS.get(code, "key"), bucket.name if code == "NoSuchBucket" else key)
    return Unavailable(f"The yard refuses a request for s3://{bucket.name}/{key}: {code} {message}".rstrip(". ") + ".")
