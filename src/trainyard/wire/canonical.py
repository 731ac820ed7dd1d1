"""The one spelling of a request that both sides sign.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import re
from collections.abc import Sequence
from urllib.parse import quote, unquote_to_bytes

from trainyard.wire.http import HttpRequest


def canonical_request(
    request: HttpRequest, signed_headers: Sequence[str], *, payload_hash: str, has_sent_path: bool
) -> str:
    """The text that is signed. S3 signs the path as it was sent, all others a normal form of it."""
    fields = request.headers
    lines = [
        request.method,
        _sent_path(request.path) if has_sent_path else _normal_path(request.path),
        _canonical_query(request.query),
        *[f"{name}:{_trimmed(fields.get(name))}" for name in signed_headers],
        "",
        ";".join(signed_headers),
        payload_hash,
    ]
    return "\n".join(lines)


def raw_bytes(text: str) -> bytes:
    """The bytes that were sent: all text of a request reaches us as Latin-1."""
    return text.encode("latin-1", "replace")


def _trimmed(value: str) -> str:
    # Not split() and strip(): those also take the second half of a UTF-8 "à" for a blank.
    if "  " in value or "\t" in value:
        value = _BLANKS.sub(" ", value)
    return value.strip(" ")


_BLANKS = re.compile(r"[ \t]+")


def _sent_path(path: str) -> str:
    """The path as S3 signs it: what was sent, in the one spelling that percent-encoding ought to have."""
    if _PLAIN_PATH.fullmatch(path):
        return path or "/"
    return "/".join(quote(unquote_to_bytes(raw_bytes(segment)), safe="-_.~") for segment in path.split("/"))


_PLAIN_PATH = re.compile(r"[A-Za-z0-9\-_.~/]*")


def _normal_path(path: str) -> str:
    """The path as all others sign it: without empty, `.` and `..` segments, and encoded once more."""
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
    for piece in query.split("&"):
        name, _, value = piece.partition("=")
        if piece and name != "X-Amz-Signature":
            pairs.append((_encoded(name), _encoded(value)))
    pairs.sort()
    return "&".join([f"{name}={value}" for name, value in pairs])


def _encoded(text: str) -> str:
    """One spelling of a query name or value, whatever the client's: `+` and `%20` are the same blank."""
    if _PLAIN.fullmatch(text):
        return text
    return quote(unquote_to_bytes(raw_bytes(text.replace("+", " "))), safe="-_.~")


_PLAIN = re.compile(r"[A-Za-z0-9\-_.~]*")
