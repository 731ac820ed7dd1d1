"""Who signed a request: AWS Signature Version 4, read from a header or a link and verified.

`parse_authorization` reads what the request claims, `verify` proves it with the secret of the key it names. Both are
pure, and raise `Refused`, which the caller words for the service that was called.
"""

import contextlib
import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache

from trainyard.wire.canonical import canonical_request, raw_bytes
from trainyard.wire.claim import UNSIGNED_PAYLOAD, Seed, SignedRequest
from trainyard.wire.http import HttpRequest
from trainyard.wire.legacy_link import parse_legacy_link, verify_legacy_link
from trainyard.wire.refusal import ALGORITHM, LEGACY, Family, Reason, Refused, unsupported

MAX_SKEW = timedelta(minutes=15)
MAX_LINK_LIFETIME = timedelta(days=7)


def parse_authorization(request: HttpRequest) -> SignedRequest | None:
    """The request's claim, or None when it is not signed at all. Refused when it is signed in a way not understood."""
    header = request.headers.get("authorization")
    # Most requests have a short query without a signature in it; only those that may have one are decoded.
    if "ignature" in request.query or "X-Amz-" in request.query:
        parameters = dict(request.parameters())
        if "X-Amz-Signature" in parameters or "X-Amz-Algorithm" in parameters or "Signature" in parameters:
            if header:
                raise Refused(
                    Reason.AMBIGUOUS, "Only one auth mechanism is allowed: the header or the query, not both."
                )
            return _parse_link(request, parameters)
    return _parse_header(request, header) if header else None


def check_claim(signed: SignedRequest, request: HttpRequest, *, now: datetime, family: Family) -> None:
    """Refuse what cannot be verified whatever the body and the secret are."""
    if signed.is_legacy:
        if family is not Family.S3:
            raise unsupported(LEGACY)
        return
    _check_time(signed, now)
    _check_signed_headers(signed, request, family)


def verify(
    signed: SignedRequest,
    request: HttpRequest,
    *,
    secret: str,
    now: datetime,
    family: Family,
    labels: Mapping[str, str] | None = None,
) -> Seed:
    """Prove that the holder of `secret` signed this request about now.

    Where the request declares what its body is, the body is not looked at, and need not have come. For S3 it always
    does, and `VerifiedStream` proves it while it is read; for others `prove_body` does. Where it is not declared,
    `request.body` is the whole body and is proven here. `labels` are those of the route; without them links
    of Signature Version 2 are refused, because they sign the bucket and not the host that may name it.
    """
    check_claim(signed, request, now=now, family=family)
    if signed.is_legacy:
        if labels is None:
            raise unsupported(LEGACY)
        return verify_legacy_link(signed, request, secret=secret, now=now, labels=labels)
    canonical = canonical_request(
        request,
        signed.signed_headers,
        payload_hash=_payload_hash(signed, request, family),
        has_sent_path=family is Family.S3,
    )
    text = f"{ALGORITHM}\n{signed.timestamp}\n{signed.scope}\n{hashlib.sha256(raw_bytes(canonical)).hexdigest()}"
    key = _signing_key(secret, signed.date, signed.region, signed.service)
    computed = hmac.digest(key, raw_bytes(text), "sha256").hex()
    if not hmac.compare_digest(computed.encode(), signed.signature.encode("utf-8", "replace")):
        raise Refused(Reason.MISMATCH, members=_evidence(signed, text, canonical))
    return Seed(signing_key=key, timestamp=signed.timestamp, scope=signed.scope, signature=computed)


def prove_body(signed: SignedRequest, body: bytes) -> None:
    """Refuse a body that is not the one that the signed request declares."""
    if signed.declares_body and hashlib.sha256(body).hexdigest() != signed.payload_hash:
        raise Refused(Reason.PAYLOAD_MISMATCH)


def _parse_header(request: HttpRequest, header: str) -> SignedRequest:
    algorithm, _, rest = header.partition(" ")
    if algorithm != ALGORITHM:
        raise unsupported(LEGACY if algorithm == "AWS" else algorithm[:80])
    if rest.count(",") > _MOST_COMMAS:
        raise Refused(Reason.MALFORMED_HEADER, "The authorization header is malformed; it has more than three fields.")
    fields = {name.strip(): value for name, _, value in (piece.partition("=") for piece in rest.split(","))}
    missing = [name for name in ("Credential", "SignedHeaders", "Signature") if not fields.get(name)]
    if missing or len(fields) > 3:
        lack = f"it has no {' and no '.join(missing)}" if missing else "it has more than three fields"
        raise Refused(Reason.MALFORMED_HEADER, f"The authorization header is malformed; {lack}.")
    timestamp = _header_timestamp(request)
    return _signed_request(
        Reason.MALFORMED_HEADER,
        credential=fields["Credential"],
        signed_headers=fields["SignedHeaders"],
        signature=fields["Signature"].strip(),
        timestamp=timestamp,
        session_token=request.headers.get("x-amz-security-token") or None,
        payload_hash=request.headers.get("x-amz-content-sha256") or None,
    )


