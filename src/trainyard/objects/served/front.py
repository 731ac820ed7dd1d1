"""The S3 that a yard serves, as an instance on another machine asks it."""

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
from trainyard.objects.remote.faults import Moved, Passing
from trainyard.objects.remote.patience import Patience
from trainyard.objects.served.connections import Answer, Body, Connections
from trainyard.objects.served.signing import Keys, signed, target_of

# A yard that is started anew answers again within seconds. One that stays away ends the attempt by its lease.
STEADFAST = Patience(tries=16, first_pause_s=0.2, longest_pause_s=8.0, answer_s=60.0)

T = TypeVar("T")

_REVOKED = frozenset({"InvalidAccessKeyId", "InvalidToken", "ExpiredToken", "InvalidClientTokenId"})
_MISSING = {"NoSuchBucket": "bucket", "NoSuchUpload": "upload"}
_SKEWED = "RequestTimeTooSkewed"
_LATER = (408, 429)  # refusals that are none for ever


class Fenced(Unavailable):
    """The yard takes nothing more from this attempt, however often it is asked."""

    def __init__(self) -> None:
        super().__init__(
            "The yard refuses the credentials of this attempt: they were revoked, because the attempt has ended or "
            "another one has taken its place."
        )


class Unsure(Moved):
    """A condition does not hold, but an earlier try stayed without an answer: that one may have changed the object."""


class Front:
    """Sends requests to the yard. May be used from any thread.

    What may pass is tried again as `patience` says. NotFound says what is missing, Moved that a condition on an ETag
    does not hold, Fenced that the credentials were revoked, Unavailable everything else that goes wrong.
    """

    def __init__(self, endpoint: str, keys: Keys, *, patience: Patience = STEADFAST) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._patience = patience
        self._connections = Connections(endpoint, answer_s=patience.answer_s)
        self._ahead = timedelta()  # by which the yard's clock is before ours

    def close(self) -> None:
        self._connections.close()

    def ask(
        self,
        method: str,
        where: Location | BucketRef,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Callable[[], Body] = bytes,
        take: Callable[[Answer], T],
        pause: Pause = time.sleep,
    ) -> T:
        """What is taken of the answer to a request, which may be sent several times.

        `pause` waits some seconds between two tries, and may raise to give up.
        """
        begun, tried = time.monotonic(), 0
        while True:
            try:
                return take(self._ask(method, where, query=query or {}, headers=headers or {}, body=body))
            except (Moved, NotFound) as error:
                is_of_write = isinstance(error, Moved) or method == "DELETE"
                raise Unsure(str(where)) if tried and is_of_write else error from None
            except Passing as error:
                tried += 1
                if tried >= self._patience.tries:
                    raise self._gave_up(error, tried=tried, seconds=time.monotonic() - begun) from error
            pause(self._patience.pause_s(tried))

    def _ask(
        self,
        method: str,
        where: Location | BucketRef,
        *,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Callable[[], Body],
    ) -> Answer:
        bucket, key = (where.bucket, where.key) if isinstance(where, Location) else (where, "")
        target = target_of(bucket.name, key, query)
        asked = {"x-amz-expected-bucket-owner": bucket.account, **headers}
        for _ in range(2):
            proven = signed(
                self._keys, method, target, host=self._connections.host, headers=asked, now=utc_now() + self._ahead
            )
            answer = self._connections.request(method, target, headers=proven, body=body())
            if answer.status < 300:
                return answer
            code, message = _fault(answer)
            if code != _SKEWED or not self._set_clock(answer):
                break
        if method == "HEAD" and answer.status != 412:
            self._explain(bucket)
        raise _error(answer.status, code, message, bucket=bucket, key=key)

    def _set_clock(self, answer: Answer) -> bool:
        """Whether the yard tells its own time, by which requests are signed from now on: nodes' clocks may be wrong."""
        told = answer.header("date")
        if not told:
            return False
        self._ahead = parsedate_to_datetime(told) - utc_now()
        return True

    def _explain(self, bucket: BucketRef) -> None:
        """Raise what is wrong, if it is not just the key: an answer to HEAD tells no more than a number."""
        self._ask("GET", bucket, query={"location": ""}, headers={}, body=bytes).read()

    def _gave_up(self, error: Passing, *, tried: int, seconds: float) -> Unavailable:
        return Unavailable(
            f"The yard at {self._endpoint} cannot be asked: it {error.what}. It was tried {tried} times in "
            f"{seconds:.1f} s. See that the yard runs, and that this machine reaches the address, which its setting "
            "`advertise` names."
        )


def _fault(answer: Answer) -> tuple[str, str]:
    """The code and the message of a refusal, as far as it tells them."""
    text = answer.read()
    try:
        told = ET.fromstring(text)
    except ET.ParseError:
        return "", ""
    return told.findtext("Code") or "", told.findtext("Message") or ""


def _error(status: int, code: str, message: str, *, bucket: BucketRef, key: str) -> Exception:
    if code in _REVOKED:
        return Fenced()
    if status >= 500 or status in _LATER:
        return Passing(f"answered {status}{f' {code}' if code else ''}")
    if status == 412:
        return Moved(f"s3://{bucket.name}/{key}")
    if status == 404:
        return NotFound(_MISSING.get(code, "key"), bucket.name if code == "NoSuchBucket" else key)
    return Unavailable(f"The yard refuses a request for s3://{bucket.name}/{key}: {code} {message}".rstrip(". ") + ".")
