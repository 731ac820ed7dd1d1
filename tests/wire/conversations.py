"""The client side: requests as botocore writes them, responses as botocore reads them."""

from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from botocore.awsrequest import HeadersDict, create_request_object, prepare_request_dict
from botocore.parsers import create_parser
from botocore.serialize import create_serializer

from trainyard.wire.http import Headers, HttpRequest, HttpResponse

ENDPOINT = "http://127.0.0.1:9000"
SCOPES = {"s3": "s3", "sts": "sts", "iam": "iam", "cloudwatch": "monitoring"}


def written_by_botocore(operation: Any, parameters: dict[str, Any], *, protocol: str) -> HttpRequest:
    """Return the request that a client sends, with only the scope of its signature."""
    serialised = create_serializer(protocol, include_validation=False).serialize_to_request(parameters, operation)
    serialised.pop("host_prefix", None)  # as a client does whose endpoint is configured with inject_host_prefix=False
    prepare_request_dict(serialised, endpoint_url=ENDPOINT)
    prepared = create_request_object(serialised).prepare()
    scope = SCOPES.get(operation.service_model.service_name, operation.service_model.signing_name)
    return http_request(
        prepared, authorization=f"AWS4-HMAC-SHA256 Credential=AKID/20260131/eu-west-1/{scope}/aws4_request"
    )


def http_request(prepared: Any, authorization: str = "") -> HttpRequest:
    """Convert a botocore request to the one that the listener passes on."""
    url = urlsplit(prepared.url)
    fields = {"host": url.netloc} | {name.lower(): _text(value) for name, value in prepared.headers.items()}
    if authorization:
        fields["authorization"] = authorization
    body = prepared.body or b""
    return HttpRequest(
        method=prepared.method,
        path=url.path,
        query=url.query,
        headers=Headers(fields.items()),
        body=body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else body.read(),
    )


def read_by_botocore(operation: Any, response: HttpResponse, *, protocol: str) -> dict[str, Any]:
    """Parse a response as a client does, without its metadata."""
    assert isinstance(response.body, bytes)
    # The parser decodes bytes, but returns other types unchanged, as for a stream.
    body = bytearray(response.body) if operation.has_streaming_output else response.body
    described = {"status_code": response.status, "headers": HeadersDict(dict(response.headers)), "body": body}
    parsed: dict[str, Any] = create_parser(protocol).parse(described, operation.output_shape)
    parsed.pop("ResponseMetadata")
    return parsed


class FixedStream:
    """A ByteStream of one piece, already verified."""

    trailers: Mapping[str, str] = {}

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.content


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