def _header_timestamp(request: HttpRequest) -> str:
    """The signing time in the ISO form that is signed; a Date header may write it the long way."""
    written = request.headers.get("x-amz-date") or request.headers.get("date")
    if not written:
        raise Refused(
            Reason.UNDATED, "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header."
        )
    if _TIMESTAMP.fullmatch(written):
        return written
    try:
        moment = parsedate_to_datetime(written).astimezone(UTC)
    # A date at either end of the calendar cannot be moved to UTC, and a year of many digits is no C integer.
    except (ValueError, OverflowError):
        raise Refused(Reason.UNDATED, f'The date "{written}" of the request cannot be read.') from None
    return f"{moment.year:04}{moment:%m%dT%H%M%SZ}"


_MOST_COMMAS = 3  # between three fields, and one after the last
_MOST_SIGNED_HEADERS = 200
_TIMESTAMP = re.compile(r"[0-9]{8}T[0-9]{6}Z")


def _parse_link(request: HttpRequest, parameters: Mapping[str, str]) -> SignedRequest:
    if "X-Amz-Algorithm" not in parameters and "AWSAccessKeyId" in parameters:
        return parse_legacy_link(request, parameters)
    algorithm = parameters.get("X-Amz-Algorithm", "none")
    if algorithm != ALGORITHM:
        raise unsupported(algorithm)
    missing = [name for name in _LINK_PARAMETERS if not parameters.get(name)]
    if missing:
        raise Refused(
            Reason.MALFORMED_QUERY,
            "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, "
            f"X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters; {' and '.join(missing)} missing.",
        )
    if not _TIMESTAMP.fullmatch(parameters["X-Amz-Date"]):
        raise Refused(Reason.MALFORMED_QUERY, "X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")
    return _signed_request(
        Reason.MALFORMED_QUERY,
        credential=parameters["X-Amz-Credential"],
        signed_headers=parameters["X-Amz-SignedHeaders"],
        signature=parameters["X-Amz-Signature"],
        timestamp=parameters["X-Amz-Date"],
        session_token=parameters.get("X-Amz-Security-Token") or None,
        payload_hash=parameters.get("X-Amz-Content-Sha256") or request.headers.get("x-amz-content-sha256") or None,
        expires_in=_link_lifetime(parameters["X-Amz-Expires"]),
    )


_LINK_PARAMETERS = ("X-Amz-Credential", "X-Amz-Signature", "X-Amz-Date", "X-Amz-SignedHeaders", "X-Amz-Expires")


def _link_lifetime(written: str) -> timedelta:
    if not (written.isascii() and written.isdigit()):
        raise Refused(Reason.MALFORMED_QUERY, f'X-Amz-Expires should be a number of seconds, not "{written}"')
    # Python refuses to read a number of thousands of digits; eight are far past the limit already.
    lifetime = timedelta(seconds=int(written[:8]))
    if len(written) > 8 or lifetime > MAX_LINK_LIFETIME:
        raise Refused(
            Reason.MALFORMED_QUERY, "X-Amz-Expires must be less than a week (in seconds); that is, at most 604800"
        )
    return lifetime


def _signed_request(
    malformed: Reason,
    *,
    credential: str,
    signed_headers: str,
    signature: str,
    timestamp: str,
    session_token: str | None,
    payload_hash: str | None,
    expires_in: timedelta | None = None,
) -> SignedRequest:
    if not _HEADER_NAMES.fullmatch(signed_headers) or signed_headers.count(";") >= _MOST_SIGNED_HEADERS:
        raise Refused(malformed, f'The SignedHeaders "{signed_headers[:1000]}" are no list of header names.')
    scope = _CREDENTIAL.fullmatch(credential)
    if scope is None:
        raise Refused(
            malformed,
            f'The Credential "{credential}" is malformed; expecting '
            '"<your-access-key-id>/YYYYMMDD/REGION/SERVICE/aws4_request".',
        )
    access_key_id, date, region, service = scope.groups()
    if date != timestamp[:8]:
        raise Refused(malformed, f'The date "{date}" in the Credential is not that of the request, "{timestamp}".')
    return SignedRequest(
        access_key_id=access_key_id,
        date=date,
        region=region,
        service=service,
        signed_headers=tuple(signed_headers.split(";")),
        signature=signature,
        timestamp=timestamp,
        signed_at=_moment(timestamp, malformed),
        expires_in=expires_in,
        session_token=session_token,
        payload_hash=payload_hash,
        is_presigned=expires_in is not None,
    )


