"""One signed request over a keep-alive connection, and the check of its answer."""

import http.client
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import md5
from typing import Any
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import cbor2
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.parsers import create_parser
from botocore.serialize import create_serializer

from tests.system.fuzz.values import Target

PATIENCE_S = 30.0
ACCEPTED_3XX = 304


@dataclass
class Draft:
    """A request before it is signed. `path` is percent-encoded, `query` is not.

    `is_itself` says that it still asks for its target: what a server uses to tell operations and protocols apart is
    unchanged. `is_well_formed` says that the body can still be parsed in its protocol.
    """

    target: Target
    method: str
    path: str
    query: list[tuple[str, str]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_itself: bool = True
    is_well_formed: bool = True

    @property
    def needs_digest(self) -> bool:
        """Tell whether S3 requires a digest with this body, which every S3 client adds."""
        operation = self.target.operation
        return bool(operation.http_checksum_required or operation.http_checksum.get("requestChecksumRequired"))

    @property
    def url(self) -> str:
        pairs = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in self.query)
        return self.path + (f"?{pairs}" if pairs else "")

    def __str__(self) -> str:
        return f"{self.target}: {self.method} {self.url[:500]} {self.headers} {self.body[:2000]!r}"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def __str__(self) -> str:
        return f"{self.status} {dict(self.headers)} {self.body[:2000]!r}"


def draft(target: Target, shape: Mapping[str, Any]) -> Draft:
    """Return what botocore would send, whether or not it considers the shape valid."""
    serializer = create_serializer(target.protocol, include_validation=False)
    made = serializer.serialize_to_request(shape, target.operation)
    path, _, fixed = made["url_path"].partition("?")
    query = [tuple(piece.partition("=")[::2]) for piece in fixed.split("&") if piece]
    query += [(name, text) for name, value in _pairs(made["query_string"]) for text in _texts(value)]
    headers = {name: value for name, value in made["headers"].items() if _can_be_sent(value)}
    body = made["body"]
    # The query protocol leaves encoding to the HTTP client.
    if isinstance(body, dict):
        body = "&".join(f"{quote(str(name))}={quote(str(value), safe='')}" for name, value in body.items())
    encoded = body.encode(errors="surrogatepass") if isinstance(body, str) else bytes(body or b"")
    return Draft(target, made["method"], path, query, headers, encoded)


def _pairs(query: Any) -> list[tuple[str, Any]]:
    return list(query.items()) if isinstance(query, Mapping) else list(query or [])


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [str(each).lower() if isinstance(each, bool) else str(each) for each in values]


def _can_be_sent(value: str) -> bool:
    """Tell whether HTTP can send this header at all."""
    return value.isprintable() and all(ord(character) < 256 for character in value)


class Connection:
    """Signs with one key pair and sends over one connection, which it reopens if the server closed it."""

    def __init__(self, endpoint: str, credentials: Credentials, region: str) -> None:
        self._address = urlsplit(endpoint).netloc
        self._credentials, self._region = credentials, region
        self._http = http.client.HTTPConnection(self._address, timeout=PATIENCE_S)

    def send(self, request: Draft) -> Answer:
        headers = self._sign(request)
        try:
            return self._exchange(request, headers)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            # The other side may close an idle connection at any moment.
            self._http.close()
            return self._exchange(request, headers)

    def _exchange(self, request: Draft, headers: Mapping[str, str]) -> Answer:
        self._http.putrequest(request.method, request.url, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            self._http.putheader(name, value.encode("latin-1"))
        self._http.endheaders(request.body)
        response = self._http.getresponse()
        body = response.read()
        answer = Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)
        if answer.headers.get("connection") == "close":
            self._http.close()
        return answer

    def _sign(self, request: Draft) -> dict[str, str]:
        given = {name: value for name, value in request.headers.items() if name.lower() != "content-length"}
        if request.needs_digest and "content-md5" not in {name.lower() for name in given}:
            given["content-md5"] = b64encode(md5(request.body).digest()).decode()
        signed = AWSRequest(request.method, f"http://{self._address}{request.url}", data=request.body, headers=given)
        signer = S3SigV4Auth if request.target.service == "s3" else SigV4Auth
        name = request.target.operation.service_model.signing_name
        signer(self._credentials, name, self._region).add_auth(signed)
        return {**signed.headers, "host": self._address, "content-length": str(len(request.body))}

    def close(self) -> None:
        self._http.close()


def complaint(request: Draft, answer: Answer) -> str | None:
    """Return what is wrong with this answer to this request, or None."""
    if answer.status >= 500 and not (answer.status == 501 and request.target.service == "s3"):
        return f"a fault of the server: {answer.status}"
    if not {"x-amz-request-id", "x-amzn-requestid"} & set(answer.headers):
        return "no request id"
    if request.method == "HEAD" or answer.status == ACCEPTED_3XX:
        return "a body where none may be" if answer.body else None
    if answer.status >= 400:
        return _refusal_complaint(request, answer)
    return _success_complaint(request, answer) if answer.status < 300 else f"the status {answer.status}"


def _success_complaint(request: Draft, answer: Answer) -> str | None:
    if not request.is_itself:
        return None
    # Like S3, the yard writes a character that XML cannot hold as a reference that parsers refuse. Clients that have
    # such keys use encoding-type=url.
    body = re.sub(rb"&#x[0-9A-F]+;", b"?", answer.body) if request.target.protocol == "rest-xml" else answer.body
    try:
        _parse(request.target, replace(answer, body=body))
    except Exception as error:
        # Botocore's parsers raise all kinds of errors, and each is a finding.
        return f"botocore cannot read it: {error!r}"
    return None


def _refusal_complaint(request: Draft, answer: Answer) -> str | None:
    try:
        code, message = _read_refusal(request, answer)
    except Exception as error:
        # Malformed in any way.
        return f"not an AWS error: {error!r}"
    if not code or not message or code.isdigit():
        return f"an AWS error without code or message: {code!r}, {message!r}"
    return None


def _read_refusal(request: Draft, answer: Answer) -> tuple[str, str]:
    if request.is_itself:
        error = _parse(request.target, answer)["Error"]
        return error["Code"], error["Message"]
    return _read_any_refusal(answer)


def _read_any_refusal(answer: Answer) -> tuple[str, str]:
    """Return the code and message of an error in any of AWS's protocols; the content type tells them apart."""
    kind = answer.headers.get("content-type", "")
    if "xml" in kind:
        error = next(ElementTree.fromstring(answer.body).iter("Error"), None)
        # The query protocol puts its elements in a namespace.
        if error is None:
            error = next(each for each in ElementTree.fromstring(answer.body).iter() if each.tag.endswith("}Error"))
        found = {each.tag.rpartition("}")[2]: each.text or "" for each in error}
        return found["Code"], found["Message"]
    fields = cbor2.loads(answer.body) if "cbor" in kind else json.loads(answer.body)
    # rest-json, which refuses requests without a route, has its code in a header.
    return fields.get("__type") or answer.headers["x-amzn-errortype"], fields.get("message") or fields["Message"]


def _parse(target: Target, answer: Answer) -> dict[str, Any]:
    body: Any = answer.body
    output = target.operation.output_shape
    if answer.status < 300 and target.operation.has_streaming_output:
        # Botocore does not parse such a body.
        body = None
    response = {"status_code": answer.status, "headers": dict(answer.headers), "body": body}
    parsed: dict[str, Any] = create_parser(target.protocol).parse(response, output)
    return parsed
