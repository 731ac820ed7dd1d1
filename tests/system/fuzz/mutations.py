"""Mutations of a request after botocore has serialized it, which no AWS client would make."""

import json
import random
from collections.abc import Callable
from typing import Any

import cbor2

from tests.system.fuzz.exchange import Draft

Mutation = Callable[[random.Random, Draft], None]

_ODD_HEADERS = {
    "range": (
        "bytes=0-",
        "bytes=5-2",
        "bytes=-0",
        "bytes=a-b",
        "bytes=0-1,3-4",
        "lines=1-2",
        "bytes=99999999999999999999-",
    ),
    "if-match": ("*", '"x"', "x", ""),
    "if-none-match": ("*", '"x", "y"', ""),
    "if-modified-since": ("yesterday", "Thu, 01 Jan 1970 00:00:00 GMT", "0"),
    "if-unmodified-since": ("Thu, 01 Jan 1970 00:00:00 GMT", "-"),
    "content-md5": ("AAAAAAAAAAAAAAAAAAAAAA==", "short", ""),
    "content-type": ("", "text/plain", "application/x-amz-json-1.1; charset=latin-1", "multipart/form-data"),
    "content-encoding": ("aws-chunked", "gzip", "aws-chunked,gzip"),
    "x-amz-content-sha256": ("UNSIGNED-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "0" * 64, "nonsense"),
    "x-amz-decoded-content-length": ("-1", "abc", "0", "99999999999"),
    "x-amz-trailer": ("x-amz-checksum-crc32", "x-nothing"),
    "x-amz-checksum-crc32": ("AAAAAA==", "not base64!", ""),
    "x-amz-checksum-sha256": ("x", "AAAA"),
    "x-amz-sdk-checksum-algorithm": ("CRC32C", "MD17"),
    "x-amz-copy-source": ("", "/", "nobucket", "/a/b?versionId=1", "%ff%fe/x", "a/%00"),
    "x-amz-copy-source-range": ("bytes=0-0", "bytes=9-1", "x"),
    "x-amz-tagging": ("a=b", "a=b&a=c", "=&=", "a", "%zz=%"),
    "x-amz-acl": ("public-read", "nonsense"),
    "x-amz-server-side-encryption": ("aws:kms", "AES256", "rot13"),
    "x-amz-server-side-encryption-customer-algorithm": ("AES256",),
    "x-amz-expected-bucket-owner": ("000000000000", "me", ""),
    "x-amz-meta-odd": ("\u00e9", "x" * 3000, ""),
    "x-amz-date": ("20200101T000000Z", "yesterday"),
    "x-amz-security-token": ("nonsense",),
    "x-amz-target": ("", "Logs_20140328.", "Logs_20140328.Nothing", "Nothing.Nothing", "."),
    "expect": ("100-continue",),
    "accept": ("application/json", "*/*;q=x"),
    "x-forwarded-for": ("10.0.0.1",),
    "origin": ("https://example.com",),
}
# Headers that a server uses to tell operations and protocols apart, or to authenticate the sender.
_DECISIVE = frozenset({"content-type", "x-amz-target", "x-amz-copy-source", "x-amz-date", "smithy-protocol"})
_ODD_QUERIES = (
    ("acl", ""),
    ("versioning", ""),
    ("uploads", ""),
    ("uploadId", "nothing"),
    ("partNumber", "0"),
    ("partNumber", "abc"),
    ("list-type", "7"),
    ("max-keys", "-1"),
    ("max-keys", "99999999999999999999"),
    ("max-parts", "x"),
    ("encoding-type", "morse"),
    ("continuation-token", "\0\x01"),
    ("versionId", "null"),
    ("delimiter", ""),
    ("tagging", "x"),
    ("x-id", "Nothing"),
    ("Action", "Nothing"),
    ("X-Amz-Signature", "0"),
    ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
    ("X-Amz-Expires", "abc"),
    ("\ufffd", "\x7f"),
)
_ODD_JSON: tuple[Any, ...] = (None, True, -1, 1.5, 10**30, "", "x", [], {}, [[]], {"": None}, [None])
_ODD_BODIES = (
    b"",
    b"\0",
    b"\xff\xfe\xfd",
    b"null",
    b"[]",
    b'"text"',
    b"{",
    b"<",
    b"<a/>",
    b"<a>&unknown;</a>",
    b'<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;&b;&b;">]><a>&c;</a>',
    b"[" * 50_000,
    b"<a>" * 20_000,
    b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x81" * 10_000,
    b"Action=",
    b"Action=Nothing&Version=2010-05-08",
    b"a" * 100_000,
    b"5;chunk-signature=x\r\nhello\r\n0\r\n\r\n",
)


def spoil(dice: random.Random, request: Draft) -> None:
    """Apply one to three mutations to the request."""
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        dice.choice(MUTATIONS)(dice, request)


def replace_a_value(dice: random.Random, request: Draft) -> None:
    """Put a value of a wrong type somewhere into the body, which stays well formed."""
    if request.target.protocol == "query":
        _replace_a_parameter(dice, request)
    elif request.target.protocol == "json" and request.is_well_formed:
        request.body = json.dumps(_with_odd_node(dice, json.loads(request.body or b"{}"))).encode()
    elif request.target.protocol == "smithy-rpc-v2-cbor" and request.is_well_formed:
        request.body = cbor2.dumps(_with_odd_node(dice, cbor2.loads(request.body or b"\xa0")))
    else:
        cut_the_body(dice, request)


def _with_odd_node(dice: random.Random, node: Any) -> Any:
    if not isinstance(node, dict | list) or not node or dice.random() < 0.2:
        return dice.choice(_ODD_JSON)
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    chosen = dice.choice(keys)
    node[chosen] = _with_odd_node(dice, node[chosen])
    return node


def _replace_a_parameter(dice: random.Random, request: Draft) -> None:
    pairs = [piece.partition("=") for piece in request.body.decode("latin-1").split("&")]
    free = [index for index, (name, _, _) in enumerate(pairs) if name not in ("Action", "Version")]
    names = ("Tags.member.999999999.Key", "Tags.member.x", "MaxItems", "MaxItems.member.1", "..", "%ff", "A.B.C.D.E")
    if free and dice.random() < 0.5:
        index = dice.choice(free)
        pairs[index] = (pairs[index][0], "=", dice.choice(["", "%00", "%ff", "-1", "x" * 5000, "true"]))
    else:
        pairs.append((dice.choice(names), "=", dice.choice(["", "1", "%zz"])))
    request.body = "&".join("".join(pair) for pair in pairs).encode("latin-1")


def cut_the_body(dice: random.Random, request: Draft) -> None:
    request.body = request.body[: dice.randint(0, len(request.body))]
    _break(request)


def _break(request: Draft) -> None:
    request.is_well_formed = False
    # The query protocol names the operation in the body.
    request.is_itself = request.is_itself and request.target.protocol != "query"


def flip_bytes_of_the_body(dice: random.Random, request: Draft) -> None:
    spoiled = bytearray(request.body)
    for _ in range(min(len(spoiled), dice.randint(1, 4))):
        spoiled[dice.randrange(len(spoiled))] = dice.randrange(256)
    request.body = bytes(spoiled)
    _break(request)


def replace_the_body(dice: random.Random, request: Draft) -> None:
    request.body = dice.choice(_ODD_BODIES)
    _break(request)


def add_a_header(dice: random.Random, request: Draft) -> None:
    name = dice.choice(list(_ODD_HEADERS))
    _drop_header(request, name)
    request.headers[name] = dice.choice(_ODD_HEADERS[name])
    request.is_itself = request.is_itself and name not in _DECISIVE


def drop_a_header(dice: random.Random, request: Draft) -> None:
    if request.headers:
        name = dice.choice(list(request.headers))
        _drop_header(request, name)
        request.is_itself = request.is_itself and name.lower() not in _DECISIVE


def _drop_header(request: Draft, name: str) -> None:
    request.headers = {known: value for known, value in request.headers.items() if known.lower() != name.lower()}


def add_a_query(dice: random.Random, request: Draft) -> None:
    request.query.append(dice.choice(_ODD_QUERIES))
    request.is_itself = False


def drop_a_query(dice: random.Random, request: Draft) -> None:
    if request.query:
        del request.query[dice.randrange(len(request.query))]
        request.is_itself = False


def change_the_method(dice: random.Random, request: Draft) -> None:
    request.method = dice.choice(["GET", "PUT", "POST", "DELETE", "HEAD", "PATCH", "OPTIONS"])
    request.is_itself = False


def change_the_path(dice: random.Random, request: Draft) -> None:
    odd = (
        "%00",
        "%ff%fe",
        "/..",
        "/%2e%2e/%2e%2e/etc",
        "//",
        "/.",
        "%",
        "%zz",
        "/" + "long" * 2000,
        "?",
        "/x%2fy",
        ";a=b",
    )
    request.path = dice.choice([request.path + dice.choice(odd), dice.choice(odd), "/", "/_trainyard/nothing"])
    if not request.path.startswith("/"):
        request.path = f"/{request.path}"
    request.is_itself = False


MUTATIONS: tuple[Mutation, ...] = (
    replace_a_value,
    replace_a_value,
    replace_a_value,
    cut_the_body,
    flip_bytes_of_the_body,
    replace_the_body,
    add_a_header,
    add_a_header,
    add_a_header,
    drop_a_header,
    add_a_query,
    drop_a_query,
    change_the_method,
    change_the_path,
)
