"""AWS Signature Version 4, read from a header or a presigned link and verified.

`parse_authorization` reads what the request claims, `verify` checks it with the secret of the key it names. Both are
pure and raise `RequestRefused`, which the caller turns into the fault of the service that was called.
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
from trainyard.wire.http import HttpRequest
from trainyard.wire.legacy_link import parse_legacy_link, verify_legacy_link
from trainyard.wire.refusal import ALGORITHM, LEGACY, Family, Reason, RequestRefused, unsupported_mechanism
from trainyard.wire.signed_request import UNSIGNED_PAYLOAD, Seed, SignedRequest

MAX_SKEW = timedelta(minutes=15)
MAX_LINK_LIFETIME = timedelta(days=7)


def parse_authorization(request: HttpRequest) -> SignedRequest | None:
    """Parse the claim of a request; None if it is unsigned. RequestRefused if the signature is not of a known form."""
    header = request.headers.get("authorization")
    # Most queries have no signature; decode only those that may have one.
    if "ignature" in request.query or "X-Amz-" in request.query:
        parameters = dict(request.parameters())
        if "X-Amz-Signature" in parameters or "X-Amz-Algorithm" in parameters or "Signature" in parameters:
            if header:
                raise RequestRefused(
                    Reason.AMBIGUOUS, "Only one auth mechanism is allowed: the header or the query, not both."
                )
            return _parse_link(request, parameters)
    return _parse_header(request, header) if header else None


def check_signed_request(signed: SignedRequest, request: HttpRequest, *, now: datetime, family: Family) -> None:
    """Refuse a claim that no body and no secret could verify: wrong service, time or signed headers."""
    if signed.is_legacy:
        if family is not Family.S3:
            raise unsupported_mechanism(LEGACY)
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
    """Verify that the holder of `secret` signed this request recently.

    If the request declares the hash of its body, the body is not read here and need not have arrived. S3 requests
    always declare it, and `VerifiedStream` checks the body while it is read; for other services `verify_body` does.
    Otherwise `request.body` must be the whole body and is verified here. `labels` are those of the route; without them
    links of Signature Version 2 are refused, because they sign the bucket and not the host that may name it.
    """
    check_signed_request(signed, request, now=now, family=family)
    if signed.is_legacy:
        if labels is None:
            raise unsupported_mechanism(LEGACY)
        return verify_legacy_link(signed, request, secret=secret, now=now, labels=labels)
    canonical = canonical_request(
        request,
        signed.signed_headers,
        payload_hash=_payload_hash(signed, request, family),
        signs_raw_path=family is Family.S3,
    )
    text = f"{ALGORITHM}\n{signed.timestamp}\n{signed.scope}\n{hashlib.sha256(raw_bytes(canonical)).hexdigest()}"
    key = _signing_key(secret, signed.date, signed.region, signed.service)
    computed = hmac.digest(key, raw_bytes(text), "sha256").hex()
    if not hmac.compare_digest(computed.encode(), signed.signature.encode("utf-8", "replace")):
        raise RequestRefused(Reason.MISMATCH, members=_mismatch_members(signed, text, canonical))
    return Seed(signing_key=key, timestamp=signed.timestamp, scope=signed.scope, signature=computed)


def verify_body(signed: SignedRequest, body: bytes) -> None:
    """Refuse a body whose hash differs from the declared one."""
    if signed.declares_body and hashlib.sha256(body).hexdigest() != signed.payload_hash:
        raise RequestRefused(Reason.PAYLOAD_MISMATCH)


def _parse_header(request: HttpRequest, header: str) -> SignedRequest:
    algorithm, _, rest = header.partition(" ")
    if algorithm != ALGORITHM:
        raise unsupported_mechanism(LEGACY if algorithm == "AWS" else algorithm[:80])
    if rest.count(",") > _MAX_COMMAS:
        raise RequestRefused(
            Reason.MALFORMED_HEADER, "The authorization header is malformed; it has more than three fields."
        )
    fields = {name.strip(): value for name, _, value in (piece.partition("=") for piece in rest.split(","))}
    missing = [name for name in ("Credential", "SignedHeaders", "Signature") if not fields.get(name)]
    if missing or len(fields) > 3:
        lack = f"it has no {' and no '.join(missing)}" if missing else "it has more than three fields"
        raise RequestRefused(Reason.MALFORMED_HEADER, f"The authorization header is malformed; {lack}.")
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
    """Return the signing time in the ISO form that is signed; a Date header may have an HTTP date."""
    written = request.headers.get("x-amz-date") or request.headers.get("date")
    if not written:
        raise RequestRefused(
            Reason.UNDATED, "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header."
        )
    if _TIMESTAMP.fullmatch(written):
        return written
    try:
        moment = parsedate_to_datetime(written).astimezone(UTC)
    # A date at either end of the calendar does not convert to UTC, and a long year overflows a C integer.
    except (ValueError, OverflowError):
        raise RequestRefused(Reason.UNDATED, f'The date "{written}" of the request is invalid.') from None
    return f"{moment.year:04}{moment:%m%dT%H%M%SZ}"


# Three fields, and a comma after the last.
_MAX_COMMAS = 3
_MAX_SIGNED_HEADERS = 200
_TIMESTAMP = re.compile(r"[0-9]{8}T[0-9]{6}Z")


def _parse_link(request: HttpRequest, parameters: Mapping[str, str]) -> SignedRequest:
    if "X-Amz-Algorithm" not in parameters and "AWSAccessKeyId" in parameters:
        return parse_legacy_link(request, parameters)
    algorithm = parameters.get("X-Amz-Algorithm", "none")
    if algorithm != ALGORITHM:
        raise unsupported_mechanism(algorithm)
    missing = [name for name in _LINK_PARAMETERS if not parameters.get(name)]
    if missing:
        raise RequestRefused(
            Reason.MALFORMED_QUERY,
            "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, "
            f"X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters; {' and '.join(missing)} missing.",
        )
    if not _TIMESTAMP.fullmatch(parameters["X-Amz-Date"]):
        raise RequestRefused(
            Reason.MALFORMED_QUERY, "X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\""
        )
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
        raise RequestRefused(Reason.MALFORMED_QUERY, f'X-Amz-Expires should be a number of seconds, not "{written}"')
    # Python refuses to parse thousands of digits; eight already exceed the limit by far.
    lifetime = timedelta(seconds=int(written[:8]))
    if len(written) > 8 or lifetime > MAX_LINK_LIFETIME:
        raise RequestRefused(
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
    if not _HEADER_NAMES.fullmatch(signed_headers) or signed_headers.count(";") >= _MAX_SIGNED_HEADERS:
        raise RequestRefused(malformed, f'The SignedHeaders "{signed_headers[:1000]}" are not a list of header names.')
    scope = _CREDENTIAL.fullmatch(credential)
    if scope is None:
        raise RequestRefused(
            malformed,
            f'The Credential "{credential}" is malformed; expecting '
            '"<your-access-key-id>/YYYYMMDD/REGION/SERVICE/aws4_request".',
        )
    access_key_id, date, region, service = scope.groups()
    if date != timestamp[:8]:
        raise RequestRefused(
            malformed, f'The date "{date}" in the Credential differs from that of the request, "{timestamp}".'
        )
    return SignedRequest(
        access_key_id=access_key_id,
        date=date,
        region=region,
        service=service,
        signed_headers=tuple(signed_headers.split(";")),
        signature=signature,
        timestamp=timestamp,
        signed_at=_parse_timestamp(timestamp, malformed),
        expires_in=expires_in,
        session_token=session_token,
        payload_hash=payload_hash,
        is_presigned=expires_in is not None,
    )


# With other characters one signed text could stand for two requests.
_HEADER_NAMES = re.compile(r"[a-zA-Z0-9!#$%&'*+.^_`|~;-]+")
_CREDENTIAL = re.compile(r"(.+)/([0-9]{8})/([a-z0-9-]{1,64})/([a-z0-9-]{1,64})/aws4_request")


def _parse_timestamp(timestamp: str, malformed: Reason) -> datetime:
    # strptime would take 8 µs.
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
        raise RequestRefused(malformed, f'"{timestamp}" is not a time.') from None


def _check_time(signed: SignedRequest, now: datetime) -> None:
    if signed.signed_at > now + MAX_SKEW:
        reason = Reason.LINK_NOT_YET_VALID if signed.is_presigned else Reason.SKEWED
        message = f"Signature not yet current: {signed.timestamp} is still later than {_format_basic(now)} plus 15 min."
        raise RequestRefused(reason, message, members=_time_members(signed, now))
    lifetime = signed.expires_in if signed.expires_in is not None else MAX_SKEW
    if now > signed.signed_at + lifetime:
        reason = Reason.LINK_EXPIRED if signed.is_presigned else Reason.SKEWED
        message = f"Signature expired: {signed.timestamp} is more than {lifetime} earlier than {_format_basic(now)}."
        raise RequestRefused(reason, message, members=_time_members(signed, now))


def _format_basic(moment: datetime) -> str:
    return moment.strftime("%Y%m%dT%H%M%SZ")


def _time_members(signed: SignedRequest, now: datetime) -> dict[str, str]:
    server_time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    if signed.expires_in is None:
        allowed = int(MAX_SKEW.total_seconds() * 1000)
        return {
            "RequestTime": signed.timestamp,
            "ServerTime": server_time,
            "MaxAllowedSkewMilliseconds": str(allowed),
        }
    times = {"X-Amz-Expires": str(int(signed.expires_in.total_seconds())), "ServerTime": server_time}
    # A link signed at the end of the calendar has no representable expiry date.
    with contextlib.suppress(OverflowError):
        times["Expires"] = f"{signed.signed_at + signed.expires_in:%Y-%m-%dT%H:%M:%SZ}"
    return times


def _check_signed_headers(signed: SignedRequest, request: HttpRequest, family: Family) -> None:
    """Refuse a request if someone in between could change its meaning."""
    names = signed.signed_headers
    missing = [] if "host" in names else ["host"]
    for name in request.headers:
        # S3 reads its parameters from x-amz- headers; for other services only the target selects the operation.
        if name.startswith("x-amz-") and name not in names and (family is Family.S3 or name == "x-amz-target"):
            # A link signs its whole query, including the headers in it.
            missing += [] if name in request.from_link else [name]
    if missing:
        listed = ", ".join(missing)
        raise RequestRefused(
            Reason.HEADERS_NOT_SIGNED,
            f"These headers must be among the SignedHeaders of the AWS Authorization: {listed}.",
            members={"HeadersNotSigned": listed},
        )


def _payload_hash(signed: SignedRequest, request: HttpRequest, family: Family) -> str:
    declared = signed.payload_hash
    if family is Family.S3:
        if declared is None and not signed.is_presigned:
            raise RequestRefused(Reason.PAYLOAD_NOT_DECLARED)
        return declared or UNSIGNED_PAYLOAD
    if declared == UNSIGNED_PAYLOAD and "x-amz-content-sha256" in signed.signed_headers:
        return declared
    if declared is not None and signed.declares_body:
        return declared
    return hashlib.sha256(request.body).hexdigest()


@lru_cache(maxsize=1024)
def _signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    """Return the signing key, cached: it takes four HMACs and changes once a day per key, region and service."""
    key = hmac.digest(f"AWS4{secret}".encode(), date.encode(), "sha256")
    for part in (region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _mismatch_members(signed: SignedRequest, text: str, canonical: str) -> dict[str, str]:
    """Return the members that S3 sends, so that a client can compare them with what it signed."""
    return {
        "AWSAccessKeyId": signed.access_key_id,
        "StringToSign": text,
        "SignatureProvided": signed.signature,
        "StringToSignBytes": raw_bytes(text).hex(" "),
        "CanonicalRequest": canonical,
        "CanonicalRequestBytes": raw_bytes(canonical).hex(" "),
    }
