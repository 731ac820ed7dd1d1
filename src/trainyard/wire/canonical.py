"""The canonical form of a request, which client and server both sign.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import re
from collections.abc import Sequence
from urllib.parse import quote, unquote_to_bytes

from trainyard.wire.http import HttpRequest


def canonical_request(
    request: HttpRequest, signed_headers: Sequence[str], *, payload_hash: str, signs_raw_path: bool
) -> str:
    """Return the text to sign. S3 signs the path as sent; all other services sign a normalised path."""
    fields = request.headers
    lines = [
        request.method,
        _encode_raw_path(request.path) if signs_raw_path else _normalise_path(request.path),
        _canonical_query(request.query),
        *[f"{name}:{_trim(fields.get(name))}" for name in signed_headers],
        "",
        ";".join(signed_headers),
        payload_hash,
    ]
    return "\n".join(lines)


def raw_bytes(text: str) -> bytes:
    """Return the bytes that were sent: servers decode all text of a request as Latin-1."""
    return text.encode("latin-1", "replace")


def _trim(value: str) -> str:
    # split() and strip() would also treat the second byte of a UTF-8 "à" as a space.
    if "  " in value or "\t" in value:
        value = _BLANKS.sub(" ", value)
    return value.strip(" ")


_BLANKS = re.compile(r"[ \t]+")


def _encode_raw_path(path: str) -> str:
    """Return the path as S3 signs it: as sent, with canonical percent-encoding."""
    if _PLAIN_PATH.fullmatch(path):
        return path or "/"
    return "/".join(quote(unquote_to_bytes(raw_bytes(segment)), safe="-_.~") for segment in path.split("/"))


_PLAIN_PATH = re.compile(r"[A-Za-z0-9\-_.~/]*")


def _normalise_path(path: str) -> str:
    """Return the path as all other services sign it: without empty, `.` and `..` segments, and encoded again."""
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment not in ("", "."):
            segments.append(segment)
    if not segments:
        return "/"
    return quote(raw_bytes("/" + "/".join(segments) + ("/" if path.endswith("/") else "")), safe="/-_.~")


def _canonical_query(query: str) -> str:
    if not query:
        return ""
    pairs = []
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if pair and name != "X-Amz-Signature":
            pairs.append((_encode_parameter(name), _encode_parameter(value)))
    pairs.sort()
    return "&".join([f"{name}={value}" for name, value in pairs])


def _encode_parameter(text: str) -> str:
    """Encode a query name or value canonically: `+` and `%20` are the same space."""
    if _PLAIN.fullmatch(text):
        return text
    return quote(unquote_to_bytes(raw_bytes(text.replace("+", " "))), safe="-_.~")


_PLAIN = re.compile(r"[A-Za-z0-9\-_.~]*")