# What is no header name could make one signed text mean two requests.
_HEADER_NAMES = re.compile(r"[a-zA-Z0-9!#$%&'*+.^_`|~;-]+")
_CREDENTIAL = re.compile(r"(.+)/([0-9]{8})/([a-z0-9-]{1,64})/([a-z0-9-]{1,64})/aws4_request")


def _moment(timestamp: str, malformed: Reason) -> datetime:
    # strptime takes 8 µs for this.
    try:
        return datetime(
            int(timestamp[:4]),
            int(timestamp[4:6]),
            int(timestamp[6:8]),
            int(timestamp[9:11]),
            int(timestamp[11:13]),
            int(timestamp[13:15]),
            tzinfo=UTC,
        )
    except ValueError:
        raise Refused(malformed, f'"{timestamp}" is not a time.') from None


def _check_time(signed: SignedRequest, now: datetime) -> None:
    if signed.signed_at > now + MAX_SKEW:
        reason = Reason.LINK_NOT_YET_VALID if signed.is_presigned else Reason.SKEWED
        message = f"Signature not yet current: {signed.timestamp} is still later than {_basic(now)} plus 15 min."
        raise Refused(reason, message, members=_times(signed, now))
    lifetime = signed.expires_in if signed.expires_in is not None else MAX_SKEW
    if now > signed.signed_at + lifetime:
        reason = Reason.LINK_EXPIRED if signed.is_presigned else Reason.SKEWED
        message = f"Signature expired: {signed.timestamp} is more than {lifetime} earlier than {_basic(now)}."
        raise Refused(reason, message, members=_times(signed, now))


def _basic(moment: datetime) -> str:
    return moment.strftime("%Y%m%dT%H%M%SZ")


def _times(signed: SignedRequest, now: datetime) -> dict[str, str]:
    server_time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    if signed.expires_in is None:
        allowed = int(MAX_SKEW.total_seconds() * 1000)
        return {
            "RequestTime": signed.timestamp,
            "ServerTime": server_time,
            "MaxAllowedSkewMilliseconds": str(allowed),
        }
    times = {"X-Amz-Expires": str(int(signed.expires_in.total_seconds())), "ServerTime": server_time}
    # A link that is signed for the end of the calendar expires at no date.
    with contextlib.suppress(OverflowError):
        times["Expires"] = f"{signed.signed_at + signed.expires_in:%Y-%m-%dT%H:%M:%SZ}"
    return times


def _check_signed_headers(signed: SignedRequest, request: HttpRequest, family: Family) -> None:
    """Refuse a request whose meaning someone on the way could change."""
    names = signed.signed_headers
    missing = [] if "host" in names else ["host"]
    for name in request.headers:
        # S3 reads its parameters from x-amz- headers; elsewhere only the target decides what is called.
        if name.startswith("x-amz-") and name not in names and (family is Family.S3 or name == "x-amz-target"):
            # A link signs all of its query, and with it the headers that it carries there.
            missing += [] if name in request.from_link else [name]
    if missing:
        listed = ", ".join(missing)
        raise Refused(
            Reason.HEADERS_NOT_SIGNED,
            f"These headers must be among the SignedHeaders of the AWS Authorization: {listed}.",
            members={"HeadersNotSigned": listed},
        )


def _payload_hash(signed: SignedRequest, request: HttpRequest, family: Family) -> str:
    declared = signed.payload_hash
    if family is Family.S3:
        if declared is None and not signed.is_presigned:
            raise Refused(Reason.PAYLOAD_NOT_DECLARED)
        return declared or UNSIGNED_PAYLOAD
    if declared == UNSIGNED_PAYLOAD and "x-amz-content-sha256" in signed.signed_headers:
        return declared
    if declared is not None and signed.declares_body:
        return declared
    return hashlib.sha256(request.body).hexdigest()


@lru_cache(maxsize=1024)
def _signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    """Four HMACs that change once a day per key, region and service."""
    key = hmac.digest(f"AWS4{secret}".encode(), date.encode(), "sha256")
    for part in (region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _evidence(signed: SignedRequest, text: str, canonical: str) -> dict[str, str]:
    """What S3 tells a client, so that it can compare with what it signed."""
    return {
        "AWSAccessKeyId": signed.access_key_id,
        "StringToSign": text,
        "SignatureProvided": signed.signature,
        "StringToSignBytes": raw_bytes(text).hex(" "),
        "CanonicalRequest": canonical,
        "CanonicalRequestBytes": raw_bytes(canonical).hex(" "),
    }
